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
use crate::backend::region::{Region, UnitIndex};
use crate::backend::run::Run;
use crate::backend::tuning::{
    HUGE_BLOCK_BYTES_MAX, PROBED_AFTER_UNITS, PROBED_PAGES, UNPROBED_GROWTHS,
    WRITTEN_BLOCK_BYTES_MAX, WRITTEN_BLOCKS_MIN, WRITTEN_PAGES_MIN,
};
use crate::platform::os::Os;
use crate::platform::random::Random;
use crate::size_class::{SizeClass, UNIT};

/// How many lengths of blocks are told apart.
const LENGTHS: usize = 26;

/// What is known of the blocks that the heap handed out.
pub(crate) struct Written {
    lengths: [Length; LENGTHS],
    random: Random,
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
        Self { lengths: [NONE; LENGTHS], random: Random::new(0) }
    }

    /// How much the program will touch of a new block of this length.
    pub fn expected(&self, os: &impl Os, bytes: usize) -> Touch {
        let is_whole = |nth: usize| self.lengths[nth].whole >= WRITTEN_BLOCKS_MIN && os.is_single();
        match bytes <= HUGE_BLOCK_BYTES_MAX || index(bytes).is_some_and(is_whole) {
            true => Touch::Whole,
            false => Touch::Unknown,
        }
    }

    /// Records that these units, which held no data, are handed out to a block of this length, or
    /// to a span of them.
    pub fn record(&mut self, bytes: usize, units: Range<UnitIndex>) {
        let Some(length) = index(bytes).map(|nth| &mut self.lengths[nth]) else { return };
        length.units_since += units.end - units.start;
        // Not after the same number each time: the program may write every second block.
        if length.units_since >= PROBED_AFTER_UNITS + self.random.next() as u32 % PROBED_AFTER_UNITS
        {
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
        let Some(length) = index(bytes).map(|nth| &mut self.lengths[nth]) else { return };
        if !os.is_single() || length.skips > 0 {
            length.skips = length.skips.saturating_sub(1);
            return;
        }
        let units = mem::replace(&mut length.older, 0..0);
        // What was freed since may be purged, and another block may lie there.
        if units.is_empty() || bytes_at(region, units.start).and_then(index) != index(bytes) {
            return;
        }
        let page = os.page_size();
        let pages = units.len() * UNIT / page;
        let random = &mut self.random;
        let mut has_data = || {
            // Programs write memory in patterns.
            let at = random.next() as usize % pages * page;
            // SAFETY: the units were handed out, so they were committed; there is one thread.
            unsafe { os.was_written(region.address(units.start).wrapping_add(at)) }
        };
        // The last pages of a span, or of a block rounded up, may have none.
        let is_whole = (0..PROBED_PAGES).filter(|_| has_data()).count() >= WRITTEN_PAGES_MIN;
        (length.whole, length.skips) = match is_whole {
            true => ((length.whole + 1).min(WRITTEN_BLOCKS_MIN), 0),
            false => (0, UNPROBED_GROWTHS),
        };
    }
}

/// Bytes of the large block, or of each block of the span, that begins at this committed unit.
fn bytes_at(region: &Region, unit: UnitIndex) -> Option<usize> {
    let (entry, run) = (region.entry(unit as usize), region.run(unit));
    if !entry.is_large() {
        return entry.class().map(SizeClass::size);
    }
    // SAFETY: the unit is committed. The caller holds the lock of the page heap, under which blocks
    // are resized.
    Some(unsafe {
        match entry.is_medium() {
            true => Run::medium_asked_at(run),
            false => Run::asked_at(run),
        }
    })
}

/// The place of this length in the list, if blocks of this length are probed. Up to 64 KiB two
/// neighbouring classes are one length: a span that is probed should be of a class that the program
/// uses. Above, each doubling is one.
fn index(bytes: usize) -> Option<usize> {
    const PAGE_LOG: usize = HUGE_BLOCK_BYTES_MAX.ilog2() as usize;
    const UNIT_LOG: usize = UNIT.ilog2() as usize;
    if bytes <= HUGE_BLOCK_BYTES_MAX || bytes > WRITTEN_BLOCK_BYTES_MAX {
        return None;
    }
    let last = bytes - 1;
    let log = last.ilog2() as usize;
    Some(match log < UNIT_LOG {
        true => (log - PAGE_LOG) * 4 + (last >> (log - 2) & 3),
        false => (UNIT_LOG - PAGE_LOG) * 4 + log - UNIT_LOG,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::size_class::SizeClass;

    #[test]
    fn two_classes_or_a_doubling_are_a_length() {
        let classes = SizeClass::all().map(|class| class.size());
        let of_classes = classes.filter_map(index);
        assert!(of_classes.eq((0..16).flat_map(|length| [length; 2])));
        let of_doublings = (17..=26).map(|log| index(1 << log).unwrap());
        assert!(of_doublings.eq(16..LENGTHS));
        assert_eq!(index(HUGE_BLOCK_BYTES_MAX), None);
        assert_eq!(index(WRITTEN_BLOCK_BYTES_MAX + 1), None);
    }
}
