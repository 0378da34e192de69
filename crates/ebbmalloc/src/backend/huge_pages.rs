//! Decides when the heap grows by a huge page, and records where huge pages are.
//!
//! A huge page has 2 MiB, which take one page fault instead of 512, and one entry of the
//! processor's page table cache (TLB). It takes the kernel 0.1 ms if it has free ones. It takes
//! several where the kernel must first compact memory, or where it is the guest of a machine that
//! must find the memory. So the program finds out: it measures each, and some small pages. What
//! huge ones take more than small ones may be a fixed share of the program's time
//! (decisions/0037).

use core::iter::StepBy;
use core::ops::Range;

use crate::backend::mappings::marks;
use crate::backend::region::{Region, UnitIndex};
use crate::backend::retention::PageCounts;
use crate::backend::tuning::{
    HUGE_CREDIT_NS_MAX, HUGE_IN_USE_UNITS_MIN, HUGE_PAGES_PER_MEASURE, HUGE_SKIPS_LOG_MAX,
    HUGE_TIME_DIVISOR, HUGE_UNITS, SMALL_NS_MAX,
};
use crate::platform::options::HugeChoice;
use crate::platform::os::Os;
use crate::size_class::UNIT;

/// The huge pages that the heap has had, and the time that it may spend on more.
pub(crate) struct HugePages {
    pub choice: HugeChoice,
    /// Time that may be spent on huge pages beyond what small ones take, in ns; negative after a
    /// dear one. It was earned up to `earned_ms`, by the clock of `Os`.
    credit_ns: i64,
    earned_ms: u64,
    /// What the memory of a huge page takes in small pages, in ns, and how many huge pages were had
    /// since that was measured.
    small_ns: i64,
    since_small: u32,
    /// Times in a row that the kernel gave none, and how many more times not to ask for that.
    refusals: u32,
    skips: u32,
    /// The units of the newest huge page that were not handed out yet, if they are still free. Only
    /// runs that are touched whole may lie there: others would keep memory resident that the
    /// program never touches.
    pub untouched: Range<UnitIndex>,
    pub totals: HugeTotals,
}

/// How much of a run the program will touch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Touch {
    /// All of it, soon.
    Whole,
    /// Perhaps only a page.
    Unknown,
}

/// By what the heap should grow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum GrowBy {
    /// What is needed.
    Need,
    /// A unit of small pages, whose time is to be measured.
    MeasuredUnit,
    /// A huge page, whose time is to be measured.
    HugePage,
}

/// What huge pages were asked for since the start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HugeTotals {
    pub pages: usize,
    /// Requests after which small pages were found.
    pub refusals: usize,
    /// Time that the kernel took for `pages`, in ns.
    pub ns: u64,
}

impl HugePages {
    /// None yet. All zero bytes, as are all initial values of an engine, so that files hold none.
    pub const fn new() -> Self {
        Self {
            choice: HugeChoice::Auto,
            credit_ns: 0,
            earned_ms: 0,
            small_ns: 0,
            since_small: 0,
            refusals: 0,
            skips: 0,
            untouched: 0..0,
            totals: HugeTotals { pages: 0, refusals: 0, ns: 0 },
        }
    }

    /// Sets whether huge pages are wanted. The first credit is earned from now on.
    pub fn set_up(&mut self, choice: HugeChoice, now_ms: u64) {
        (self.choice, self.earned_ms) = (choice, now_ms);
    }

    /// Whether the heap may have huge pages, with `in_use` units in use.
    pub fn are_wanted(&self, in_use: usize) -> bool {
        self.choice != HugeChoice::Never && in_use >= HUGE_IN_USE_UNITS_MIN
    }

    /// By what the heap should grow, with `in_use` units in use.
    pub fn next_growth(&mut self, now_ms: impl FnOnce() -> u64, in_use: usize) -> GrowBy {
        if !self.are_wanted(in_use) {
            return GrowBy::Need;
        }
        if self.skips > 0 {
            self.skips -= 1;
            return GrowBy::Need;
        }
        if self.choice == HugeChoice::Always {
            return GrowBy::HugePage;
        }
        let now_ms = now_ms();
        let earned_ms = now_ms.saturating_sub(self.earned_ms) as i64;
        self.earned_ms = now_ms;
        let credit_ns = self.credit_ns + earned_ms * 1_000_000 / HUGE_TIME_DIVISOR;
        self.credit_ns = credit_ns.min(HUGE_CREDIT_NS_MAX);
        if self.credit_ns < 0 {
            GrowBy::Need
        } else if self.small_ns == 0 || self.since_small >= HUGE_PAGES_PER_MEASURE {
            GrowBy::MeasuredUnit
        } else {
            GrowBy::HugePage
        }
    }

