//! Backs new memory by huge pages, where they pay, and where the program touches all of it.

use core::ops::Range;

use super::Pages;
use crate::backend::huge_pages::{self, HUGE_BYTES};
use crate::backend::mappings::flags;
use crate::backend::region::Region;
use crate::backend::retention::PageCounts;
use crate::backend::run::RunState;
use crate::backend::run_tree::RunTree;
use crate::backend::tuning::{CLEAN_UNITS_KEPT, HUGE_RUN_UNITS_MIN, HUGE_UNITS};
use crate::backend::units::{UnitIndex, Units};
use crate::platform::os::Os;
use crate::size_class::UNIT;

impl<O: Os> Pages<'_, O> {
    /// If the heap must grow for a run that is soon touched whole: makes the run's surroundings
    /// resident by a huge page, if that seems to pay. Returns how many units became resident.
    pub(super) fn grow_by_huge_page(&mut self, units: Units) -> u32 {
        let PageCounts { in_use, dirty, .. } = self.heap.counts;
        let dirty = dirty + HUGE_UNITS as usize;
        if !self.heap.huge.are_wanted(in_use)
            || in_use + dirty > self.resident_units_max()
            || dirty > self.heap.retention.spare_units(in_use)
            || self.heap.dirty.best_fit(self.region, units.get()).is_some()
            || !self.heap.huge.take_due(|| self.os.now_ms())
        {
            return 0;
        }
        let frontier = self.heap.frontier;
        let Some(first) = self.take_for_huge_page() else {
            self.heap.huge.back_off();
            return 0;
        };
        // SAFETY: the units are committed and clean, and no thread uses them.
        let took_ns = unsafe { self.os.back_by_huge_page(self.region.address(first), HUGE_BYTES) };
        self.heap.huge.record(took_ns);
        if took_ns.is_none() {
            self.insert(first, HUGE_UNITS, RunState::Clean);
            return 0;
        }
        huge_pages::mark(self.region, &mut self.heap.counts, first, true);
        if first < frontier {
            self.count_refaulted(HUGE_UNITS);
        }
        self.insert(first, HUGE_UNITS, RunState::Dirty);
        self.heap.huge.untouched = first..first + HUGE_UNITS;
        HUGE_UNITS
    }

    /// Lets huge pages back a long run in use of which nothing is resident yet, as the program
    /// touches it: the first one at once, to measure what it takes. There are not many, since the
    /// program may touch one page of each.
    pub(super) fn advise(&mut self, units: Range<UnitIndex>) {
        let (in_use, os) = (self.heap.counts.in_use, self.os);
        let huge = &mut self.heap.huge;
        let Some(first) = self.region.align_unit(units.start, HUGE_UNITS) else { return };
        // What lies behind a block's end is in the last unit, and does not become resident.
        let count = ((units.end - 1).saturating_sub(first) / HUGE_UNITS).min(huge.advisable());
        if units.end - units.start < HUGE_RUN_UNITS_MIN
            || count == 0
            || !huge.are_wanted(in_use)
            || !huge.take_due(|| os.now_ms())
        {
            return;
        }
        // SAFETY: the units are in use, and none was touched yet.
        let took_ns = unsafe { os.back_by_huge_page(self.region.address(first), HUGE_BYTES) };
        huge.record(took_ns);
        if took_ns.is_none() {
            return;
        }
        let (next, end) = (first + HUGE_UNITS, first + count * HUGE_UNITS);
        let more_bytes = (end - next) as usize * UNIT;
        let go_on = more_bytes > 0
            && huge.take_due(|| os.now_ms())
            // SAFETY: as before.
            && unsafe { os.allow_huge_pages(self.region.address(next), more_bytes, true) };
        for place in (first..if go_on { end } else { next }).step_by(HUGE_UNITS as usize) {
            self.set_advised(place, true);
            huge_pages::mark(self.region, &mut self.heap.counts, place, true);
        }
    }

    /// Records that the run that these units belong to is not long any more, or not in use.
    pub(super) fn end_advice(&mut self, units: Range<UnitIndex>) {
        if self.heap.huge.advised == 0 {
            return;
        }
        let is_advised = |&place: &UnitIndex| flags(self.region, place).advised();
        let mut places = huge_pages::places(self.region, &self.heap.counts, units);
        let (first, mut end) = (places.by_ref().find(is_advised), 0);
        for place in first.into_iter().chain(places.filter(is_advised)) {
            self.set_advised(place, false);
            end = place + HUGE_UNITS;
        }
        if let Some(first) = first {
            let bytes = (end - first) as usize * UNIT;
            // SAFETY: the advice changes no contents.
            unsafe { self.os.allow_huge_pages(self.region.address(first), bytes, false) };
        }
    }

    fn set_advised(&mut self, place: UnitIndex, advised: bool) {
        let flags = flags(self.region, place);
        self.heap.huge.advised += advised as u32;
        self.heap.huge.advised -= flags.advised() as u32;
        // SAFETY: the unit is committed, and the lock of the page heap guards its record.
        unsafe { (*self.region.run(place)).flags = flags.with_advised(advised) }
    }

    /// Records that a part of these units is not resident any more.
    pub(super) fn break_in(&mut self, units: Range<UnitIndex>) {
        self.end_advice(units.clone());
        for first in huge_pages::places(self.region, &self.heap.counts, units) {
            huge_pages::mark(self.region, &mut self.heap.counts, first, false);
        }
    }

    /// Takes a free run of the length and alignment of a huge page that is not resident.
    fn take_for_huge_page(&mut self) -> Option<UnitIndex> {
        let length = Units::new(HUGE_UNITS)?;
        if let Some(run) = run_with_place(self.region, &self.heap.clean) {
            return Some(self.cut(run, run, length, HUGE_UNITS)?.first);
        }
        if let Some(run) = run_with_place(self.region, &self.heap.unmapped) {
            let first = self.region.align_unit(run, HUGE_UNITS)?;
            let run = self.map_again(run, first, first + HUGE_UNITS).ok()?;
            return Some(self.cut(run, run, length, HUGE_UNITS)?.first);
        }
        // Much free memory in short runs is filled first: else it would never be used.
        if self.heap.counts.clean + self.heap.counts.unmapped > CLEAN_UNITS_KEPT {
            return None;
        }
        self.take_at_frontier(length, HUGE_UNITS)
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
