//! Takes free runs out of their trees and puts them back, joined with their neighbours, and records
//! how old they are.
//!
//! The clock is the memory freed so far: it stands still while the program does. A run is old once
//! the memory freed since exceeds the dirty memory. If the program had needed the run, it would
//! have taken it by then.

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

    /// How much was freed since then, in [`AGE_UNITS`].
    fn age(&self, freed_at: u16) -> u16 {
        self.freed_now().wrapping_sub(freed_at)
    }

    /// Whether more was freed since then than is dirty.
    pub(super) fn is_old(&self, freed_at: u16) -> bool {
        self.age(freed_at) as usize * AGE_UNITS as usize > self.counts.dirty
    }

    /// When two runs that join were freed, each given by units and time: the mean of their ages. So
    /// a long run from which blocks are taken and to which they return stays young.
    fn joined(&self, one: (u32, u16), other: (u32, u16)) -> u16 {
        let weight = |(units, freed_at)| units as u64 * self.age(freed_at) as u64;
        let mean = (weight(one) + weight(other)) / (one.0 as u64 + other.0 as u64);
        self.freed_now().wrapping_sub(mean as u16)
    }
}

impl<O: Os> Pages<'_, O> {
    /// Takes a part out of the free run at `first`, and marks it as in use. What lies before and
    /// behind it stays free.
    pub(super) fn carve(&mut self, first: UnitIndex, part: Range<UnitIndex>) {
        // SAFETY: the run is in a tree, so its record is current.
        let run = unsafe { *self.region.run(first) };
        let (end, state, freed_at) = (first + run.units, run.state, run.freed_at());
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

    /// As [`Pages::insert`], for a part of a run that was freed at `freed_at`. The neighbours'
    /// records must be current: mark a run in use before inserting the rest of its units.
    pub(super) fn insert_aged(
        &mut self,
        mut first: UnitIndex,
        mut units: u32,
        state: RunState,
        mut freed_at: u16,
    ) -> UnitIndex {
        if first > 1 {
            // SAFETY: the unit before was handed out once, so it is committed.
            let before = unsafe { *self.region.run(first - 1) };
            if before.state == state {
                first -= before.units;
                freed_at = self.joined_with(first, (units, freed_at));
                units += before.units;
                self.remove(first);
            }
        }
        let next = first + units;
        if next < self.heap.frontier {
            // SAFETY: the unit is below the frontier, hence committed.
            let after = unsafe { *self.region.run(next) };
            if after.state == state {
                freed_at = self.joined_with(next, (units, freed_at));
                units += after.units;
                self.remove(next);
            }
        }
        let run = Run { state, units, asked_high: freed_at, ..Run::default() };
        // SAFETY: the units are committed, and the lock of the page heap guards their records.
        unsafe { self.region.set_run(first, run) };
        self.heap.counts.add(state, units);
        self.heap.tree(state).insert(self.region, first);
        first
    }

    /// [`PageHeap::joined`] for the free run at `first`, and another.
    fn joined_with(&self, first: UnitIndex, other: (u32, u16)) -> u16 {
        // SAFETY: the run is free, so its first record is current.
        let run = unsafe { *self.region.run(first) };
        self.heap.joined((run.units, run.freed_at()), other)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A page heap in which `mib` MiB were freed, and `dirty_mib` MiB are dirty.
    fn heap(mib: u32, dirty_mib: usize) -> PageHeap {
        let mut heap = PageHeap::new();
        heap.count_freed(mib * AGE_UNITS);
        heap.counts.dirty = dirty_mib * AGE_UNITS as usize;
        heap
    }

    #[test]
    fn runs_are_old_once_more_was_freed_than_is_dirty() {
        let mut heap = heap(100, 10);
        let now = heap.freed_now();
        assert!(!heap.is_old(now));
        heap.count_freed(10 * AGE_UNITS);
        assert!(!heap.is_old(now));
        heap.count_freed(AGE_UNITS);
        assert!(heap.is_old(now));
    }

    #[test]
    fn joined_runs_have_the_mean_age() {
        // Also where the clock has begun anew.
        for mib in [100, 5, u16::MAX as u32 + 3] {
            let heap = heap(mib, 0);
            let at = |age: u16| heap.freed_now().wrapping_sub(age);
            assert_eq!(heap.joined((10, at(60)), (10, at(20))), at(40));
            assert_eq!(heap.joined((30, at(60)), (10, at(20))), at(50));
            assert_eq!(heap.joined((1, at(0)), (u32::MAX, at(60))), at(59));
        }
    }
}