    /// Records the time that a unit of small pages took.
    pub fn record_small(&mut self, ns: u64) {
        // Another thread may have run meanwhile.
        let most_ns = if self.small_ns > 0 { 2 * self.small_ns } else { SMALL_NS_MAX };
        let all_ns = (ns as i64).saturating_mul(i64::from(HUGE_UNITS));
        self.small_ns = all_ns.clamp(1, most_ns.min(SMALL_NS_MAX));
        self.since_small = 0;
    }

    /// Records what came of a request: the time that a huge page took, or that there was none.
    pub fn record(&mut self, took_ns: Option<u64>) {
        let Some(ns) = took_ns else {
            self.totals.refusals += 1;
            return self.wait();
        };
        self.totals.pages += 1;
        self.totals.ns += ns;
        self.refusals = 0;
        self.since_small += 1;
        let extra_ns = (ns as i64 - self.small_ns).max(0);
        // The process may have been stopped meanwhile.
        self.credit_ns = (self.credit_ns - extra_ns).max(-HUGE_CREDIT_NS_MAX);
    }

    /// Asks less often, after a refusal or where there is no place for a huge page.
    pub fn wait(&mut self) {
        self.refusals = (self.refusals + 1).min(HUGE_SKIPS_LOG_MAX);
        self.skips = (1 << self.refusals) - 1;
    }

    /// Backs a clean unit by small pages, and measures that.
    pub fn back_unit(&mut self, region: &Region, os: &impl Os, first: UnitIndex) {
        // SAFETY: the unit is committed and clean, and no thread uses it.
        let took_ns = unsafe { os.back_by_small_pages(region.address(first), UNIT) };
        self.record_small(took_ns);
    }

    /// Whether a run of such use may be taken here, where memory is resident.
    pub fn allows(&self, touch: Touch, run: Range<UnitIndex>) -> bool {
        touch == Touch::Whole || !overlap(&self.untouched, &run)
    }

    /// Records that these units are handed out or purged.
    pub fn take(&mut self, units: Range<UnitIndex>) {
        if overlap(&self.untouched, &units) {
            self.untouched.start = units.end.min(self.untouched.end);
        }
    }

    /// Backs clean units by a huge page. False if the kernel has none.
    pub fn back(
        &mut self,
        region: &Region,
        os: &impl Os,
        counts: &mut PageCounts,
        first: UnitIndex,
    ) -> bool {
        // SAFETY: the units are committed and clean, and no thread uses them.
        let took_ns =
            unsafe { os.back_by_huge_page(region.address(first), HUGE_UNITS as usize * UNIT) };
        self.record(took_ns);
        mark(region, counts, first, took_ns.is_some());
        took_ns.is_some()
    }

    /// Which part of a free run to purge, if `units` units of it are to go: whole huge pages, if
    /// there are any in it, and then rather more than fewer units; else its end.
    pub fn part_to_purge(
        &self,
        region: &Region,
        run: Range<UnitIndex>,
        units: u32,
    ) -> Range<UnitIndex> {
        let up = |unit: UnitIndex| region.align_unit(unit, HUGE_UNITS).unwrap_or(run.end);
        let down = |unit: UnitIndex| up((unit + 1).saturating_sub(HUGE_UNITS));
        let (low, high) = (up(run.start), down(run.end));
        if self.totals.pages == 0 || low >= high {
            return run.end - units..run.end;
        }
        let start = down(high - units.min(high - low));
        start.max(low)..high
    }
}

fn overlap(one: &Range<UnitIndex>, other: &Range<UnitIndex>) -> bool {
    one.start < other.end && other.start < one.end
}

/// Records whether a huge page begins at this unit. The caller holds the lock of the page heap.
fn mark(region: &Region, counts: &mut PageCounts, first: UnitIndex, huge: bool) {
    let old = marks(region, first);
    counts.huge_pages = counts.huge_pages + huge as usize - old.huge() as usize;
    // SAFETY: the unit is committed, and the lock of the page heap guards its record.
    unsafe { (*region.run(first)).marks = old.with_huge(huge) }
}

