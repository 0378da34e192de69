//! Decides when the heap grows by a huge page: 2 MiB that take one page fault instead of 512, and
//! one entry of the processor's page table cache (TLB).
//!
//! A huge page takes the kernel 0.1 ms if it has free ones. It takes several where the kernel must
//! first compact memory, or where it is the guest of a machine that must find the memory. So the
//! program finds out: it measures each, and spends at most a fixed share of its time on them
//! (decisions/0037).

use core::ops::Range;

use crate::backend::region::{Region, UnitIndex};
use crate::backend::tuning::{
    HUGE_CREDIT_US_FIRST, HUGE_CREDIT_US_MAX, HUGE_IN_USE_UNITS_MIN, HUGE_SKIPS_LOG_MAX,
    HUGE_TIME_DIVISOR, HUGE_UNITS, HUGE_US_FREE,
};
use crate::platform::options::HugeChoice;

/// The huge pages that the heap has had, and the time that it may spend on more.
pub(crate) struct HugePages {
    pub choice: HugeChoice,
    /// Time that may be spent on huge pages, in µs; negative after a long one. As of `earned_ms`,
    /// by the clock of `Os`.
    credit_us: i64,
    earned_ms: Option<u64>,
    /// Times in a row that the kernel gave none, and how many more times not to ask for that.
    refusals: u32,
    skips: u32,
    /// The end of the newest huge page, as far as no unit of it was ever handed out: it holds
    /// zeros.
    pub fresh: Range<UnitIndex>,
    pub totals: HugeTotals,
}

/// What huge pages were asked for since the start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HugeTotals {
    pub pages: usize,
    /// Requests after which small pages were found.
    pub refusals: usize,
    /// Time that the kernel took for `pages`, in ns.
    pub ns: u64,
}

impl HugePages {
    /// None, and none wanted.
    pub const fn new() -> Self {
        Self {
            choice: HugeChoice::Never,
            credit_us: 0,
            earned_ms: None,
            refusals: 0,
            skips: 0,
            fresh: 0..0,
            totals: HugeTotals { pages: 0, refusals: 0, ns: 0 },
        }
    }

    /// Whether to ask for a huge page now that the heap grows, with `in_use` units in use.
    pub fn may_ask(&mut self, now_ms: impl FnOnce() -> u64, in_use: usize) -> bool {
        if self.choice == HugeChoice::Never || in_use < HUGE_IN_USE_UNITS_MIN {
            return false;
        }
        if self.skips > 0 {
            self.skips -= 1;
            return false;
        }
        self.choice == HugeChoice::Always || self.earn(now_ms()) >= 0
    }

    /// Adds the credit that the time since the last call has earned. Returns the sum.
    fn earn(&mut self, now_ms: u64) -> i64 {
        let earned_us = match self.earned_ms.replace(now_ms) {
            Some(before_ms) => now_ms.saturating_sub(before_ms) as i64 * 1000 / HUGE_TIME_DIVISOR,
            None => HUGE_CREDIT_US_FIRST,
        };
        self.credit_us = (self.credit_us + earned_us).min(HUGE_CREDIT_US_MAX);
        self.credit_us
    }

    /// Records what came of a request: the time that a huge page took, or that there was none.
    pub fn record(&mut self, took_ns: Option<u64>) {
        let Some(ns) = took_ns else {
            self.totals.refusals += 1;
            self.refusals = (self.refusals + 1).min(HUGE_SKIPS_LOG_MAX);
            self.skips = (1 << self.refusals) - 1;
            return;
        };
        self.totals.pages += 1;
        self.totals.ns += ns;
        self.refusals = 0;
        self.credit_us -= (ns as i64 / 1000 - HUGE_US_FREE).max(0);
    }

    /// Whether all of these units are fresh.
    pub fn is_fresh(&self, units: Range<UnitIndex>) -> bool {
        self.fresh.start <= units.start && units.end <= self.fresh.end
    }

    /// Records that these units are not free any more. What lies before them is not fresh either.
    pub fn use_fresh(&mut self, units: Range<UnitIndex>) {
        if units.start < self.fresh.end && self.fresh.start < units.end {
            self.fresh.start = units.end.min(self.fresh.end);
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    const ENOUGH: usize = HUGE_IN_USE_UNITS_MIN;

    fn pages(choice: HugeChoice) -> HugePages {
        HugePages { choice, ..HugePages::new() }
    }

    /// How many huge pages a program gets in `seconds` in which it always wants more, if each
    /// takes `us`.
    fn had(choice: HugeChoice, seconds: u64, us: u64) -> usize {
        let mut huge = pages(choice);
        for ms in 0..1000 * seconds {
            if huge.may_ask(|| ms, ENOUGH) {
                huge.record(Some(us * 1000));
            }
        }
        huge.totals.pages
    }

    #[test]
    fn small_heaps_and_those_that_want_none_have_none() {
        assert!(!pages(HugeChoice::Auto).may_ask(|| 0, ENOUGH - 1));
        assert!(!pages(HugeChoice::Always).may_ask(|| 0, ENOUGH - 1));
        assert_eq!(had(HugeChoice::Never, 1, 1), 0);
    }

    #[test]
    fn dear_ones_take_a_share_of_the_time() {
        assert_eq!(had(HugeChoice::Auto, 4, 100), 4000);
        assert_eq!(had(HugeChoice::Always, 4, 4000), 4000);
        let spent_us = had(HugeChoice::Auto, 4, 4000) as i64 * (4000 - HUGE_US_FREE);
        let share_us = 4_000_000 / HUGE_TIME_DIVISOR + HUGE_CREDIT_US_FIRST;
        assert!((share_us - 4000..=share_us + 4000).contains(&spent_us), "{spent_us} of {share_us}");
    }

    #[test]
    fn who_waits_saves_no_more_than_so_much() {
        let mut huge = pages(HugeChoice::Auto);
        assert!(huge.may_ask(|| 0, ENOUGH));
        let day_ms = 86_400_000;
        let mut times = 0;
        while huge.may_ask(|| day_ms, ENOUGH) {
            huge.record(Some(4_000_000));
            times += 1;
        }
        assert!(times * (4000 - HUGE_US_FREE) <= HUGE_CREDIT_US_MAX + 4000, "{times} times");
    }

    #[test]
    fn refusals_make_requests_rare() {
        let mut huge = pages(HugeChoice::Always);
        let mut asked = 0;
        for _ in 0..10_000 {
            if huge.may_ask(|| 0, ENOUGH) {
                huge.record(None);
                asked += 1;
            }
        }
        assert!((10_000 >> HUGE_SKIPS_LOG_MAX..300).contains(&asked), "{asked}");
        (0..1 << HUGE_SKIPS_LOG_MAX).for_each(|_| _ = huge.may_ask(|| 0, ENOUGH));
        huge.record(Some(1));
        assert!(huge.may_ask(|| 0, ENOUGH) && huge.may_ask(|| 0, ENOUGH));
    }

    #[test]
    fn what_was_handed_out_is_not_fresh() {
        let mut huge = HugePages { fresh: 32..64, ..HugePages::new() };
        assert!(huge.is_fresh(32..64) && !huge.is_fresh(31..33) && !huge.is_fresh(63..65));
        huge.use_fresh(0..32);
        huge.use_fresh(64..70);
        assert_eq!(huge.fresh, 32..64);
        huge.use_fresh(40..41);
        assert_eq!(huge.fresh, 41..64);
        huge.use_fresh(60..70);
        assert!(huge.fresh.is_empty() && !huge.is_fresh(63..64));
    }
}
