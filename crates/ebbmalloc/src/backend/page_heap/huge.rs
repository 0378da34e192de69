//! Backs new memory by huge pages, where they pay and where the program writes all of it.
//!
//! Short runs come from a huge page by which the heap grows before. A long block's own memory may
//! become huge pages as the program writes it.

use core::ops::Range;

use super::Pages;
use crate::backend::huge_pages::{self, Touch};
use crate::backend::region::Region;
use crate::backend::retention::PageCounts;
use crate::backend::run::RunState;
use crate::backend::run_tree::RunTree;
use crate::backend::tuning::{ALLOWED_BLOCKS_MAX, CLEAN_UNITS_KEPT, HUGE_UNITS};
use crate::backend::units::{UnitIndex, Units};
use crate::backend::written::Found;
use crate::platform::os::Os;
use crate::size_class::UNIT;

/// What the program expects in a new block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Contents {
    /// Nothing, so it writes what it reads later.
    Any,
    /// Zeros, so it may leave much as it is.
    Zeros,
}

impl<O: Os> Pages<'_, O> {
    /// If the heap must grow for a run for blocks of this length, and the program writes them
    /// whole: makes the run's surroundings resident by a huge page, if that seems to pay. Returns
    /// how much of the run the program will touch, and how many units became resident.
    pub(super) fn grow_by_huge_page(&mut self, block_bytes: usize, units: Units) -> (Touch, u32) {
        if !self.may_grow_by_huge_page(units) {
            return (self.heap.written.expected(block_bytes), 0);
        }
        self.heap.written.probe(self.region, self.os, block_bytes);
        let touch = self.heap.written.expected(block_bytes);
        if touch == Touch::Unknown {
            return (touch, 0);
        }
        let Some(first) = self.take_for_huge_page() else {
            self.heap.huge.back_off();
            return (touch, 0);
        };
        let heap = &mut *self.heap;
        if !heap.huge.back(self.region, self.os, &mut heap.counts, first) {
            self.insert(first, HUGE_UNITS, RunState::Clean);
            return (touch, 0);
        }
        self.insert(first, HUGE_UNITS, RunState::Dirty);
        self.heap.huge.untouched = first..first + HUGE_UNITS;
        (touch, HUGE_UNITS)
    }

    /// Whether the heap may grow by a huge page for a run that it has no resident memory for.
    fn may_grow_by_huge_page(&mut self, units: Units) -> bool {
        let PageCounts { in_use, dirty, .. } = self.heap.counts;
        let dirty = dirty + HUGE_UNITS as usize;
        units.get() <= HUGE_UNITS
            && self.heap.huge.are_wanted(in_use)
            && in_use + dirty <= self.resident_units_max()
            && dirty <= self.heap.retention.spare_units(in_use)
            && self.heap.dirty.best_fit(self.region, units.get()).is_none()
            && self.heap.huge.take_due(|| self.os.now_ms(), in_use)
    }

    /// Whether the program writes blocks of this length whole. Probes some if the heap may grow by
    /// a huge page for a run of this length.
    pub(super) fn are_written_whole(&mut self, block_bytes: usize, units: Units) -> bool {
        let expected = self.heap.written.expected(block_bytes);
        if expected == Touch::Unknown && self.may_grow_by_huge_page(units) {
            self.heap.written.probe(self.region, self.os, block_bytes);
        }
        self.heap.written.expected(block_bytes) == Touch::Whole
    }

    /// Allows huge pages in a new long block, if they seem to pay: in these units, which are clean
    /// and begin its run. They become resident as the program writes to them; the first at once,
    /// which measures what they take, unless blocks of this length had no data.
    ///
    /// Not where the program expects zeros, nor after a block with data in a few pages only: it
    /// would become resident whole. Probes decide as for short blocks.
    pub fn allow_huge_pages(&mut self, units: Range<UnitIndex>, bytes: usize, contents: Contents) {
        let in_use = self.heap.counts.in_use;
        let mut first = self.region.align_unit(units.start, HUGE_UNITS).unwrap_or(units.end);
        let end = self.region.align_unit((units.end + 1).saturating_sub(HUGE_UNITS), HUGE_UNITS);
        let end = end.unwrap_or(first);
        if first + HUGE_UNITS >= end
            || self.heap.huge.allowed_blocks >= ALLOWED_BLOCKS_MAX
            || !self.heap.huge.take_due(|| self.os.now_ms(), in_use)
        {
            return;
        }
        self.heap.written.probe(self.region, self.os, bytes);
        let found = self.heap.written.found(bytes);
        if found == Found::Few || contents == Contents::Zeros && found != Found::Most {
            return;
        }
        let heap = &mut *self.heap;
        if found != Found::Nothing {
            let is_backed = heap.huge.back(self.region, self.os, &mut heap.counts, first);
            if !is_backed || !heap.huge.take_due(|| self.os.now_ms(), in_use) {
                return;
            }
            first += HUGE_UNITS;
        }
        let bytes = (end - first) as usize * UNIT;
        // SAFETY: the run is new, so these units are committed.
        if unsafe { self.os.allow_huge_pages(self.region.address(first), bytes) } {
            huge_pages::record_allowed(self.region, &mut heap.counts, first..end);
            self.set_allowed(units.start, true);
        }
    }

    /// Forbids huge pages in a run where [`Pages::allow_huge_pages`] allowed them: before it is
    /// freed, resized or moved, as then the mappings of the region must be those that it knows.
    pub fn forbid_huge_pages(&mut self, first: UnitIndex) {
        // SAFETY: the run is in use, so its record is committed and current. The lock guards it.
        let (flags, units) =
            unsafe { ((*self.region.run(first)).flags, (*self.region.run(first)).units) };
        if flags.allowed() {
            self.set_allowed(first, false);
            // SAFETY: as the run is in use, its units are committed.
            unsafe { self.os.forbid_huge_pages(self.region.address(first), units as usize * UNIT) };
        }
    }

    fn set_allowed(&mut self, first: UnitIndex, allowed: bool) {
        let run = self.region.run(first);
        // SAFETY: as in `forbid_huge_pages`.
        unsafe { (*run).flags = (*run).flags.with_allowed(allowed) };
        let blocks = &mut self.heap.huge.allowed_blocks;
        *blocks = if allowed { *blocks + 1 } else { *blocks - 1 };
    }

    /// Takes a free run of the length and alignment of a huge page that is not resident.
    fn take_for_huge_page(&mut self) -> Option<UnitIndex> {
        let length = Units::new(HUGE_UNITS)?;
        if let Some(run) = run_with_place(self.region, &self.heap.clean) {
            return Some(self.cut(run, run, length, HUGE_UNITS)?.first);
        }
        if let Some(run) = run_with_place(self.region, &self.heap.unmapped) {
            let first = self.region.align_unit(run, HUGE_UNITS)?;
            let run = self.map_again(run, first, first + HUGE_UNITS).ok()?;
            return Some(self.cut(run, run, length, HUGE_UNITS)?.first);
        }
        // Much free memory in short runs is filled first: else it would never be used.
        if self.heap.counts.clean + self.heap.counts.unmapped > CLEAN_UNITS_KEPT {
            return None;
        }
        self.take_at_frontier(length, HUGE_UNITS)
    }
}

/// A free run in which there is a place for a huge page: the shortest run of that length, if it has
/// one, as where a huge page was purged; else one that is sure to have it.
fn run_with_place(region: &Region, runs: &RunTree) -> Option<UnitIndex> {
    [HUGE_UNITS, 2 * HUGE_UNITS - 1].into_iter().find_map(|units| {
        let run = runs.best_fit(region, units)?;
        // SAFETY: the run is in a tree, so its record is current.
        let end = run + unsafe { (*region.run(run)).units };
        let first = region.align_unit(run, HUGE_UNITS)?;
        (first + HUGE_UNITS <= end).then_some(run)
    })
}
