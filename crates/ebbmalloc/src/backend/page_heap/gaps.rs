//! Finds gaps of free pages for medium blocks.
//!
//! A gap begins behind the last page in use of a paged unit, may continue through free units, and
//! ends in the next paged unit, or where memory in use follows; at the end of the heap it has no
//! end. If a block can lie in it, that unit is *open*: in the list for the gap's length in pages. A
//! new block takes a gap of the shortest length that holds it.
//!
//! A gap that grows changes its list at once. One from which units were taken stays in the list for
//! longer ones until a search finds it there, or a block next to it comes or goes.

use super::Pages;
use crate::backend::gap_lists::GapLists;
use crate::backend::run::RunState;
use crate::backend::units::UnitIndex;
use crate::platform::os::Os;
use crate::size_class::UNIT;

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
        if gap > self.unit_pages() {
            self.heap.gaps.insert(self.region, unit, gap);
        }
    }

    /// Takes a paged unit out of its list, if it is in one.
    pub(super) fn unlist_gap(&mut self, unit: UnitIndex) {
        self.heap.gaps.remove(self.region, unit);
    }

    /// Lists the gap again that reaches up to this unit, which just became free from its beginning.
    pub(super) fn list_gap_before(&mut self, unit: UnitIndex) {
        let mut at = unit;
        // A longer gap is in the last list.
        while at > 1 && (unit - at) as usize * self.unit_pages() < GapLists::PAGES_MAX {
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

    /// Pages in the gap behind the pages in use of a paged unit; of a long gap, as many as the last
    /// list says.
    pub(super) fn gap_behind(&self, unit: UnitIndex) -> usize {
        self.gap_at(self.end_of_used(unit), unit, GapLists::PAGES_MAX, true)
            .min(GapLists::PAGES_MAX)
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

    /// Panics if a list is damaged, or has a longer gap. Returns how many units are in lists.
    pub(super) fn check_gaps(&self) -> usize {
        let mut open = 0;
        self.heap.gaps.check(self.region, |unit, listed| {
            let gap = self.gap_behind(unit);
            assert!(self.is_paged(unit) && gap <= listed, "{gap} pages, {listed} listed: {unit}");
            open += 1;
        });
        open
    }

    /// Panics if a gap begins in this paged unit in which a block may lie, and it is not open.
    pub(super) fn check_is_open(&self, unit: UnitIndex, is_open: bool) {
        let gap = self.gap_behind(unit);
        assert!(is_open || gap <= self.unit_pages(), "{gap} pages behind unit {unit}");
    }
}
