//! Finds out whether the program writes blocks whole, by the length of the blocks.
//!
//! In a huge page all of a block is resident, also what the program never touches. Which pages it
//! touched, no system call tells that each filter of calls allows. But a page with data was
//! written. So, when the heap grows, a few pages are probed of a block, or a span, that was handed
//! out before for blocks of about that length.
//!
//! A probe may take a page fault that another thread of the program must serve (userfaultfd(2)),
//! which may allocate. So only a process with one thread is probed. In others nothing is known.

use core::mem;
use core::ops::Range;

use crate::backend::huge_pages::Touch;
use crate::backend::page_map::MapEntry;
use crate::backend::region::{Region, UnitIndex};
use crate::backend::tuning::{
    HUGE_BLOCK_BYTES_MAX, PROBED_AFTER_UNITS, UNPROBED_GROWTHS, WRITTEN_BLOCKS_MIN,
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
    /// Units of a block or span handed out lately, and of one before it that was not probed yet.
    newer: Range<UnitIndex>,
    older: Range<UnitIndex>,
    /// Units handed out after those of `newer`.
    units_since: u32,
    /// Probes in a row that found a block written whole.
    whole: u8,
    /// How many times not to probe.
    skips: u8,
}

impl Written {
    /// Nothing is known yet. All zero bytes, as are all initial values of an engine, so that files
    /// hold none.
    pub const fn new() -> Self {
        const NONE: Length =
            Length { newer: 0..0, older: 0..0, units_since: 0, whole: 0, skips: 0 };
        Self { lengths: [NONE; LENGTHS], probes: 0 }
    }

    /// How much the program will touch of a new block of this length.
    pub fn expected(&self, bytes: usize) -> Touch {
        let is_whole = || self.lengths[index(bytes)].whole >= WRITTEN_BLOCKS_MIN;
        if bytes <= HUGE_BLOCK_BYTES_MAX || is_whole() { Touch::Whole } else { Touch::Unknown }
    }

    /// Records that these units are handed out to a block of this length, or to a span of them.
    pub fn record(&mut self, bytes: usize, units: Range<UnitIndex>) {
        let length = &mut self.lengths[index(bytes)];
        length.units_since += units.end - units.start;
        // Not every eighth block: the program may write every second one.
        if length.units_since >= PROBED_AFTER_UNITS + hash(self.probes) % PROBED_AFTER_UNITS {
            length.units_since = 0;
            length.older = mem::replace(&mut length.newer, units.clone());
        }
        // A block in the place of a freed one is new.
        if length.older.start < units.end && units.start < length.older.end {
            length.older = 0..0;
        }
    }

    /// Probes an earlier block of this length. It does not matter what the program does with it:
    /// the kernel reads it.
    pub fn probe(&mut self, region: &Region, os: &impl Os, bytes: usize) {
        let length = &mut self.lengths[index(bytes)];
        if !os.is_single() {
            length.whole = 0;
            return;
        }
        if bytes <= HUGE_BLOCK_BYTES_MAX || length.skips > 0 {
            length.skips = length.skips.saturating_sub(1);
            return;
        }
        let units = mem::replace(&mut length.older, 0..0);
        let entry = region.entry(units.start as usize);
        // What was freed since may be purged.
        if units.is_empty() || entry == MapEntry::NONE || entry.is_large_freed() {
            return;
        }
        let page = os.page_size();
        let pages = units.len() * UNIT / page;
        let probes = &mut self.probes;
        let mut has_data = || {
            *probes = probes.wrapping_add(1);
            // Another page each time, since programs write memory in patterns.
            let at = hash(*probes) as usize % pages * page;
            // SAFETY: the units were handed out, hence they were committed.
            unsafe { os.was_written(region.address(units.start).wrapping_add(at)) }
        };
        // The last pages of a span, or of a block rounded up, may have none.
        let is_whole = (0..WRITTEN_PROBES).filter(|_| has_data()).count() >= WRITTEN_PAGES_MIN;
        (length.whole, length.skips) = match is_whole {
            true => ((length.whole + 1).min(WRITTEN_BLOCKS_MIN), 0),
            false => (0, UNPROBED_GROWTHS),
        };
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
