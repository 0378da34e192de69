//! Lists of gaps of free pages, by length. `page_heap/gaps.rs` says what a gap is.

use crate::backend::region::Region;
use crate::backend::tuning::MEDIUM_BYTES_MAX;
use crate::backend::units::UnitIndex;

/// Open units, each in the list for the length of the gap that begins in it, in pages.
pub(crate) struct GapLists {
    /// The first unit of the list for gaps of one page more than the index; 0 for none.
    first: [UnitIndex; Self::PAGES_MAX],
    /// A bit for each list that is not empty.
    filled: u128,
}

impl GapLists {
    /// The last list is for gaps of this many pages or more: at least 4 KiB each, they hold any
    /// medium block.
    pub const PAGES_MAX: usize = (MEDIUM_BYTES_MAX + 1) / 4096;

    pub const fn new() -> Self {
        const { assert!(Self::PAGES_MAX == u128::BITS as usize) };
        Self { first: [0; Self::PAGES_MAX], filled: 0 }
    }

    /// The first unit of the list for the shortest gaps of at least `pages` pages, and the length
    /// of that list.
    pub fn shortest(&self, pages: usize) -> Option<(UnitIndex, usize)> {
        let filled = self.filled.checked_shr(pages as u32 - 1)?;
        let list = pages - 1 + filled.trailing_zeros() as usize;
        (filled != 0).then(|| (self.first[list], list + 1))
    }

    /// The unit after an open one in the list for gaps of `listed` pages, or the first of the next
    /// list.
    pub fn next(
        &self,
        region: &Region,
        unit: UnitIndex,
        listed: usize,
    ) -> Option<(UnitIndex, usize)> {
        // SAFETY: an open unit is in use, hence committed. The lock of the page heap guards its
        // record.
        match unsafe { (*region.run(unit)).right } {
            0 => self.shortest(listed + 1),
            next => Some((next, listed)),
        }
    }

    /// Adds a paged unit that is not open. A gap of `pages` pages begins in it, and no block.
    pub fn insert(&mut self, region: &Region, unit: UnitIndex, pages: usize) {
        let (run, next) = (region.run(unit), self.first[pages - 1]);
        // SAFETY: paged units are committed, and the lock of the page heap guards their records.
        // Owners of blocks may read sizes meanwhile, but no block begins in an open unit.
        unsafe {
            (*run).flags = (*run).flags.with_open(true);
            ((*run).left, (*run).right) = (pages as u32, next);
            if next != 0 {
                (*region.run(next)).left = unit;
            }
        }
        self.first[pages - 1] = unit;
        self.filled |= 1 << (pages - 1);
    }

    /// Takes a paged unit out, if it is open.
    pub fn remove(&mut self, region: &Region, unit: UnitIndex) {
        let run = region.run(unit);
        // SAFETY: as in `insert`.
        unsafe {
            if !(*run).flags.open() {
                return;
            }
            (*run).flags = (*run).flags.with_open(false);
            // The first unit of a list has the list's length in place of a unit before it.
            let (before, after) = ((*run).left, (*run).right);
            match self.first.get_mut((before as usize).wrapping_sub(1)) {
                Some(first) if *first == unit => {
                    *first = after;
                    self.filled &= !(((after == 0) as u128) << (before - 1));
                }
                _ => (*region.run(before)).right = after,
            }
            if after != 0 {
                (*region.run(after)).left = before;
            }
        }
    }

    /// Calls `each` with each open unit and the length of its list. Panics if a list is damaged.
    pub fn check(&self, region: &Region, mut each: impl FnMut(UnitIndex, usize)) {
        for (nth, &first) in self.first.iter().enumerate() {
            assert_eq!(first != 0, self.filled >> nth & 1 != 0, "list {nth} of gaps");
            let (mut before, mut unit) = (nth as u32 + 1, first);
            while unit != 0 {
                // SAFETY: an open unit is in use, hence committed.
                let run = unsafe { *region.run(unit) };
                assert!(run.flags.open() && run.left == before, "open unit {unit}: {run:?}");
                each(unit, nth + 1);
                (before, unit) = (unit, run.right);
            }
        }
    }
}
