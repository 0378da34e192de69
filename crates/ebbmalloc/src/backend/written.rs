//! Finds out whether the program writes blocks whole, by the length of the blocks.
//!
//! In a huge page all of a block is resident, also what the program never touches. Which pages it
//! touched, no system call tells that each filter of calls allows. But a page with data was
//! written. So, when the heap grows, a few pages are probed of a block, or a span, that was handed
//! out before for blocks of about that length.

use core::mem;
use core::ops::Range;

use crate::backend::huge_pages::Touch;
use crate::backend::page_map::MapEntry;
use crate::backend::region::{Region, UnitIndex};
use crate::backend::tuning::{
    HUGE_ALLOWED_BYTES_MIN, HUGE_BLOCK_BYTES_MAX, PROBED_AFTER_UNITS, UNPROBED_GROWTHS,
    WRITTEN_PAGES_MIN, WRITTEN_PROBES,
};
use crate::backend::zeroing::hash;
use crate::platform::os::Os;
use crate::size_class::UNIT;

/// How many lengths of blocks are told apart.
const LENGTHS: usize = 28;

/// What is known of the blocks that the heap handed out.
pub(crate) struct Written {
    lengths: [Length; LENGTHS],
    /// Pages probed until now: the seed of the next.
    probes: u32,
}

/// Blocks of about one length.
struct Length {
    /// Units of a block or span handed out lately, and of one before it.
    newer: Range<UnitIndex>,
    older: Range<UnitIndex>,
    /// Units handed out after those of `newer`.
    units_since: u32,
    found: Found,
    /// How many times not to probe.
    skips: u8,
}

/// What the last probe of a block found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Found {
    /// There was no probe yet.
    Unknown,
    /// No page with data. The program may have written zeros.
    Nothing,
    /// Data in some pages.
    Few,
    /// Data in most pages.
    Most,
}

impl Written {
    /// Nothing is known yet. All zero bytes, as are all initial values of an engine, so that files
    /// hold none.
    pub const fn new() -> Self {
        const NONE: Length =
            Length { newer: 0..0, older: 0..0, units_since: 0, found: Found::Unknown, skips: 0 };
        Self { lengths: [NONE; LENGTHS], probes: 0 }
    }

    /// What the last probe of a block of about this length found.
    pub fn found(&self, bytes: usize) -> Found {
        self.lengths[index(bytes)].found
    }

    /// How much the program will touch of a new block of this length.
    pub fn expected(&self, bytes: usize) -> Touch {
        match bytes <= HUGE_BLOCK_BYTES_MAX || self.found(bytes) == Found::Most {
            true => Touch::Whole,
            false => Touch::Unknown,
        }
    }

    /// Records that these units are handed out to a block of this length, or to a span of them.
    pub fn record(&mut self, bytes: usize, units: Range<UnitIndex>) {
        let length = &mut self.lengths[index(bytes)];
        length.units_since += units.end - units.start;
        if length.units_since >= PROBED_AFTER_UNITS {
            length.units_since = 0;
            length.older = mem::replace(&mut length.newer, units.clone());
        }
        // A block in the place of a freed one is new.
        if length.older.start < units.end && units.start < length.older.end {
            length.older = 0..0;
        }
    }

    /// Probes an older block of this length.
    pub fn probe(&mut self, region: &Region, os: &impl Os, bytes: usize) {
        let length = &mut self.lengths[index(bytes)];
        if bytes <= HUGE_BLOCK_BYTES_MAX || length.skips > 0 {
            length.skips = length.skips.saturating_sub(1);
            return;
        }
        let Range { start, end } = length.older;
        let entry = region.entry(start as usize);
        // What was freed since may be purged.
        if start == end || entry == MapEntry::NONE || entry.is_large_freed() {
            return;
        }
        let page = os.page_size();
        let pages = (end - start) as usize * UNIT / page;
        let was_written = |nth| os.was_written(region.address(start).wrapping_add(nth * page));
        let probes = &mut self.probes;
        let mut nth = || {
            *probes = probes.wrapping_add(1);
            // Another page each time, since programs write memory in patterns.
            hash(*probes) as usize % pages
        };
        let count = (0..WRITTEN_PROBES).filter(|_| was_written(nth())).count();
        length.found = match count {
            WRITTEN_PAGES_MIN.. => Found::Most,
            0 if !was_written(0) => Found::Nothing,
            _ => Found::Few,
        };
        let is_cheap = length.found == Found::Most || bytes >= HUGE_ALLOWED_BYTES_MIN;
        length.skips = if is_cheap { 0 } else { UNPROBED_GROWTHS };
    }
}

/// Each class above an OS page is a length of its own, and so is each doubling above 64 KiB: a span
/// that is probed must be of a class that the program uses.
fn index(bytes: usize) -> usize {
    const PAGE_LOG: usize = HUGE_BLOCK_BYTES_MAX.ilog2() as usize;
    const UNIT_LOG: usize = UNIT.ilog2() as usize;
    let last = bytes.saturating_sub(1).max(HUGE_BLOCK_BYTES_MAX);
    let log = last.ilog2() as usize;
    match log < UNIT_LOG {
        true => (log - PAGE_LOG) * 4 + (last >> (log - 2) & 3),
        false => ((UNIT_LOG - PAGE_LOG) * 4 + log - UNIT_LOG).min(LENGTHS - 1),
    }
}
