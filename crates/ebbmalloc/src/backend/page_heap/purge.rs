//! Frees runs, purges and unmaps free ones, and maps them again.

use super::Pages;
use crate::backend::huge_pages;
use crate::backend::run::RunState;
use crate::backend::tuning::{CLEAN_UNITS_KEPT, UNMAP_UNITS_MIN, UNMAPPED_RUNS_MAX};
use crate::backend::units::UnitIndex;
use crate::platform::os::{Os, Refusal};
use crate::size_class::UNIT;

impl<O: Os> Pages<'_, O> {
    /// Purges and unmaps all free memory, as far as the kernel lets. Dirty and clean neighbours
    /// join then. And free address space may be what a limit of the process lacks.
    pub fn make_room(&mut self) {
        self.purge(0);
        self.unmap(0);
    }

    /// Purges free memory, if too much is resident now that `units` units became so.
    pub(super) fn purge_after_growth(&mut self, units: u32) {
        let heap = &mut *self.heap;
        if units > 0
            && let Some(keep) = heap.retention.after_growth(&heap.counts, units)
        {
            self.purge(keep);
        }
    }

    /// Frees a run that is not resident, as clean or unmapped. `was_purged`: it was resident until
    /// a moment ago.
    pub fn free_as(&mut self, first: UnitIndex, units: u32, state: RunState, was_purged: bool) {
        self.clear_note(first);
        huge_pages::break_in(self.region, &mut self.heap.counts, first..first + units);
        self.heap.counts.in_use -= units as usize;
        if was_purged {
            self.heap.retention.refaults.count_purged(self.os.now_ms(), units);
        }
        self.insert(first, units, state);
        self.unmap_surplus();
    }

    /// Makes a guarded run accessible again, as [`Guards::remove`] does. If that fails, frees the
    /// run as unmapped, or gives it up, and returns false.
    ///
    /// # Safety
    /// As for [`Guards::remove`].
    ///
    /// [`Guards::remove`]: crate::backend::guard_pages::Guards::remove
    pub unsafe fn unguard(
        &mut self,
        (first, units): (UnitIndex, u32),
        usable_bytes: usize,
        decommitted: bool,
    ) -> bool {
        let (region, os, run) = (self.region, self.os, (first, units));
        // SAFETY: the caller guarantees the same.
        let removed =
            unsafe { self.heap.guards.remove(region, os, run, usable_bytes, decommitted) };
        match removed {
            Ok(()) => {}
            Err(Refusal::Memory) => {
                self.record_mapping(first..first + units, false);
                self.free_as(first, units, RunState::Unmapped, true);
            }
            Err(Refusal::Addresses) => self.lose(first, units),
        }
        removed.is_ok()
    }

    /// Frees a run, and purges if too much free memory is resident for too long.
    #[inline(never)]
    pub fn free(&mut self, first: UnitIndex, units: u32) {
        self.clear_note(first);
        self.heap.counts.in_use -= units as usize;
        self.insert(first, units, RunState::Dirty);
        let heap = &mut *self.heap;
        if let Some(keep) = heap.retention.after_free(self.os, &heap.counts) {
            self.purge(keep);
        }
    }

    /// Purges dirty runs, longest first, until at most `keep` units are dirty.
    #[inline(never)]
    pub fn purge(&mut self, keep: usize) {
        while self.heap.counts.dirty > keep {
            let Some((first, units)) = self.heap.dirty.longest(self.region) else {
                break;
            };
            let excess = (self.heap.counts.dirty - keep).min(units as usize) as u32;
            let range = self.heap.huge.part_to_purge(self.region, first..first + units, excess);
            let (start, excess) = (range.start, range.end - range.start);
            self.carve(first, range.clone());
            let may_unmap = self.heap.counts.unmapped_runs < UNMAPPED_RUNS_MAX;
            let has_moved = self.heap.mappings.has_moved(self.region, range.clone());
            let (region, os) = (self.region, self.os);
            // SAFETY: the run is free and out of the trees, so no thread uses it.
            let unmap = || may_unmap && unsafe { region.unmap(os, start, excess) };
            // SAFETY: the same.
            let purge = || unsafe { os.purge(region.address(start), excess as usize * UNIT) };
            // Where pages have moved, unmap instead of purging. So the number of such mappings
            // follows the number of live blocks. Unmap also where the kernel refuses to purge: as
            // some kernels do if memory is locked, and all if the program unmapped a part of it.
            let state = if has_moved && unmap() {
                RunState::Unmapped
            } else if purge() {
                RunState::Clean
            } else if unmap() {
                RunState::Unmapped
            } else {
                // The kernel would refuse the rest too.
                self.insert(start, excess, RunState::Dirty);
                break;
            };
            self.region.purge_spans(self.os, start, excess);
            huge_pages::break_in(self.region, &mut self.heap.counts, range.clone());
            self.heap.counts.purged += excess as usize;
            self.heap.counts.purges += 1;
            self.heap.retention.refaults.count_purged(self.os.now_ms(), excess);
            if state == RunState::Unmapped {
                self.record_mapping(range, false);
            }
            self.insert(start, excess, state);
        }
        let heap = &mut *self.heap;
        heap.retention.record_counts(&heap.counts);
        self.unmap_surplus();
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

    /// Maps the units from `start` to `end` of the unmapped run at `first` again, and a few more if
    /// memory allows it. Returns the first unit of the clean run that they lie in then. If a
    /// foreign mapping lies there, the units are given up.
    pub(super) fn map_again(
        &mut self,
        first: UnitIndex,
        start: UnitIndex,
        end: UnitIndex,
    ) -> Result<UnitIndex, Refusal> {
        // SAFETY: the run is in a tree, so its record is current.
        let run_end = first + unsafe { (*self.region.run(first)).units };
        let more = end.max(start + UNMAP_UNITS_MIN).min(run_end);
        match self.map_exactly(first, start, more) {
            Err(Refusal::Memory) if end < more => self.map_exactly(first, start, end),
            mapped => mapped,
        }
    }

    fn map_exactly(
        &mut self,
        first: UnitIndex,
        start: UnitIndex,
        end: UnitIndex,
    ) -> Result<UnitIndex, Refusal> {
        self.carve(first, start..end);
        // SAFETY: the unit is below the frontier, hence committed.
        let before = unsafe { (*self.region.run(start - 1)).state };
        let can_extend = matches!(before, RunState::Dirty | RunState::Clean);
        // SAFETY: the units are unmapped. A dirty or clean run is mapped and free.
        let mapped = unsafe { self.region.map_again(self.os, start, end - start, can_extend) };
        match mapped {
            Ok(()) => return Ok(self.insert(start, end - start, RunState::Clean)),
            Err(Refusal::Memory) => {
                self.insert(start, end - start, RunState::Unmapped);
            }
            Err(Refusal::Addresses) => self.give_up(start, end - start),
        }
        mapped.map(|()| start)
    }

    /// Makes sure that `more` units may become resident, by purging as much as that takes. Returns
    /// false if they may not.
    pub(super) fn admit(&mut self, more: u32) -> bool {
        let Some(keep) =
            self.resident_units_max().checked_sub(self.heap.counts.in_use + more as usize)
        else {
            return false;
        };
        self.purge(keep);
        self.heap.counts.dirty <= keep
    }
}
