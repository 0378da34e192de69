//! Finds gaps of free pages for medium blocks.
//!
//! A gap begins behind the last page in use of a paged unit, may continue through free units, and
//! ends in the next paged unit, or where memory in use follows. The unit that it begins in is then
//! *open*, and in the list for the gap's length in pages. A new block takes a gap of the shortest
//! length that holds it.
//!
//! A gap that grows changes its list at once. One from which units were taken stays in the old
//! list until a search finds it there.

use super::Pages;
use crate::backend::run::RunState;
use crate::backend::tuning::MEDIUM_BYTES_MAX;
use crate::backend::units::UnitIndex;
use crate::platform::os::Os;
use crate::size_class::UNIT;

/// The number of lists. The last is for gaps of this many pages or more: the least pages have 4
/// KiB, so that they hold each medium block.
const LISTS: usize = (MEDIUM_BYTES_MAX + 1) / 4096;

/// Open units in lists, by the pages in the gap that begins in each.
pub(super) struct Gaps {
    /// The first unit of the list for gaps of one page more than the index; 0 for none.
    first: [UnitIndex; LISTS],
    /// A bit for each list that is not empty.
    filled: u128,
    /// The page after the medium block that was freed last.
    pub last_freed_end: usize,
}

impl Gaps {
    pub const fn new() -> Self {
        const { assert!(LISTS == u128::BITS as usize) };
        Self { first: [0; LISTS], filled: 0, last_freed_end: 0 }
    }

    /// The first unit of the list for the shortest gaps of at least `pages` pages, and their
    /// length.
    pub fn shortest(&self, pages: usize) -> Option<(UnitIndex, usize)> {
        let filled = self.filled.checked_shr(pages as u32 - 1)?;
        let list = pages - 1 + filled.trailing_zeros() as usize;
        (filled != 0).then(|| (self.first[list], list + 1))
    }
}

