//! Reads and writes what the records of runs say: state, size, heap, and foreign or moved mappings.

use core::ops::Range;
use core::sync::atomic::{Ordering, fence};

use super::Pages;
use crate::backend::page_map::MapEntry;
use crate::backend::run::{Run, RunState};
use crate::backend::units::UnitIndex;
use crate::platform::os::Os;

impl<O: Os> Pages<'_, O> {
    /// How many units from `next` to `end` are dirty; `None` unless all are free. Units beyond
    /// the frontier are free.
    pub(super) fn count_dirty_if_free(&self, next: UnitIndex, end: UnitIndex) -> Option<u32> {
        let (mut at, mut dirty) = (next, 0);
        while at < end.min(self.heap.frontier) {
            // SAFETY: the unit is below the frontier, hence committed, and a run begins there. The
            // lock of the page heap guards the records.
            let run = unsafe { *self.region.run(at) };
            match run.state {
                RunState::InUse | RunState::Foreign => return None,
                RunState::Dirty => dirty += run.units.min(end - at),
                RunState::Clean | RunState::Unmapped => {}
            }
            at += run.units;
        }
        Some(dirty)
    }

    /// Records a run's requested size and the heap that it belongs to: [`Run::note`].
    pub fn note(&mut self, first: UnitIndex, bytes: usize, heap: UnitIndex) {
        // SAFETY: the unit is in use, hence committed. The lock of the page heap guards its record.
        unsafe { (*self.region.run(first)).note(bytes, heap) }
    }

    /// Records that these units are a mapping of their own to which pages have `moved`, or that
    /// they belong to the region's mapping again.
    #[inline(never)]
    pub fn record_mapping(&mut self, units: Range<UnitIndex>, moved: bool) {
        self.break_in(units.clone());
        self.heap.mappings.record(self.region, units, moved);
    }

    /// Clears size and heap of a run: when it joins the run before it, its old record stays.
    pub(super) fn clear_note(&mut self, first: UnitIndex) {
        self.note(first, 0, 0);
    }

    /// Gives units up to the foreign mapping that lies there.
    pub(super) fn give_up(&mut self, first: UnitIndex, units: u32) {
        self.mark_foreign(first, units);
        // `Region::units_in` reads the record without the lock.
        fence(Ordering::Release);
        self.region.set_entry(first, MapEntry::OTHERS);
    }

    /// Gives a run up that cannot be used any more.
    pub fn lose(&mut self, first: UnitIndex, units: u32) {
        self.clear_note(first);
        self.heap.counts.in_use -= units as usize;
        match self.region.entry(first as usize) {
            // The map still tells that a block was freed here.
            MapEntry::LARGE_FREED => self.mark_foreign(first, units),
            _ => self.give_up(first, units),
        }
    }

    /// Takes units out of use for good.
    fn mark_foreign(&mut self, first: UnitIndex, units: u32) {
        let run = Run { state: RunState::Foreign, units, ..Run::default() };
        // SAFETY: the units are committed, and the lock of the page heap guards their records.
        unsafe { self.region.set_run(first, run) };
        self.heap.counts.foreign += units as usize;
    }
}