/// The units at which huge pages would begin that reach into these units.
pub(super) fn places(
    region: &Region,
    counts: &PageCounts,
    units: Range<UnitIndex>,
) -> StepBy<Range<UnitIndex>> {
    let before = units.start.saturating_sub(HUGE_UNITS - 1);
    let first = region.align_unit(before, HUGE_UNITS).unwrap_or(units.end);
    let none = counts.huge_pages == 0;
    let all = if none { 0..0 } else { first..units.end };
    all.step_by(HUGE_UNITS as usize)
}

/// Records that a part of these units is not resident any more.
pub(super) fn break_in(region: &Region, counts: &mut PageCounts, units: Range<UnitIndex>) {
    for first in places(region, counts, units) {
        mark(region, counts, first, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENOUGH: usize = HUGE_IN_USE_UNITS_MIN;
    /// What 512 small pages take in these tests.
    const SMALL_NS: u64 = 1_600_000;

    fn pages(choice: HugeChoice) -> HugePages {
        let mut huge = HugePages::new();
        huge.set_up(choice, 0);
        huge
    }

    /// Lets the heap grow once. True if by a huge page, which takes `ns`.
    fn grow(huge: &mut HugePages, now_ms: u64, ns: u64) -> bool {
        match huge.next_growth(|| now_ms, ENOUGH) {
            GrowBy::Need => return false,
            GrowBy::MeasuredUnit => huge.record_small(SMALL_NS / u64::from(HUGE_UNITS)),
            GrowBy::HugePage => huge.record(Some(ns)),
        }
        true
    }

    /// How many huge pages a program gets in four seconds in which it always wants more, if each
    /// takes `ns`.
    fn had(choice: HugeChoice, ns: u64) -> usize {
        let mut huge = pages(choice);
        (0..4000).for_each(|now_ms| _ = grow(&mut huge, now_ms, ns));
        huge.totals.pages
    }

    #[test]
    fn small_heaps_and_those_that_want_none_have_none() {
        for choice in [HugeChoice::Auto, HugeChoice::Always] {
            assert_eq!(pages(choice).next_growth(|| 0, ENOUGH - 1), GrowBy::Need);
        }
        assert_eq!(had(HugeChoice::Never, 1), 0);
    }

    #[test]
    fn cheap_ones_are_had_whenever_memory_is_needed() {
        assert!(had(HugeChoice::Auto, SMALL_NS) > 4000 - 4000 / 15);
        assert_eq!(had(HugeChoice::Always, 100 * SMALL_NS), 4000);
    }

    #[test]
    fn dear_ones_take_a_share_of_the_time() {
        let extra_ns = SMALL_NS as i64;
        let spent_ns = had(HugeChoice::Auto, 2 * SMALL_NS) as i64 * extra_ns;
        let share_ns = 4_000_000_000 / HUGE_TIME_DIVISOR;
        let range = share_ns - extra_ns..=share_ns + extra_ns;
        assert!(range.contains(&spent_ns), "{spent_ns} of {share_ns}");
    }

    #[test]
    fn who_waits_saves_no_more_than_so_much() {
        let mut huge = pages(HugeChoice::Auto);
        let day_ms = 86_400_000;
        while grow(&mut huge, day_ms, 2 * SMALL_NS) {}
        let spent_ns = huge.totals.pages as i64 * SMALL_NS as i64;
        assert!(spent_ns <= HUGE_CREDIT_NS_MAX + SMALL_NS as i64, "{spent_ns}");
    }

    #[test]
    fn refusals_make_requests_rare() {
        let mut huge = pages(HugeChoice::Always);
        let mut asked = 0;
        for _ in 0..10_000 {
            if huge.next_growth(|| 0, ENOUGH) == GrowBy::HugePage {
                huge.record(None);
                asked += 1;
            }
        }
        assert!((10_000 >> HUGE_SKIPS_LOG_MAX..300).contains(&asked), "{asked}");
        (0..1 << HUGE_SKIPS_LOG_MAX).for_each(|_| _ = huge.next_growth(|| 0, ENOUGH));
        huge.record(Some(1));
        assert!(grow(&mut huge, 0, 1) && grow(&mut huge, 0, 1));
    }
}
