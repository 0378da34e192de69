//! Takes runs out of the free ones: which run serves a request, and where the heap grows.

use core::num::NonZeroUsize;

use super::{Granted, PageHeap, Pages};
use crate::backend::huge_pages::Touch;
use crate::backend::run::RunState;
use crate::backend::tuning::{SKIP_UNITS_MIN, SKIPS_MAX, UNMAP_UNITS_MIN};
use crate::backend::units::{UnitIndex, UnitRange, Units};
use crate::platform::os::{Os, Refusal};

impl PageHeap {
    /// The most units that may be in use or dirty.
    pub(super) fn resident_units_max(&self) -> usize {
        self.limit.map_or(usize::MAX, NonZeroUsize::get)
    }

    pub(super) fn count_use(&mut self, units: u32) {
        self.counts.in_use += units as usize;
        self.retention.record_counts(&self.counts);
    }
}

impl<O: Os> Pages<'_, O> {
    /// Records that units are handed out that are not resident, though they were in use before, as
    /// far as is known.
    pub(super) fn count_refaulted(&mut self, units: u32) {
        if units > 0 {
            self.heap.retention.count_refaulted(self.os.now_ms(), units);
        }
    }

    pub(super) fn take_or_make_room(
        &mut self,
        touch: Touch,
        units: Units,
        align: Units,
    ) -> Option<Granted> {
        self.take(touch, units, align).or_else(|| {
            self.make_room();
            self.take(touch, units, align)
        })
    }

    /// Where no dirty run is long enough: takes the longest one and the memory after it, if that is
    /// free and no longer than the run. Otherwise that dirty run would stay resident, unused,
    /// beside a clean run of the full length. Returns the first unit and how many units become
    /// resident.
    pub(super) fn take_longest_dirty(
        &mut self,
        touch: Touch,
        units: Units,
    ) -> Option<(UnitIndex, u32)> {
        let (first, dirty_units) = self.heap.dirty.longest(self.region)?;
        let (end, units) = (UnitRange::new(first, units)?.end(), units.get());
        if dirty_units >= units
            || dirty_units < units - dirty_units
            || !self.heap.huge.allows(touch, first..end)
        {
            return None;
        }
        let grown = units - self.count_dirty_if_free(first, end)?;
        // Not if memory must be purged first: that may purge this very run.
        let resident = self.heap.counts.held() + grown as usize;
        if resident > self.resident_units_max() || self.take_free_units(first, end).is_err() {
            return None;
        }
        self.mark_in_use(first, units);
        Some((first, grown))
    }

    #[inline(never)]
    fn take(&mut self, touch: Touch, length: Units, align: Units) -> Option<Granted> {
        let (units, align) = (length.get(), align.get());
        let padded_units = units.checked_add(align - 1)?;
        let dirty = self.best_dirty(touch, padded_units);
        if dirty.is_none() && !self.admit(units) {
            return None;
        }
        if let Some((first, from)) = dirty {
            return self.cut(first, from, length, align);
        }
        if let Some(first) = self.heap.clean.best_fit(self.region, padded_units) {
            return self.cut(first, first, length, align);
        }
        while let Some(first) = self.heap.unmapped.best_fit(self.region, padded_units) {
            let start = self.region.align_unit(first, align)?;
            let end = UnitRange::new(start, length)?.end();
            match self.map_again(first, start, end) {
                Ok(first) => return self.cut(first, first, length, align),
                // Perhaps the process may not make more mappings. The last one can still grow.
                Err(Refusal::Memory) => break,
                Err(Refusal::Addresses) => {}
            }
        }
        let first = self.take_at_frontier(length, align)?;
        Some(Granted { first, zeroed: true })
    }

    /// Where `units` units are dirty: in the shortest run that holds them, lowest address first.
    /// Not in units that are only for runs that are touched whole, but behind them. Returns the
    /// first unit of the run, and the unit from which on they may be taken.
    pub(super) fn best_dirty(&self, touch: Touch, units: u32) -> Option<(UnitIndex, UnitIndex)> {
        let first = self.heap.dirty.best_fit(self.region, units)?;
        if self.heap.huge.allows(touch, first..first + units) {
            return Some((first, first));
        }
        // SAFETY: the run is in a tree, so its record is current.
        let end = first + unsafe { (*self.region.run(first)).units };
        let behind = self.heap.huge.untouched.end;
        if end >= behind && end - behind >= units {
            return Some((first, behind));
        }
        // No second run has units of the same huge page.
        self.heap.dirty.next(self.region, first).map(|next| (next, next))
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

    /// Takes the units from `next` to `end` out of the free ones. A free run begins at `next`, and
    /// all of these units are free. Takes none if they cannot be committed.
    pub(super) fn take_free_units(
        &mut self,
        next: UnitIndex,
        end: UnitIndex,
    ) -> Result<(), Refusal> {
        self.region.commit_up_to(self.os, end as usize)?;
        let mut at = next;
        while at < end.min(self.heap.frontier) {
            // SAFETY: as in `count_dirty_if_free`: a run begins at this committed unit.
            let run = unsafe { *self.region.run(at) };
            if run.state == RunState::Unmapped {
                self.map_again(at, at, end.min(at + run.units))?;
                // The clean run may have joined the one before it.
                at = next;
                continue;
            }
            at += run.units;
        }
        let mut at = next;
        while at < end.min(self.heap.frontier) {
            // SAFETY: as in `count_dirty_if_free`: a run begins at this committed unit.
            let run = unsafe { *self.region.run(at) };
            self.remove(at);
            let taken = run.units.min(end - at);
            if run.state == RunState::Clean {
                self.count_refaulted(taken);
            }
            self.mark_in_use(at, taken);
            self.heap.huge.take(at..at + taken);
            if taken < run.units {
                self.insert_aged(end, run.units - taken, run.state, run.freed_at());
            }
            at += run.units;
        }
        self.heap.frontier = self.heap.frontier.max(end);
        Ok(())
    }

    /// Takes units that were never used. `None` if memory or addresses are exhausted.
    pub(super) fn take_at_frontier(&mut self, length: Units, align: u32) -> Option<UnitIndex> {
        for attempt in 0..=SKIPS_MAX {
            let old_frontier = self.heap.frontier.max(1);
            let start = self.region.align_unit(old_frontier, align)?;
            let end = UnitRange::new(start, length)?.end();
            match self.region.commit_up_to(self.os, end as usize) {
                Ok(()) => {
                    self.heap.frontier = end;
                    self.mark_in_use(start, length.get());
                    if start > old_frontier {
                        self.insert(old_frontier, start - old_frontier, RunState::Clean);
                        self.unmap_surplus();
                    }
                    return Some(start);
                }
                Err(Refusal::Memory) => return None,
                Err(Refusal::Addresses) => {
                    if !self.skip(SKIP_UNITS_MIN << attempt) {
                        return None;
                    }
                }
            }
        }
        None
    }

    /// Continues the heap behind a foreign mapping that follows the committed units. Returns false
    /// if memory or addresses are exhausted.
    fn skip(&mut self, units: usize) -> bool {
        let Some(skipped) = self.region.skip(self.os, units) else {
            return false;
        };
        let frontier = self.heap.frontier.max(1);
        self.heap.frontier = skipped.end;
        self.give_up(skipped.start, skipped.end - skipped.start);
        if frontier < skipped.start {
            self.insert(frontier, skipped.start - frontier, RunState::Clean);
            self.unmap_surplus();
        }
        true
    }

    /// Hands out units of the free run at `first`. From unit `from` on, it is long enough for them
    /// at any alignment.
    pub(super) fn cut(
        &mut self,
        first: UnitIndex,
        from: UnitIndex,
        length: Units,
        align: u32,
    ) -> Option<Granted> {
        // SAFETY: the run is in a tree, so its record is current.
        let run = unsafe { *self.region.run(first) };
        let start = self.region.align_unit(from, align)?;
        let end = UnitRange::new(start, length)?.end();
        self.carve(first, start..end);
        Some(Granted { first: start, zeroed: run.state == RunState::Clean })
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
}
