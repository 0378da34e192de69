//! Decides when the heap grows by a huge page, and records where huge pages are.
//!
//! A huge page has 2 MiB, which take one page fault instead of 512, and one entry of the
//! processor's page table cache (TLB). It takes the kernel some 0.3 ms if one is free. It takes
//! several milliseconds where the kernel must first compact memory, or where it is the guest of a
//! machine that must find the memory. So each is measured. What huge pages take more than
//! small ones would may be a fixed share of the program's time (decisions/0037).
//!
//! The clock ticks a few milliseconds apart: most huge pages seem to take no time, and a few a
//! whole tick. The sum over many is right nevertheless, and the share is of the sum.

use core::iter::StepBy;
use core::ops::Range;

use crate::backend::budget::Budget;
use crate::backend::mappings::flags;
use crate::backend::region::{Region, UnitIndex};
use crate::backend::retention::PageCounts;
use crate::backend::tuning::{
    BUDGET_NS_MAX, FIRST_CREDIT_NS, HUGE_IN_USE_UNITS_MIN, HUGE_RUN_PAGES_MAX, HUGE_SKIPS_LOG_MAX,
    HUGE_UNITS, SMALL_NS,
};
use crate::options::HugeChoice;
use crate::size_class::UNIT;

/// What a huge page of a long run costs: so as many as there may be at a time are paid at first.
const LENT_NS: u64 = BUDGET_NS_MAX as u64 / HUGE_RUN_PAGES_MAX as u64;

/// Bytes of a huge page.
pub(crate) const HUGE_BYTES: usize = HUGE_UNITS as usize * UNIT;

/// The huge pages that the heap has had, and the time that it may spend on more.
pub(crate) struct HugePages {
    pub choice: HugeChoice,
    /// Whether the kernel may have any.
    are_possible: bool,
    /// Time that may be spent on huge pages beyond what small ones take.
    budget: Budget,
    /// Times in a row that the kernel refused, and how many more times not to ask for that.
    refusals: u32,
    skips: u32,
    /// The units of the newest huge page that were not handed out yet, if they are still free. Only
    /// runs that are touched whole may lie there: others would keep memory resident that the
    /// program never touches.
    pub untouched: Range<UnitIndex>,
    /// Pays for huge pages of long runs, [`LENT_NS`] each: the program may hardly touch them.
    lent: Budget,
    /// Huge pages that the kernel may give to long runs in use, once the program touches them.
    pub advised: u32,
    pub totals: HugeTotals,
    /// What the last run that could have had one was told. Other processes read it.
    pub answer: HugeAnswer,
}

