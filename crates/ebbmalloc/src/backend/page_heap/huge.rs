//! Backs new memory by huge pages, where they pay and where the program writes all of it.
//!
//! For a short run the heap grows by a whole huge page first. Long blocks get huge pages of their
//! own.

use core::ops::Range;

use super::Pages;
use crate::backend::huge_pages::{self, HUGE_BYTES, Touch};
use crate::backend::region::Region;
use crate::backend::retention::PageCounts;
use crate::backend::run::RunState;
use crate::backend::run_tree::RunTree;
use crate::backend::tuning::{CLEAN_UNITS_KEPT, HUGE_UNITS};
use crate::backend::units::{UnitIndex, Units};
use crate::platform::os::Os;

impl<O: Os> Pages<'_, O> {
    /// If the heap must grow for a run for blocks of this length, and the program writes them
    /// whole: makes the run's surroundings resident by a huge page, if that seems to pay. Returns
    /// how much of the run the program will touch, and how many units became resident.
    pub(super) fn grow_by_huge_page(&mut self, block_bytes: usize, units: Units) -> (Touch, u32) {
        let is_due = self.may_grow_by_huge_page(units);
        if is_due {
            self.heap.written.probe(self.region, self.os, block_bytes);
        }
        let touch = self.heap.written.expected(self.os, block_bytes);
        if !is_due || touch == Touch::Unknown || units.get() > HUGE_UNITS {
            return (touch, 0);
        }
        let Some(first) = self.take_for_huge_page() else {
            self.heap.huge.back_off();
            return (touch, 0);
        };
        // SAFETY: the units are committed and clean, and no thread uses them.
        let took_ns = unsafe { self.os.back_by_huge_page(self.region.address(first), HUGE_BYTES) };
        self.record_backed(first, took_ns);
        if took_ns.is_none() {
            self.insert(first, HUGE_UNITS, RunState::Clean);
            return (touch, 0);
        }
        self.count_refaulted(HUGE_UNITS);
        self.insert(first, HUGE_UNITS, RunState::Dirty);
        self.heap.huge.untouched = first..first + HUGE_UNITS;
        (touch, HUGE_UNITS)
    }

    /// Whether the heap may grow by a huge page for a run that it has no resident memory for.
    fn may_grow_by_huge_page(&mut self, units: Units) -> bool {
        let PageCounts { in_use, dirty, .. } = self.heap.counts;
        let dirty = dirty + HUGE_UNITS as usize;
        self.heap.huge.are_wanted(in_use)
            && in_use + dirty.max(units.get() as usize) <= self.resident_units_max()
            && dirty <= self.heap.retention.spare_units(in_use)
            && self.heap.dirty.best_fit(self.region, units.get()).is_none()
            && self.heap.huge.take_due(|| self.os.now_ms(), in_use)
    }

    /// Records that these units are handed out to a block of this length, or to a span of them.
    /// Blocks in memory that was used before tell nothing: it holds data.
    pub(super) fn record_block(&mut self, bytes: usize, units: Range<UnitIndex>, zeroed: bool) {
        if zeroed || self.heap.huge.were_untouched(&units) {
            self.heap.written.record(bytes, units);
        }
    }

    /// The first place in these clean units of a new block of `bytes` bytes that a huge page should
    /// back now.
    pub fn next_place(&mut self, bytes: usize, units: Range<UnitIndex>) -> Option<UnitIndex> {
        let PageCounts { in_use, dirty, .. } = self.heap.counts;
        let first = self.region.align_unit(units.start, HUGE_UNITS)?;
        let is_due = first + HUGE_UNITS <= units.end
            && self.heap.written.expected(self.os, bytes) == Touch::Whole
            && dirty + HUGE_UNITS as usize <= self.heap.retention.spare_units(in_use)
            && self.heap.huge.take_due(|| self.os.now_ms(), in_use);
        is_due.then_some(first)
    }

    /// Records what came of the request to back a place of [`Pages::next_place`]: the time that it
    /// took, or that the kernel refused.
    pub fn record_backed(&mut self, first: UnitIndex, took_ns: Option<u64>) {
        self.heap.huge.record(took_ns);
        huge_pages::mark(self.region, &mut self.heap.counts, first, took_ns.is_some());
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
