//! Resizes runs in use, in place or by moving their pages.

use super::{Granted, Pages};
use crate::backend::tuning::UNMAPPED_RUNS_MAX;
use crate::backend::units::{UnitRange, Units};
use crate::platform::os::Os;

impl<O: Os> Pages<'_, O> {
    /// Extends a run in use to `longer` units if the memory after it is free. It may be dirty,
    /// clean, unmapped or beyond the frontier, also in sequence.
    pub fn extend(&mut self, run: UnitRange, longer: Units) -> bool {
        let (Some(all), Some(more)) = (run.resized(longer), longer.minus(run.length())) else {
            return false;
        };
        let (next, end, more) = (run.end(), all.end(), more.get());
        if end as usize > self.region.units() {
            return false;
        }
        let Some(dirty) = self.count_dirty_if_free(next, end) else {
            return false;
        };
        if dirty < more && !self.admit(more) {
            return false;
        }
        let taken = self.take_free_units(next, end);
        if taken {
            self.mark_in_use(run.first(), longer.get());
            self.count_use(more);
            self.purge_after_growth(more - dirty);
        }
        taken
    }

    /// Frees the end of a run, if it is longer than `keep` units.
    pub fn shrink(&mut self, run: UnitRange, keep: Units) {
        if let Some(tail) = run.behind(keep) {
            self.mark_in_use(run.first(), keep.get());
            self.free(tail.first(), tail.length().get());
        }
    }

    /// As [`Pages::alloc`], for a run that the pages of `run` will move to. Takes only memory
    /// that is not resident. Returns `None` where a resident run would do: copying into that is
    /// faster than purging both.
    pub fn alloc_to_move(&mut self, run: UnitRange, units: Units, align: Units) -> Option<Granted> {
        if !self.could_hold(units, align)
            || self.heap.counts.unmapped_runs >= UNMAPPED_RUNS_MAX
            || !self.heap.mappings.may_move(self.region, run.first()..run.end())
            || self.heap.dirty.best_fit(self.region, units.get()).is_some()
        {
            return None;
        }
        let from = run.length().get();
        // The limit is for pages, and those of `run` only move.
        self.heap.counts.in_use -= from as usize;
        let granted = self.take(units, align);
        self.heap.counts.in_use += from as usize;
        let granted = granted?;
        self.count_use(units.get());
        Some(granted)
    }
}
