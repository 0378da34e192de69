//! Takes free runs out of their trees and puts them back, joined with their neighbours, and records
//! how old they are.
//!
//! The clock is the memory freed: it stands still while the program does, and a run has become old
//! once as much was freed as there is free memory. Had the program use for it, it would have
//! taken it by then.

use core::ops::Range;

use super::{PageHeap, Pages};
use crate::backend::run::{Run, RunState};
use crate::backend::run_tree::RunTree;
use crate::backend::tuning::AGE_UNITS;
use crate::backend::units::UnitIndex;
use crate::platform::os::Os;

impl PageHeap {
    /// The tree of the free runs of this state.
    pub(super) fn tree(&mut self, state: RunState) -> &mut RunTree {
        match state {
            RunState::Dirty => &mut self.dirty,
            RunState::Clean => &mut self.clean,
            RunState::Unmapped => &mut self.unmapped,
            RunState::InUse | RunState::Foreign => unreachable!("no free run"),
        }
    }

    /// Records that units are freed.
    pub(super) fn count_freed(&mut self, units: u32) {
        self.freed_units = self.freed_units.wrapping_add(units);
    }

    /// The time by the clock of frees. It begins anew after 64 GiB: an old run may then seem new.
    fn freed_now(&self) -> u16 {
        (self.freed_units / AGE_UNITS) as u16
    }

    /// Whether more memory was freed since then than is free.
    pub(super) fn is_old(&self, freed_at: u16) -> bool {
        let age = self.freed_now().wrapping_sub(freed_at) as usize;
        age * AGE_UNITS as usize > self.counts.dirty
    }
}

impl<O: Os> Pages<'_, O> {
    /// Takes a part out of the free run at `first`, and marks it as in use. What lies before and
    /// behind it stays free.
    pub(super) fn carve(&mut self, first: UnitIndex, part: Range<UnitIndex>) {
        // SAFETY: the run is in a tree, so its record is current.
        let Run { state, units, asked_high: freed_at, .. } = unsafe { *self.region.run(first) };
        let end = first + units;
        self.remove(first);
        self.mark_in_use(part.start, part.end - part.start);
        self.heap.huge.take(part.clone());
        if first < part.start {
            self.insert_aged(first, part.start - first, state, freed_at);
        }
        if part.end < end {
            self.insert_aged(part.end, end - part.end, state, freed_at);
        }
    }

    /// Adds a run that becomes free now, and joins it with its neighbours of the same state.
    /// Returns where the joined run begins.
    pub(super) fn insert(&mut self, first: UnitIndex, units: u32, state: RunState) -> UnitIndex {
        self.insert_aged(first, units, state, self.heap.freed_now())
    }

    /// As [`Pages::insert`], for a part of a run that was freed at `freed_at`. A joined run is as
    /// old as its longest part. The neighbours' records must be current: mark a run in use before
    /// inserting the rest of its units.
    pub(super) fn insert_aged(
        &mut self,
        mut first: UnitIndex,
        units: u32,
        state: RunState,
        freed_at: u16,
    ) -> UnitIndex {
        let (mut all_units, mut longest) = (units, (units, freed_at));
        if first > 1 {
            // SAFETY: the unit before was handed out once, so it is committed.
            let last = unsafe { *self.region.run(first - 1) };
            if last.state == state {
                first -= last.units;
                all_units += last.units;
                // SAFETY: the run is free, so its first record is current.
                let before = unsafe { *self.region.run(first) };
                longest = longest.max((before.units, before.asked_high));
                self.remove(first);
            }
        }
        let next = first + all_units;
        if next < self.heap.frontier {
            // SAFETY: the unit is below the frontier, hence committed.
            let after = unsafe { *self.region.run(next) };
            if after.state == state {
                self.remove(next);
                all_units += after.units;
                longest = longest.max((after.units, after.asked_high));
            }
        }
        let run = Run { state, units: all_units, asked_high: longest.1, ..Run::default() };
        // SAFETY: the units are committed, and the lock of the page heap guards their records.
        unsafe { self.region.set_run(first, run) };
        self.heap.counts.add(state, all_units);
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
        let run = Run { state: RunState::InUse, units, ..Run::default() };
        // SAFETY: the units are committed, and the lock of the page heap guards their records.
        unsafe { self.region.set_run(first, run) };
    }
}
