//! Backs new memory by huge pages, where they pay, and where the program touches all of it.

use super::Pages;
use crate::backend::huge_pages::{self, HUGE_BYTES};
use crate::backend::region::Region;
use crate::backend::retention::PageCounts;
use crate::backend::run::RunState;
use crate::backend::run_tree::RunTree;
use crate::backend::tuning::{CLEAN_UNITS_KEPT, HUGE_UNITS};
use crate::backend::units::{UnitIndex, Units};
use crate::platform::os::Os;

impl<O: Os> Pages<'_, O> {
    /// If the heap must grow for a run that is soon touched whole: makes the run's surroundings
    /// resident by a huge page, if that seems to pay. Returns how many units became resident.
    pub(super) fn grow_by_huge_page(&mut self, units: Units) -> u32 {
        let PageCounts { in_use, dirty, .. } = self.heap.counts;
        let dirty = dirty + HUGE_UNITS as usize;
        if !self.heap.huge.are_wanted(in_use)
            || in_use + dirty > self.resident_units_max()
            || dirty > self.heap.retention.spare_units(in_use)
            || self.heap.dirty.best_fit(self.region, units.get()).is_some()
            || !self.heap.huge.take_due(|| self.os.now_ms())
        {
            return 0;
        }
        let frontier = self.heap.frontier;
        let Some(first) = self.take_for_huge_page() else {
            self.heap.huge.back_off();
            return 0;
        };
        // SAFETY: the units are committed and clean, and no thread uses them.
        let took_ns = unsafe { self.os.back_by_huge_page(self.region.address(first), HUGE_BYTES) };
        self.heap.huge.record(took_ns);
        if took_ns.is_none() {
            self.insert(first, HUGE_UNITS, RunState::Clean);
            return 0;
        }
        huge_pages::mark(self.region, &mut self.heap.counts, first, true);
        if first < frontier {
            self.count_refaulted(HUGE_UNITS);
        }
        self.insert(first, HUGE_UNITS, RunState::Dirty);
        self.heap.huge.untouched = first..first + HUGE_UNITS;
        HUGE_UNITS
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