impl<O: Os> Pages<'_, O> {
    /// OS pages in a unit, at most 16.
    pub(super) fn unit_pages(&self) -> usize {
        UNIT / self.os.page_size()
    }

    pub(super) fn is_paged(&self, unit: UnitIndex) -> bool {
        unit < self.heap.frontier && self.region.entry(unit as usize).is_paged()
    }

    /// The pages in use of a paged unit, a bit each; 0 for other units.
    pub(super) fn used(&self, unit: UnitIndex) -> u16 {
        // SAFETY: a paged unit is committed, and the lock guards its record.
        if self.is_paged(unit) { unsafe { (*self.region.run(unit)).asked_high } } else { 0 }
    }

    /// Puts a paged unit in the list for the gap that begins in it, if a block may lie there.
    pub(super) fn list_gap(&mut self, unit: UnitIndex) {
        self.unlist_gap(unit);
        let gap = self.gap_behind(unit);
        if gap <= self.unit_pages() {
            return;
        }
        let run = self.region.run(unit);
        let next = self.heap.gaps.first[gap - 1];
        // SAFETY: paged units are committed, and the lock guards their records. Owners of blocks
        // may read sizes meanwhile, but no block begins in a unit with a gap behind its last page.
        unsafe {
            (*run).flags = (*run).flags.with_open(true);
            ((*run).left, (*run).right) = (gap as u32, next);
            if next != 0 {
                (*self.region.run(next)).left = unit;
            }
        }
        self.heap.gaps.first[gap - 1] = unit;
        self.heap.gaps.filled |= 1 << (gap - 1);
    }

    /// Takes a paged unit out of its list, if it is in one.
    pub(super) fn unlist_gap(&mut self, unit: UnitIndex) {
        let (run, gaps) = (self.region.run(unit), &mut self.heap.gaps);
        // SAFETY: as in `list_gap`.
        unsafe {
            if !(*run).flags.open() {
                return;
            }
            (*run).flags = (*run).flags.with_open(false);
            // The first unit of a list has the list's length in place of a unit before it.
            let (before, after) = ((*run).left, (*run).right);
            match gaps.first.get_mut((before as usize).wrapping_sub(1)) {
                Some(first) if *first == unit => {
                    *first = after;
                    gaps.filled &= !(((after == 0) as u128) << (before - 1));
                }
                _ => (*self.region.run(before)).right = after,
            }
            if after != 0 {
                (*self.region.run(after)).left = before;
            }
        }
    }

    /// Lists the gap again that reaches up to this unit, which just became free from its beginning.
    pub(super) fn list_gap_before(&mut self, unit: UnitIndex) {
        let mut at = unit;
        // A longer gap is in the last list.
        while at > 1 && (unit - at) as usize * self.unit_pages() < LISTS {
            if self.is_paged(at - 1) {
                return self.list_gap(at - 1);
            }
            // SAFETY: the unit before is below the frontier, hence committed, and a run ends there.
            let run = unsafe { *self.region.run(at - 1) };
            if matches!(run.state, RunState::InUse | RunState::Foreign) {
                return;
            }
            at -= run.units;
        }
    }

    /// The gap to try after that of an open unit in the list of gaps of `listed` pages.
    pub(super) fn next_gap(&self, unit: UnitIndex, listed: usize) -> Option<(UnitIndex, usize)> {
        // SAFETY: an open unit is in use, hence committed. The lock guards its record.
        match unsafe { (*self.region.run(unit)).right } {
            0 => self.heap.gaps.shortest(listed + 1),
            next => Some((next, listed)),
        }
    }

    /// Pages in the gap behind the pages in use of a paged unit; of a long gap, as many as the last
    /// list says.
    pub(super) fn gap_behind(&self, unit: UnitIndex) -> usize {
        self.gap_at(self.end_of_used(unit), unit, LISTS, true).min(LISTS)
    }

    /// The page after the last one in use of a paged unit.
    pub(super) fn end_of_used(&self, unit: UnitIndex) -> usize {
        let used_bits = u16::BITS - self.used(unit).leading_zeros();
        unit as usize * self.unit_pages() + used_bits as usize
    }

    /// Pages in the gap from `begin` on, which is at the end of a paged unit's pages in use; of a
    /// gap of at least `enough`, some of them. Unless there may be growth, only resident ones.
    pub(super) fn gap_at(
        &self,
        begin: usize,
        unit: UnitIndex,
        enough: usize,
        may_grow: bool,
    ) -> usize {
        let pages_before = |unit: UnitIndex| unit as usize * self.unit_pages() - begin;
        let mut next = unit + 1;
        while next < self.heap.frontier && pages_before(next) < enough {
            if self.is_paged(next) {
                return pages_before(next) + self.used(next).trailing_zeros() as usize;
            }
            // SAFETY: the unit is below the frontier, hence committed, and a run begins there.
            let run = unsafe { *self.region.run(next) };
            match run.state {
                RunState::Dirty => {}
                RunState::Clean | RunState::Unmapped if may_grow => {}
                _ => return pages_before(next),
            }
            next += run.units;
        }
        if next < self.heap.frontier || may_grow { enough } else { pages_before(next) }
    }

    /// Panics if an open unit is in no list, or in one of shorter gaps. Returns how many there are.
    pub(super) fn check_gaps(&self) -> usize {
        let mut open = 0;
        for (nth, &first) in self.heap.gaps.first.iter().enumerate() {
            let is_filled = self.heap.gaps.filled >> nth & 1 != 0;
            assert_eq!(first != 0, is_filled, "list {nth} of gaps");
            let (mut before, mut unit) = (nth as u32 + 1, first);
            while unit != 0 {
                // SAFETY: an open unit is in use, hence committed.
                let run = unsafe { *self.region.run(unit) };
                let is_listed = self.is_paged(unit) && run.flags.open() && run.left == before;
                assert!(is_listed, "open unit {unit}: {run:?}");
                let gap = self.gap_behind(unit);
                assert!(gap <= nth + 1, "{gap} pages in list {nth}, from {unit} on");
                (before, unit, open) = (unit, run.right, open + 1);
            }
        }
        open
    }

    /// Panics if a gap begins in this paged unit in which a block may lie, and it is not open.
    pub(super) fn check_is_open(&self, unit: UnitIndex, is_open: bool) {
        let gap = self.gap_behind(unit);
        assert!(is_open || gap * self.os.page_size() <= UNIT, "{gap} pages behind unit {unit}");
    }
}
