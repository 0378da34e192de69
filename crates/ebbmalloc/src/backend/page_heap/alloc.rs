//! Hands runs out and takes them back.

use super::{Granted, Memory, Pages};
use crate::backend::huge_pages::Touch;
use crate::backend::run::RunState;
use crate::backend::units::{UnitIndex, UnitRange, Units};
use crate::platform::os::{Os, Refusal};
use crate::size_class::UNIT;

impl<'a, O: Os> Memory<'a, O> {
    /// Locks the page heap.
    pub fn lock(&self) -> Pages<'a, O> {
        Pages { heap: self.heap.lock(), region: self.region, os: self.os }
    }
}

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
        let frontier = self.heap.frontier;
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
                let grown = if granted.zeroed { units.get() } else { 0 };
                if granted.first < frontier {
                    self.count_refaulted(grown);
                }
                (granted, grown)
            }
        };
        self.count_use(units.get());
        if granted.zeroed && touch == Touch::Unknown {
            self.advise(granted.first..granted.first + units.get());
        }
        self.purge_after_growth(grown + grown_by_huge_page);
        Some(granted)
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
}

impl<O: Os> Pages<'_, O> {
    /// Frees a run that is not resident, as clean or unmapped. `was_purged`: it was resident until
    /// a moment ago.
    pub fn free_as(&mut self, first: UnitIndex, units: u32, state: RunState, was_purged: bool) {
        self.clear_note(first);
        self.break_in(first..first + units);
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
        self.end_advice(first..first + units);
        self.clear_note(first);
        self.heap.counts.in_use -= units as usize;
        self.heap.count_freed(units);
        let first = self.insert(first, units, RunState::Dirty);
        self.list_gap_before(first);
        self.purge_after_free();
    }
}
