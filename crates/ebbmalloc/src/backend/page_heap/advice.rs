//! Lets huge pages back long runs in use as the program touches them, and records what is in huge
//! pages no more.

use core::ops::Range;

use super::Pages;
use crate::backend::huge_pages::{self, HUGE_BYTES};
use crate::backend::mappings::flags;
use crate::backend::tuning::{HUGE_RUN_UNITS_MIN, HUGE_UNITS};
use crate::backend::units::UnitIndex;
use crate::platform::os::Os;
use crate::size_class::UNIT;

impl<O: Os> Pages<'_, O> {
    /// Lets huge pages back a long run in use of which nothing is resident yet, as the program
    /// touches it: the first one at once, to measure what it takes. There are not many, since the
    /// program may touch one page of each.
    pub(super) fn advise(&mut self, units: Range<UnitIndex>) {
        let (in_use, os) = (self.heap.counts.in_use, self.os);
        let huge = &mut self.heap.huge;
        if units.end - units.start < HUGE_RUN_UNITS_MIN || !huge.are_wanted(in_use) {
            return;
        }
        let Some(first) = self.region.align_unit(units.start, HUGE_UNITS) else { return };
        // What lies behind a block's end is in the last unit, and does not become resident.
        let count = ((units.end - 1).saturating_sub(first) / HUGE_UNITS).min(huge.advisable());
        if count == 0 || !huge.take_due(|| os.now_ms()) {
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
}
