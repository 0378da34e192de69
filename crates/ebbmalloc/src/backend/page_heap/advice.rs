//! Lets huge pages back long runs in use as the program touches them, and records what is in huge
//! pages no more.

use core::ops::Range;

use super::Pages;
use crate::backend::huge_pages::{self, HUGE_BYTES};
use crate::backend::mappings::flags;
use crate::backend::run::UnitFlags;
use crate::backend::tuning::{HUGE_RUN_UNITS_MIN, HUGE_UNITS};
use crate::backend::units::{UnitIndex, UnitRange};
use crate::options::HugeChoice;
use crate::platform::os::Os;
use crate::size_class::UNIT;

impl<O: Os> Pages<'_, O> {
    /// Lets huge pages back a long run in use of which nothing is resident yet, as the program
    /// touches it: the first one at once, to measure what it takes.
    ///
    /// The program may touch a page of each. So they are lent: until a part of one is purged, it
    /// counts against a bound, also if the run was freed and others have its memory now.
    pub(super) fn advise(&mut self, units: Range<UnitIndex>) {
        let os = self.os;
        let (heap, now_ms) = (&mut *self.heap, || os.now_ms());
        if units.end - units.start < HUGE_RUN_UNITS_MIN || !heap.huge.are_wanted(heap.counts.in_use)
        {
            return;
        }
        let Some(first) = self.region.align_unit(units.start, HUGE_UNITS) else { return };
        // What lies behind a block's end is in the last unit, and does not become resident.
        let count = (units.end - 1).saturating_sub(first) / HUGE_UNITS;
        let count = count.min(heap.huge.lendable(heap.counts.lent, now_ms));
        if count == 0 || !heap.huge.take_due(now_ms) {
            return;
        }
        // SAFETY: the units are in use, and none was touched yet.
        let took_ns = unsafe { os.back_by_huge_page(self.region.address(first), HUGE_BYTES) };
        heap.huge.record(took_ns);
        if took_ns.is_none() {
            return;
        }
        let rest = first + HUGE_UNITS..first + count * HUGE_UNITS;
        let is_advised = !rest.is_empty() && heap.huge.take_due(now_ms) && self.allow(&rest);
        let count = if is_advised { count } else { 1 };
        self.heap.huge.lend(count);
        for place in places_in(first, count) {
            huge_pages::mark(self.region, &mut self.heap.counts, place, true);
            self.set_lent(place, true);
            self.set_advised(place, place > first);
        }
    }

    /// Lets the kernel back these units by huge pages. False if it refuses.
    fn allow(&self, units: &Range<UnitIndex>) -> bool {
        let is_allowed = self.tell(units, true);
        if !is_allowed {
            // It may have come half-way.
            self.tell(units, false);
        }
        is_allowed
    }

    /// Tells the kernel whether it may back these units by huge pages. False if it refuses.
    fn tell(&self, units: &Range<UnitIndex>, allowed: bool) -> bool {
        let (start, bytes) = (self.region.address(units.start), units.len() * UNIT);
        // SAFETY: the units are committed, and advice changes no contents.
        units.is_empty() || unsafe { self.os.allow_huge_pages(start, bytes, allowed) }
    }

    /// Sets whether huge pages are wanted. Those that were not given yet are not either.
    pub fn choose_huge(&mut self, choice: HugeChoice) {
        self.heap.huge.choose(choice);
        if choice == HugeChoice::Never {
            self.end_advice(0..self.heap.frontier);
        }
    }

    /// Takes the advice back that reaches into these units: the run there becomes shorter, moves,
    /// or is freed. The kernel may refuse it where that divides a mapping and there are too many:
    /// then it may still back these places, which stay lent.
    pub fn end_advice(&mut self, units: Range<UnitIndex>) {
        if self.heap.huge.advised == 0 {
            return;
        }
        let mut stretch = 0..0;
        for place in huge_pages::places(self.region, &self.heap.counts, units) {
            if !flags(self.region, place).advised() {
                continue;
            }
            self.set_advised(place, false);
            if place != stretch.end {
                self.tell(&stretch, false);
                stretch.start = place;
            }
            stretch.end = place + HUGE_UNITS;
        }
        self.tell(&stretch, false);
    }

    /// How many huge pages are lent to a run in these units.
    pub fn lent_to(&self, units: UnitRange) -> u32 {
        let places = huge_pages::places(self.region, &self.heap.counts, units.first()..units.end());
        places.filter(|&place| flags(self.region, place).lent()).count() as u32
    }

    /// Records that the pages of a run with `lent` huge pages have moved to these units, which are
    /// no fewer. The last place may reach over their end.
    pub fn move_lent(&mut self, lent: u32, units: UnitRange) {
        if let Some(first) = self.region.align_unit(units.first(), HUGE_UNITS) {
            let places = places_in(first, lent).take_while(|&place| place < units.end());
            places.for_each(|place| self.set_lent(place, true));
        }
    }

    fn set_advised(&mut self, place: UnitIndex, advised: bool) {
        let flags = flags(self.region, place);
        self.heap.huge.advised += advised as u32;
        self.heap.huge.advised -= flags.advised() as u32;
        self.set_flags(place, flags.with_advised(advised));
    }

    fn set_lent(&mut self, place: UnitIndex, lent: bool) {
        let flags = flags(self.region, place);
        self.heap.counts.lent += lent as usize;
        self.heap.counts.lent -= flags.lent() as usize;
        self.set_flags(place, flags.with_lent(lent));
    }

    fn set_flags(&mut self, place: UnitIndex, flags: UnitFlags) {
        // SAFETY: the unit is committed, and the lock of the page heap guards its record.
        unsafe { (*self.region.run(place)).flags = flags }
    }

    /// Records that a part of these units is not resident any more.
    pub(super) fn break_in(&mut self, units: Range<UnitIndex>) {
        self.end_advice(units.clone());
        for place in huge_pages::places(self.region, &self.heap.counts, units) {
            let flags = flags(self.region, place);
            // Records of a long range that was never touched are not written.
            if flags.huge() || flags.lent() {
                huge_pages::mark(self.region, &mut self.heap.counts, place, false);
                self.set_lent(place, false);
            }
        }
    }
}

/// `count` places of huge pages, from the one at `first` on.
fn places_in(first: UnitIndex, count: u32) -> impl Iterator<Item = UnitIndex> {
    (0..count).map(move |nth| first + nth * HUGE_UNITS)
}
