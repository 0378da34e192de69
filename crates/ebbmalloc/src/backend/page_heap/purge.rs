//! Purges free runs when too much free memory is resident, and unmaps some.
//!
//! Runs that the program had no use for go first. The longest run would take the fewest calls, but
//! is the most useful: where large blocks leave gaps, it was freed a moment ago, and the gaps would
//! stay.

use super::Pages;
use crate::backend::huge_pages::part_to_purge;
use crate::backend::run::RunState;
use crate::backend::tuning::{
    CLEAN_UNITS_KEPT, OLD_RUNS_MAX, REFUSED_PURGES_MAX, UNMAP_UNITS_MIN, UNMAPPED_RUNS_MAX,
};
use crate::backend::units::UnitIndex;
use crate::platform::os::Os;
use crate::size_class::UNIT;

impl<O: Os> Pages<'_, O> {
    /// Purges free memory, if too much is resident now that `units` units became so.
    pub(super) fn purge_after_growth(&mut self, units: u32) {
        let heap = &mut *self.heap;
        if units > 0
            && let Some(keep) = heap.retention.after_growth(&heap.counts, units)
        {
            self.purge(keep);
        }
    }

    /// Purges free memory, if too much is resident for too long after a free.
    pub(super) fn purge_after_free(&mut self) {
        let heap = &mut *self.heap;
        if let Some(keep) = heap.retention.after_free(self.os, &heap.counts) {
            self.purge(keep);
        }
    }

    /// Purges free memory, after free pages of spans were purged because the program may do nothing
    /// more.
    pub fn purge_after_burst(&mut self) {
        let heap = &mut *self.heap;
        let keep = heap.retention.after_burst(self.os.now_ms(), &heap.counts);
        self.purge(keep);
    }

    /// Purges dirty runs until at most `keep` units are dirty: old ones first, up to a number, then
    /// the longest. Of a run with huge pages whole ones go. Leaves out runs that the kernel refuses
    /// to purge, up to a number; these then count as new.
    #[inline(never)]
    pub fn purge(&mut self, keep: usize) {
        let mut refused = [(0, 0); REFUSED_PURGES_MAX];
        let (mut refusals, mut refused_units) = (0, 0);
        // Each takes a call, and look-ups under the lock. If all go, the order does not matter.
        let mut old_left = if keep > 0 { OLD_RUNS_MAX } else { 0 };
        while self.heap.counts.dirty + refused_units > keep && refusals < REFUSED_PURGES_MAX {
            let old = if old_left > 0 { self.longest_old() } else { None };
            old_left = if old.is_some() { old_left - 1 } else { 0 };
            let Some((first, units)) = old.or_else(|| self.heap.dirty.longest(self.region)) else {
                break;
            };
            let excess = self.heap.counts.dirty + refused_units - keep;
            let excess = excess.min(units as usize) as u32;
            let range = part_to_purge(self.region, &self.heap.counts, first..first + units, excess);
            let (start, excess) = (range.start, range.end - range.start);
            self.carve(first, range.clone());
            // Where pages have moved, unmap instead of purging. So the number of such mappings
            // follows the number of live blocks.
            // SAFETY: the run is free and out of the trees, so no thread uses it.
            let unmapped = self.heap.counts.unmapped_runs < UNMAPPED_RUNS_MAX
                && self.heap.mappings.has_moved(self.region, range.clone())
                && unsafe { self.region.unmap(self.os, start, excess) };
            // SAFETY: the run is free and out of the trees, so no thread uses it.
            if !unmapped
                && !unsafe { self.os.purge(self.region.address(start), excess as usize * UNIT) }
            {
                // Kernels before Linux 5.18 refuse it for locked memory, all where the program
                // unmapped a part. Other runs may go, so the whole run leaves the tree until then.
                let first = self.insert(start, excess, RunState::Dirty);
                self.carve(first, first..first + units);
                refused[refusals] = (first, units);
                (refusals, refused_units) = (refusals + 1, refused_units + units as usize);
                continue;
            }
            self.region.purge_spans(self.os, start, excess);
            self.break_in(range.clone());
            self.heap.counts.purged += excess as usize;
            self.heap.counts.purges += 1;
            self.heap.retention.count_purged(self.os.now_ms(), excess);
            if unmapped {
                self.record_mapping(range, false);
            }
            let state = if unmapped { RunState::Unmapped } else { RunState::Clean };
            self.insert(start, excess, state);
        }
        for &(first, units) in &refused[..refusals] {
            self.insert(first, units, RunState::Dirty);
        }
        let heap = &mut *self.heap;
        heap.retention.record_counts(&heap.counts);
        self.unmap_surplus();
    }

    /// The longest dirty run that is old, among some of the longest.
    fn longest_old(&self) -> Option<(UnitIndex, u32)> {
        let (mut at, _) = self.heap.dirty.longest(self.region)?;
        for _ in 0..OLD_RUNS_MAX {
            // SAFETY: the run is in a tree, so its record is current.
            let run = unsafe { *self.region.run(at) };
            if self.heap.is_old(run.freed_at()) {
                return Some((at, run.units));
            }
            at = self.heap.dirty.before(self.region, at)?;
        }
        None
    }

    /// Unmaps clean runs if more than [`CLEAN_UNITS_KEPT`] units are clean.
    pub(super) fn unmap_surplus(&mut self) {
        if self.heap.counts.clean > CLEAN_UNITS_KEPT {
            self.unmap(CLEAN_UNITS_KEPT / 2);
        }
    }

    /// Unmaps clean runs, longest first, until at most `keep` units are clean or the longest run is
    /// too short. If `keep` is 0, no run is: memory is short, and neighbours must join.
    #[inline(never)]
    fn unmap(&mut self, keep: usize) {
        while self.heap.counts.clean > keep && self.heap.counts.unmapped_runs < UNMAPPED_RUNS_MAX {
            let Some((first, units)) = self.heap.clean.longest(self.region) else {
                break;
            };
            let excess = (self.heap.counts.clean - keep).min(units as usize) as u32;
            let excess = if keep == 0 { units } else { excess.max(UNMAP_UNITS_MIN) };
            if excess > units {
                break;
            }
            let start = first + (units - excess);
            self.carve(first, start..start + excess);
            // SAFETY: the run is free and out of the trees, so no thread uses it.
            if !unsafe { self.region.unmap(self.os, start, excess) } {
                self.insert(start, excess, RunState::Clean);
                break;
            }
            self.record_mapping(start..start + excess, false);
            self.insert(start, excess, RunState::Unmapped);
        }
    }

    /// Purges and unmaps all free memory, as far as the kernel lets. Dirty and clean neighbours
    /// join then. And free address space may be what a limit of the process lacks.
    pub fn make_room(&mut self) {
        self.purge(0);
        self.unmap(0);
    }
}
