//! Hands runs out and takes them back: which free run serves a request, and how the heap grows.

use core::num::NonZeroUsize;

use super::{Granted, Memory, PageHeap, Pages};
use crate::backend::huge_pages::{self, Touch};
use crate::backend::run::RunState;
use crate::backend::tuning::{
    SKIP_UNITS_MIN, SKIPS_MAX, UNMAP_UNITS_MIN,
};
use crate::backend::units::{UnitIndex, UnitRange, Units};
use crate::platform::os::{Os, Refusal};
use crate::size_class::UNIT;

impl<'a, O: Os> Memory<'a, O> {
    /// Locks the page heap.
    pub fn lock(&self) -> Pages<'a, O> {
        Pages { heap: self.heap.lock(), region: self.region, os: self.os }
    }
}

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
    /// Hands out `units` units that begin at a multiple of `align` units, a power of two. Returns
    /// `None` if the region or the kernel has not enough, or if the limit forbids it.
    pub fn alloc(&mut self, units: Units, align: Units) -> Option<Granted> {
        self.alloc_as(None, units, align)
    }

    /// As [`Pages::alloc`], for one block of `block_bytes` bytes, or a span of them: the run may lie
    /// in a huge page if the program writes such blocks whole.
    pub fn alloc_for(&mut self, block_bytes: usize, units: Units, align: Units) -> Option<Granted> {
        let granted = self.alloc_as(Some(block_bytes), units, align)?;
        self.heap.written.record(block_bytes, granted.first..granted.first + units.get());
        Some(granted)
    }

    fn alloc_as(
        &mut self,
        block_bytes: Option<usize>,
        units: Units,
        align: Units,
    ) -> Option<Granted> {
        let in_use = self.heap.counts.in_use + units.get() as usize;
        self.heap.is_at_limit = in_use > self.resident_units_max();
        if self.heap.is_at_limit || !self.could_hold(units, align) {
            return None;
        }
        let (touch, grown_by_huge_page) = match block_bytes {
            Some(block_bytes) => self.grow_by_huge_page(block_bytes, units),
            None => (Touch::Unknown, 0),
        };
        let extended = match align {
            Units::ONE => self.take_longest_dirty(touch, units),
            _ => None,
        };
        let (granted, grown) = match extended {
            Some((first, grown)) => (Granted { first, zeroed: false }, grown),
            None => {
                let granted = self.take_or_make_room(touch, units, align);
                let Some(granted) = granted else {
                    self.heap.retention.record_refusal(in_use);
                    return None;
                };
                (granted, if granted.zeroed { units.get() } else { 0 })
            }
        };
        self.count_use(units.get());
        self.purge_after_growth(grown + grown_by_huge_page);
        Some(granted)
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

    /// Whether `units` units at a multiple of `align` would fit if all else were free. If not,
    /// there is no use in giving memory up for them.
    pub fn could_hold(&self, units: Units, align: Units) -> bool {
        let first = self.region.align_unit(1, align.get());
        let range = first.and_then(|first| UnitRange::new(first, units));
        range.is_some_and(|range| range.end() as usize <= self.region.units())
            && units.get() as usize <= self.resident_units_max()
    }

    /// Whether such a run would take memory that is not resident. The rest of a new huge page does
    /// not count as free: spans will take it, and the heap grows by the next one.
    pub fn would_grow(&self, units: Units, align: Units) -> bool {
        let padded_units = units.get().saturating_add(align.get() - 1);
        self.best_dirty(Touch::Unknown, padded_units).is_none()
    }

    /// Whether such a run would take memory that is not resident, and reclaim is due:
    /// [`Retention::take_due_reclaim`](crate::backend::retention::Retention::take_due_reclaim).
    pub fn take_due_reclaim(&mut self, units: Units, align: Units) -> bool {
        let would_grow = self.could_hold(units, align) && self.would_grow(units, align);
        let heap = &mut *self.heap;
        would_grow && heap.retention.take_due_reclaim(&heap.counts, units.get())
    }

    /// Where no dirty run is long enough: takes the longest one and the memory after it, if that is
    /// free and no longer than the run. Otherwise that dirty run would stay resident, unused,
    /// beside a clean run of the full length. Returns the first unit and how many units become
    /// resident.
    fn take_longest_dirty(&mut self, touch: Touch, units: Units) -> Option<(UnitIndex, u32)> {
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
                self.heap.retention.count_refaulted(self.os.now_ms(), taken);
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
        let (end, units) = (UnitRange::new(start, length)?.end(), length.get());
        self.carve(first, start..end);
        let zeroed = run.state == RunState::Clean;
        if zeroed {
            self.heap.retention.count_refaulted(self.os.now_ms(), units);
        }
        Some(Granted { first: start, zeroed })
    }
}

impl<O: Os> Pages<'_, O> {
    /// Frees a run that is not resident, as clean or unmapped. `was_purged`: it was resident until
    /// a moment ago.
    pub fn free_as(&mut self, first: UnitIndex, units: u32, state: RunState, was_purged: bool) {
        self.clear_note(first);
        huge_pages::break_in(self.region, &mut self.heap.counts, first..first + units);
        self.heap.counts.in_use -= units as usize;
        if was_purged {
            self.heap.retention.count_purged(self.os.now_ms(), units);
        }
        let first = self.insert(first, units, state);
        self.list_gap_before(first);
        self.unmap_surplus();
    }

    /// Frees a run that is mostly purged. Where no scavenger runs, the rest of it is purged too: so
    /// that the page heap knows what is resident, and sees refaults.
    pub fn free_purged(&mut self, first: UnitIndex, units: u32) {
        if self.heap.retention.has_no_scavenger()
            && !self.heap.mappings.has_moved(self.region, first..first + units)
            // SAFETY: the caller gives the run up, so no thread uses it.
            && unsafe { self.os.purge(self.region.address(first), units as usize * UNIT) }
        {
            self.free_as(first, units, RunState::Clean, true);
            self.purge_after_free();
        } else {
            self.free(first, units);
        }
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
        self.heap.count_freed(units);
        let first = self.insert(first, units, RunState::Dirty);
        self.list_gap_before(first);
        self.purge_after_free();
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
