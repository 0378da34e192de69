//! Keeps the records of runs: takes runs out of the free ones, and joins them when they are freed.

use core::ops::Range;
use core::sync::atomic::{Ordering, fence};

use super::Pages;
use crate::backend::huge_pages;
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
        huge_pages::break_in(self.region, &mut self.heap.counts, units.clone());
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
        self.set_state(first, units, RunState::Foreign);
        self.heap.counts.foreign += units as usize;
    }

    /// Takes a part out of the free run at `first`, and marks it as in use. What lies before and
    /// behind it stays free.
    pub(super) fn carve(&mut self, first: UnitIndex, part: Range<UnitIndex>) {
        // SAFETY: the run is in a tree, so its record is current.
        let Run { state, units, .. } = unsafe { *self.region.run(first) };
        let end = first + units;
        self.remove(first);
        self.mark_in_use(part.start, part.end - part.start);
        self.heap.huge.take(part.clone());
        if first < part.start {
            self.insert(first, part.start - first, state);
        }
        if part.end < end {
            self.insert(part.end, end - part.end, state);
        }
    }

    /// Adds a free run, and joins it with its neighbours of the same state. The neighbours' records
    /// must be current: mark a run in use before inserting the rest of its units. Returns where the
    /// joined run begins.
    pub(super) fn insert(
        &mut self,
        mut first: UnitIndex,
        mut units: u32,
        state: RunState,
    ) -> UnitIndex {
        if first > 1 {
            // SAFETY: the unit before was handed out once, so it is committed.
            let before = unsafe { *self.region.run(first - 1) };
            if before.state == state {
                first -= before.units;
                units += before.units;
                self.remove(first);
            }
        }
        let next = first + units;
        if next < self.heap.frontier {
            // SAFETY: the unit is below the frontier, hence committed.
            let after = unsafe { *self.region.run(next) };
            if after.state == state {
                self.remove(next);
                units += after.units;
            }
        }
        let run = Run { state, units, ..Run::default() };
        // SAFETY: both units are committed, and the lock of the page heap guards their records.
        unsafe {
            Run::replace(self.region.run(first + units - 1), run);
            Run::replace(self.region.run(first), run);
        }
        self.heap.counts.add(state, units);
        self.heap.tree(state).insert(self.region, first);
        first
    }

    pub(super) fn remove(&mut self, first: UnitIndex) {
        // SAFETY: the run is free, so its record is current.
        let run = unsafe { *self.region.run(first) };
        self.heap.counts.remove(run.state, run.units);
        self.heap.tree(run.state).remove(self.region, first);
    }

    pub(super) fn mark_in_use(&mut self, first: UnitIndex, units: u32) {
        self.set_state(first, units, RunState::InUse);
    }

    /// Writes the records of a run that is in no tree.
    fn set_state(&mut self, first: UnitIndex, units: u32, state: RunState) {
        let run = Run { state, units, ..Run::default() };
        // SAFETY: both units are committed, and the lock of the page heap guards their records.
        unsafe {
            Run::replace(self.region.run(first), run);
            Run::replace(self.region.run(first + units - 1), run);
        }
    }
}
