//! Hands out runs: which free run serves a request, and when the heap grows.

use super::{Granted, Pages};
use crate::backend::huge_pages::Touch;
use crate::backend::region::Region;
use crate::backend::retention::PageCounts;
use crate::backend::run::RunState;
use crate::backend::run_tree::RunTree;
use crate::backend::tuning::{CLEAN_UNITS_KEPT, HUGE_UNITS, SKIP_UNITS_MIN, SKIPS_MAX};
use crate::backend::units::{UnitIndex, UnitRange, Units};
use crate::platform::os::{Os, Refusal};

impl<O: Os> Pages<'_, O> {
    /// Hands out `units` units that begin at a multiple of `align` units, a power of two. Returns
    /// `None` if the region or the kernel has not enough, or if the limit forbids it.
    pub fn alloc(&mut self, units: Units, align: Units) -> Option<Granted> {
        self.alloc_for(Touch::Unknown, units, align)
    }

    /// As [`Pages::alloc`], for a run that is soon touched whole: it may lie in a huge page.
    pub fn alloc_touched(&mut self, units: Units) -> Option<Granted> {
        self.alloc_for(Touch::Whole, units, Units::ONE)
    }

    fn alloc_for(&mut self, touch: Touch, units: Units, align: Units) -> Option<Granted> {
        let in_use = self.heap.counts.in_use + units.get() as usize;
        self.heap.is_at_limit = in_use > self.resident_units_max();
        if self.heap.is_at_limit || !self.could_hold(units, align) {
            return None;
        }
        let grown_by_huge_page = match touch {
            Touch::Whole => self.grow_by_huge_page(units),
            Touch::Unknown => 0,
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

    /// If the heap must grow for a run that is soon touched whole: makes the run's surroundings
    /// resident by a huge page, if that seems to pay. Returns how many units became resident.
    fn grow_by_huge_page(&mut self, units: Units) -> u32 {
        let PageCounts { in_use, dirty, .. } = self.heap.counts;
        let dirty = dirty + HUGE_UNITS as usize;
        if !self.heap.huge.are_wanted(in_use)
            || in_use + dirty > self.resident_units_max()
            || dirty > self.heap.retention.spare_units(in_use)
            || self.heap.dirty.best_fit(self.region, units.get()).is_some()
        {
            return 0;
        }
        if !self.heap.huge.take_due(|| self.os.now_ms(), in_use) {
            return 0;
        }
        let Some(first) = self.take_for_huge_page() else {
            self.heap.huge.back_off();
            return 0;
        };
        let heap = &mut *self.heap;
        if !heap.huge.back(self.region, self.os, &mut heap.counts, first) {
            self.insert(first, HUGE_UNITS, RunState::Clean);
            return 0;
        }
        self.insert(first, HUGE_UNITS, RunState::Dirty);
        self.heap.huge.untouched = first..first + HUGE_UNITS;
        HUGE_UNITS
    }

    /// Takes a free run of the length and alignment of a huge page that is not resident.
    fn take_for_huge_page(&mut self) -> Option<UnitIndex> {
        let length = Units::new(HUGE_UNITS)?;
        if let Some(run) = run_with_place(self.region, &self.heap.clean) {
            return Some(self.cut(run, length, HUGE_UNITS)?.first);
        }
        if let Some(run) = run_with_place(self.region, &self.heap.unmapped) {
            let first = self.region.align_unit(run, HUGE_UNITS)?;
            let run = self.map_again(run, first, first + HUGE_UNITS).ok()?;
            return Some(self.cut(run, length, HUGE_UNITS)?.first);
        }
        // Much free memory in short runs is filled first: else it would never be used.
        if self.heap.counts.clean + self.heap.counts.unmapped > CLEAN_UNITS_KEPT {
            return None;
        }
        self.take_at_frontier(length, HUGE_UNITS)
    }

    /// Whether `units` units at a multiple of `align` would fit if all else were free. If not,
    /// there is no use in giving memory up for them.
    pub fn could_hold(&self, units: Units, align: Units) -> bool {
        let first = self.region.align_unit(1, align.get());
        let range = first.and_then(|first| UnitRange::new(first, units));
        range.is_some_and(|range| range.end() as usize <= self.region.units())
            && units.get() as usize <= self.resident_units_max()
    }

    /// Whether such a run would take memory that is not resident, and reclaim is due:
    /// [`Retention::take_due_reclaim`](crate::backend::retention::Retention::take_due_reclaim).
    pub fn take_due_reclaim(&mut self, units: Units, align: Units) -> bool {
        if !self.could_hold(units, align) {
            return false;
        }
        let padded_units = units.get().saturating_add(align.get() - 1);
        let heap = &mut *self.heap;
        heap.dirty.best_fit(self.region, padded_units).is_none()
            && heap.retention.take_due_reclaim(&heap.counts, units.get())
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
                self.heap.retention.refaults.count_refaulted(self.os.now_ms(), taken);
            }
            self.mark_in_use(at, taken);
            self.heap.huge.take(at..at + taken);
            if taken < run.units {
                self.insert(end, run.units - taken, run.state);
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
        if let Some(first) = dirty.or_else(|| self.heap.clean.best_fit(self.region, padded_units)) {
            return self.cut(first, length, align);
        }
        while let Some(first) = self.heap.unmapped.best_fit(self.region, padded_units) {
            let start = self.region.align_unit(first, align)?;
            let end = UnitRange::new(start, length)?.end();
            match self.map_again(first, start, end) {
                Ok(first) => return self.cut(first, length, align),
                // Perhaps the process may not make more mappings. The last one can still grow.
                Err(Refusal::Memory) => break,
                Err(Refusal::Addresses) => {}
            }
        }
        let first = self.take_at_frontier(length, align)?;
        Some(Granted { first, zeroed: true })
    }

    /// The shortest dirty run that holds `units` units, lowest address first, without those that
    /// are only for runs that are touched whole.
    pub(super) fn best_dirty(&self, touch: Touch, units: u32) -> Option<UnitIndex> {
        let first = self.heap.dirty.best_fit(self.region, units)?;
        if self.heap.huge.allows(touch, first..first + units) {
            return Some(first);
        }
        // No second run has units of the same huge page.
        self.heap.dirty.next(self.region, first)
    }

    /// Takes units that were never used. `None` if memory or addresses are exhausted.
    fn take_at_frontier(&mut self, length: Units, align: u32) -> Option<UnitIndex> {
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

    /// Hands out units of the free run at `first`, which is long enough for them at any alignment.
    fn cut(&mut self, first: UnitIndex, length: Units, align: u32) -> Option<Granted> {
        // SAFETY: the run is in a tree, so its record is current.
        let run = unsafe { *self.region.run(first) };
        let start = self.region.align_unit(first, align)?;
        let (end, units) = (UnitRange::new(start, length)?.end(), length.get());
        self.carve(first, start..end);
        let zeroed = run.state == RunState::Clean;
        if zeroed {
            self.heap.retention.refaults.count_refaulted(self.os.now_ms(), units);
        }
        Some(Granted { first: start, zeroed })
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