/// Declares the answers, in the order of their numbers, with the words for them.
macro_rules! answers {
    ($($(#[doc = $doc:literal])+ $name:ident $words:literal;)+) => {
        /// Whether the heap grew by a huge page when it last could have, or why not.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(usize)]
        pub(crate) enum HugeAnswer { $($(#[doc = $doc])+ $name,)+ }

        impl HugeAnswer {
            /// Decodes a word that was read from a process, which may lie.
            pub fn from_word(word: usize) -> Self {
                [$(Self::$name),+].get(word).copied().unwrap_or(Self::Unasked)
            }

            /// Why the heap has no more of them.
            pub fn why(self) -> &'static str {
                match self { $(Self::$name => $words,)+ }
            }
        }
    };
}

answers! {
    /// No run could have had one since set-up.
    Unasked "no block needed one: those up to 4 KiB and from 4 MiB on may, from 16 MiB in use on";
    /// The option forbids them.
    Forbidden "EBB_HUGE=never, or EBB_HARDEN, forbids them";
    /// The system has none for programs.
    Missing "the system has none for it (Linux: /sys/kernel/mm/transparent_hugepage, 4 KiB pages)";
    /// The heap grew by one.
    Given "it got one when it last grew";
    /// Long runs have as many as they may.
    Bounded "blocks from 4 MiB on have 64 MiB, or had them lately, the most with EBB_HUGE=auto";
    /// They have used up their time.
    Dear "they took too long lately, so the heap asks again later";
    /// The kernel refused the last one, or there was no place for it.
    Refused "the kernel refused one, or no place was free, so the heap asks again later";
}

/// How much of a run the program will touch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Touch {
    /// All of it, soon.
    Whole,
    /// Perhaps only a page.
    Unknown,
}

/// What huge pages were asked for since the start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HugeTotals {
    /// Requests that the kernel accepted. It may have given small pages.
    pub pages: usize,
    /// Requests that the kernel refused.
    pub refusals: usize,
    /// Time that the kernel took for those that the engine touched, in ns.
    pub ns: u64,
}

impl HugePages {
    /// None yet. All zero bytes, as are all initial values of an engine, so that files hold none.
    pub const fn new() -> Self {
        Self {
            choice: HugeChoice::Auto,
            are_possible: false,
            budget: Budget::new(),
            refusals: 0,
            skips: 0,
            untouched: 0..0,
            lent: Budget::new(),
            advised: 0,
            totals: HugeTotals { pages: 0, refusals: 0, ns: 0 },
            answer: HugeAnswer::Unasked,
        }
    }

    /// Sets whether huge pages are wanted and possible. The first credit is earned from now on.
    pub fn set_up(&mut self, choice: HugeChoice, are_possible: bool, now_ms: u64) {
        self.are_possible = are_possible;
        self.choose(choice);
        self.budget.begin(now_ms);
        self.budget.spend(-FIRST_CREDIT_NS);
        self.lent.begin(now_ms);
        self.lent.spend(-BUDGET_NS_MAX);
    }

    /// Sets whether huge pages are wanted.
    pub fn choose(&mut self, choice: HugeChoice) {
        self.choice = choice;
        self.answer = match (choice, self.are_possible) {
            (HugeChoice::Never, _) => HugeAnswer::Forbidden,
            (_, false) => HugeAnswer::Missing,
            _ => HugeAnswer::Unasked,
        };
    }

    /// Whether the heap may have huge pages, with `in_use` units in use.
    pub fn are_wanted(&self, in_use: usize) -> bool {
        self.choice != HugeChoice::Never && self.are_possible && in_use >= HUGE_IN_USE_UNITS_MIN
    }

    /// How many more huge pages long runs may have, if they have `lent`.
    pub fn lendable(&mut self, lent: usize, now_ms: impl FnOnce() -> u64) -> u32 {
        if self.choice == HugeChoice::Always {
            return u32::MAX / HUGE_UNITS;
        }
        self.lent.earn(now_ms());
        let by_time = (self.lent.left_ns() / LENT_NS) as u32;
        let more = HUGE_RUN_PAGES_MAX.saturating_sub(lent as u32).min(by_time);
        if more == 0 {
            self.answer = HugeAnswer::Bounded;
        }
        more
    }

    /// Records that a long run may have `count` of them. The first was recorded before.
    ///
    /// What the others take is not measured. To charge what the first took for each of them would
    /// end huge pages by one tick of the clock.
    pub fn lend(&mut self, count: u32) {
        self.totals.pages += count as usize - 1;
        self.lent.spend(count as i64 * LENT_NS as i64);
    }

    /// Whether the heap should grow by a huge page now, if it may have one.
    pub fn take_due(&mut self, now_ms: impl FnOnce() -> u64) -> bool {
        if self.skips > 0 {
            self.skips -= 1;
            return false;
        }
        if self.choice == HugeChoice::Always {
            return true;
        }
        self.budget.earn(now_ms());
        if !self.budget.is_left() {
            self.answer = HugeAnswer::Dear;
        }
        self.budget.is_left()
    }

    /// Records what came of a request: the time that it took, or that the kernel refused.
    pub fn record(&mut self, took_ns: Option<u64>) {
        let Some(ns) = took_ns else {
            self.totals.refusals += 1;
            return self.back_off();
        };
        self.answer = HugeAnswer::Given;
        self.totals.pages += 1;
        self.totals.ns += ns;
        self.refusals = 0;
        // Negative for some: only the sum is right. The process may have been stopped meanwhile.
        self.budget.spend((ns as i64 - SMALL_NS).min(BUDGET_NS_MAX));
    }

    /// Asks less often, after a refusal or where there is no place for a huge page.
    pub fn back_off(&mut self) {
        self.refusals = (self.refusals + 1).min(HUGE_SKIPS_LOG_MAX);
        self.skips = (1 << self.refusals) - 1;
        self.answer = HugeAnswer::Refused;
    }

    /// Whether a run of this use may have these dirty units.
    pub fn allows(&self, touch: Touch, run: Range<UnitIndex>) -> bool {
        touch == Touch::Whole || !overlap(&self.untouched, &run)
    }

    /// Records that these units are handed out or purged.
    pub fn take(&mut self, units: Range<UnitIndex>) {
        if !overlap(&self.untouched, &units) {
            return;
        }
        match units.start > self.untouched.start && units.end >= self.untouched.end {
            true => self.untouched.end = units.start,
            // Units before a part from the middle are as others from now on.
            false => self.untouched.start = units.end.min(self.untouched.end),
        }
    }
}

/// Which part of a free run to purge, if `units` units of it are to go: if there are huge pages in
/// it, whole places of such pages, so perhaps more units; else its end.
pub(super) fn part_to_purge(
    region: &Region,
    counts: &PageCounts,
    run: Range<UnitIndex>,
    units: u32,
) -> Range<UnitIndex> {
    let up = |unit: UnitIndex| region.align_unit(unit, HUGE_UNITS).unwrap_or(run.end);
    let down = |unit: UnitIndex| up((unit + 1).saturating_sub(HUGE_UNITS));
    let (low, high) = (up(run.start), down(run.end));
    if low >= high || !places(region, counts, low..high).any(|at| flags(region, at).huge()) {
        return run.end - units..run.end;
    }
    let start = down(high - units.min(high - low));
    start.max(low)..high
}

/// An empty range overlaps none.
fn overlap(one: &Range<UnitIndex>, other: &Range<UnitIndex>) -> bool {
    one.start.max(other.start) < one.end.min(other.end)
}

/// Records whether a huge page begins at this unit. The caller holds the lock of the page heap.
pub(super) fn mark(region: &Region, counts: &mut PageCounts, first: UnitIndex, huge: bool) {
    let old = flags(region, first);
    counts.huge_pages = counts.huge_pages + huge as usize - old.huge() as usize;
    // SAFETY: the unit is committed, and the lock of the page heap guards its record.
    unsafe { (*region.run(first)).flags = old.with_huge(huge) }
}

/// The units at which huge pages would begin that reach into these units.
pub(super) fn places(
    region: &Region,
    counts: &PageCounts,
    units: Range<UnitIndex>,
) -> StepBy<Range<UnitIndex>> {
    let before = units.start.saturating_sub(HUGE_UNITS - 1);
    let first = region.align_unit(before, HUGE_UNITS).unwrap_or(units.end);
    let none = counts.huge_pages == 0 && counts.lent == 0;
    let all = if none { 0..0 } else { first..units.end };
    all.step_by(HUGE_UNITS as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::tuning::BUDGET_DIVISOR;

    const ENOUGH: usize = HUGE_IN_USE_UNITS_MIN;
    /// What a huge page takes in these tests where it is dear, and what of that is charged.
    const DEAR_NS: u64 = 2_000_000;
    const EXTRA_NS: i64 = DEAR_NS as i64 - SMALL_NS;

    fn pages(choice: HugeChoice) -> HugePages {
        let mut huge = HugePages::new();
        huge.set_up(choice, true, 0);
        huge
    }

    /// Lets the heap grow once. True if by a huge page, which takes `ns`.
    fn grow(huge: &mut HugePages, now_ms: u64, ns: u64) -> bool {
        let due = huge.are_wanted(ENOUGH) && huge.take_due(|| now_ms);
        if due {
            huge.record(Some(ns));
        }
        due
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
            assert!(!pages(choice).are_wanted(ENOUGH - 1));
        }
        assert_eq!(had(HugeChoice::Never, 1), 0);
    }

    #[test]
    fn cheap_ones_are_had_whenever_memory_is_needed() {
        assert_eq!(had(HugeChoice::Auto, SMALL_NS as u64), 4000);
        assert_eq!(had(HugeChoice::Always, 100 * SMALL_NS as u64), 4000);
    }

    #[test]
    fn dear_ones_take_a_share_of_the_time() {
        let spent_ns = had(HugeChoice::Auto, DEAR_NS) as i64 * EXTRA_NS;
        let share_ns = 4_000_000_000 / BUDGET_DIVISOR + FIRST_CREDIT_NS;
        let range = share_ns - EXTRA_NS..=share_ns + EXTRA_NS;
        assert!(range.contains(&spent_ns), "{spent_ns} of {share_ns}");
    }

    /// A tick of the clock is seen in one of several huge pages.
    #[test]
    fn a_slow_clock_charges_the_same_sum() {
        for (every, cheap) in [(16, true), (2, false)] {
            let (mut huge, mut nth) = (pages(HugeChoice::Auto), 0);
            let tick_ns = 4_000_000;
            for now_ms in 0..4000 {
                if huge.are_wanted(ENOUGH) && huge.take_due(|| now_ms) {
                    nth += 1;
                    huge.record(Some(if nth % every == 0 { tick_ns } else { 0 }));
                }
            }
            let most = had(HugeChoice::Auto, tick_ns / every);
            let few = most - most / 8..=most + BUDGET_NS_MAX as usize / EXTRA_NS as usize;
            assert!(few.contains(&huge.totals.pages), "{} of {most}", huge.totals.pages);
            assert_eq!(huge.totals.pages == 4000, cheap);
        }
    }

    #[test]
    fn one_that_is_used_up_keeps_no_run_back() {
        let mut huge = pages(HugeChoice::Auto);
        huge.untouched = 32..64;
        assert!(!huge.allows(Touch::Unknown, 60..70) && huge.allows(Touch::Unknown, 64..70));
        huge.take(60..64);
        assert!(!huge.allows(Touch::Unknown, 58..60) && huge.allows(Touch::Unknown, 60..64));
        huge.take(32..40);
        assert!(huge.allows(Touch::Unknown, 32..40) && !huge.allows(Touch::Unknown, 40..41));
        huge.take(40..60);
        assert!(huge.allows(Touch::Unknown, 50..70));
    }

    #[test]
    fn refusals_make_requests_rare() {
        let mut huge = pages(HugeChoice::Always);
        let mut asked = 0;
        for _ in 0..10_000 {
            if huge.take_due(|| 0) {
                huge.record(None);
                asked += 1;
            }
        }
        assert!((10_000 >> HUGE_SKIPS_LOG_MAX..300).contains(&asked), "{asked}");
        (0..1 << HUGE_SKIPS_LOG_MAX).for_each(|_| _ = huge.take_due(|| 0));
        huge.record(Some(1));
        assert!(grow(&mut huge, 0, 1) && grow(&mut huge, 0, 1));
    }
}
