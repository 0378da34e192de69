//! Resizes runs in use, in place or by moving their pages.

use super::{Granted, PageHeap};
use crate::backend::huge_pages::Touch;
use crate::backend::region::Region;
use crate::backend::tuning::UNMAPPED_RUNS_MAX;
use crate::backend::units::{UnitRange, Units};
use crate::platform::os::Os;

impl PageHeap {
    /// Extends a run in use to `longer` units if the memory after it is free. It may be dirty,
    /// clean, unmapped or beyond the frontier, also in sequence.
    pub fn extend(&mut self, region: &Region, os: &impl Os, run: UnitRange, longer: Units) -> bool {
        let (Some(all), Some(more)) = (run.resized(longer), longer.minus(run.length())) else {
            return false;
        };
        let (next, end, more) = (run.end(), all.end(), more.get());
        if end as usize > region.units() {
            return false;
        }
        let Some(dirty) = self.count_dirty_if_free(region, next, end) else {
            return false;
        };
        if dirty < more && !self.admit(region, os, more) {
            return false;
        }
        let taken = self.take_free_units(region, os, next, end);
        if taken {
            self.mark_in_use(region, run.first(), longer.get());
            self.count_use(more);
            self.purge_after_growth(region, os, more - dirty);
        }
        taken
    }

    /// Frees the end of a run, if it is longer than `keep` units.
    pub fn shrink(&mut self, region: &Region, os: &impl Os, run: UnitRange, keep: Units) {
        if let Some(tail) = run.behind(keep) {
            self.mark_in_use(region, run.first(), keep.get());
            self.free(region, os, tail.first(), tail.length().get());
        }
    }

    /// As [`PageHeap::alloc`], for a run that the pages of `run` will move to. Takes only memory
    /// that is not resident. Returns `None` where a resident run would do: copying into that is
    /// faster than purging both.
    pub fn alloc_to_move(
        &mut self,
        region: &Region,
        os: &impl Os,
        run: UnitRange,
        units: Units,
        align: Units,
    ) -> Option<Granted> {
        if !self.could_hold(region, units, align)
            || self.counts.unmapped_runs >= UNMAPPED_RUNS_MAX
            || !self.mappings.may_move(region, run.first()..run.end())
            || self.best_dirty(Touch::Unknown, region, units.get()).is_some()
        {
            return None;
        }
        let from = run.length().get();
        // The limit is for pages, and those of `run` only move.
        self.counts.in_use -= from as usize;
        let granted = self.take(Touch::Unknown, region, os, units, align);
        self.counts.in_use += from as usize;
        let granted = granted?;
        self.count_use(units.get());
        Some(granted)
    }
}
