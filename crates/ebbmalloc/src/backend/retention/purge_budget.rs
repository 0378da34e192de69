//! Counts what refaults cost of memory that was purged where no scavenger runs.
//!
//! There, no purge may follow once the program is idle. So memory goes soon, and may be needed
//! again: each of its pages costs a page fault. What that may cost is a budget; the search for
//! pages to purge, where there are few, costs from it too. While it is overdrawn, free runs stay
//! (decisions/0044).

use crate::backend::budget::Budget;
use crate::backend::tuning::REFAULT_MS;

/// What refaults may cost, and whether purges at the end of threads were in vain.
pub(crate) struct PurgeBudget {
    budget: Budget,
    /// Units purged and not needed again yet, and when the last of them was purged.
    purged_units: usize,
    purged_ms: u64,
    /// When the last thread beside the first ended: the units purged then, and how many of these
    /// were not needed again yet.
    end_units: usize,
    end_left_units: usize,
    /// Whether the last such purge was in vain.
    end_was_in_vain: bool,
}

impl PurgeBudget {
    pub const fn new() -> Self {
        Self {
            budget: Budget::new(),
            purged_units: 0,
            purged_ms: 0,
            end_units: 0,
            end_left_units: 0,
            end_was_in_vain: false,
        }
    }

    /// The program has begun: nothing is in the budget yet.
    pub fn begin(&mut self, now_ms: u64) {
        self.budget.begin(now_ms);
    }

    /// Adds to the budget for the time that has passed.
    pub fn earn(&mut self, now_ms: u64) {
        self.budget.earn(now_ms);
    }

    /// Whether refaults have cost more than they may, as of the last [`PurgeBudget::earn`].
    pub fn is_overdrawn(&self) -> bool {
        !self.budget.is_left()
    }

    /// Takes what something has cost.
    pub fn charge(&mut self, ns: i64) {
        self.budget.spend(ns);
    }

    /// Records that units were purged where no scavenger runs.
    pub fn count_purged(&mut self, now_ms: u64, units: u32) {
        if units > 0 {
            self.purged_units += units as usize;
            self.purged_ms = now_ms;
        }
    }

    /// Records that units of runs that were purged recently are needed again. Each costs `unit_ns`.
    pub fn count_refaulted(&mut self, now_ms: u64, units: usize, unit_ns: i64) {
        let charged = self.count_refilled(now_ms, units, unit_ns);
        self.end_left_units = self.end_left_units.saturating_sub(charged);
    }

    /// The same of memory that was purged within spans. Returns how many units were charged.
    pub fn count_refilled(&mut self, now_ms: u64, units: usize, unit_ns: i64) -> usize {
        if now_ms.saturating_sub(self.purged_ms) > REFAULT_MS {
            self.purged_units = 0;
        }
        let charged = units.min(self.purged_units);
        self.purged_units -= charged;
        self.charge((charged as i64).saturating_mul(unit_ns));
        charged
    }

    /// Whether memory may stay as the last thread beside the first ends: new threads have soon
    /// needed again what was purged when threads had ended, and too often.
    pub fn may_stay_at_end(&mut self) -> bool {
        if self.end_units > 0 {
            self.end_was_in_vain = 2 * self.end_left_units < self.end_units;
        }
        self.end_was_in_vain && self.is_overdrawn()
    }

    /// Records that `units` units are purged as the last thread beside the first ends.
    pub fn note_end(&mut self, units: usize) {
        (self.end_units, self.end_left_units) = (units, units);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::tuning::REFAULT_NS;

    const UNITS: u32 = 1000;

    #[test]
    fn what_is_soon_needed_again_overdraws_the_budget() {
        for (wait_ms, in_vain) in [(100, true), (2 * REFAULT_MS, false)] {
            let mut purges = PurgeBudget::new();
            purges.begin(5000);
            purges.count_purged(5000, UNITS);
            assert!(!purges.is_overdrawn());
            purges.count_refaulted(5000 + wait_ms, 2 * UNITS as usize, REFAULT_NS);
            assert_eq!(purges.is_overdrawn(), in_vain);
            // 40 ms, of which 1/32 of the time is paid back.
            purges.earn(5000 + 1270);
            assert_eq!(purges.is_overdrawn(), in_vain);
            purges.earn(5000 + 1290);
            assert!(!purges.is_overdrawn());
        }
    }

    #[test]
    fn memory_goes_at_the_end_until_new_threads_need_it_again() {
        let mut purges = PurgeBudget::new();
        let mut turn = |now_ms, needs_again| {
            let stays = purges.may_stay_at_end();
            let purged = if stays { 0 } else { UNITS };
            purges.note_end(purged as usize);
            purges.count_purged(now_ms, purged);
            let needed = if needs_again { purged as usize } else { 0 };
            purges.count_refaulted(now_ms, needed, REFAULT_NS);
            stays
        };
        assert_eq!([1, 2, 3].map(|ms| turn(ms, true)), [false, true, true]);
        let mut purges = PurgeBudget::new();
        // Spans need memory again, but no new threads do.
        purges.note_end(UNITS as usize);
        purges.count_purged(1, UNITS);
        assert_eq!(purges.count_refilled(2, 2 * UNITS as usize, REFAULT_NS), UNITS as usize);
        assert!(purges.is_overdrawn() && !purges.may_stay_at_end());
    }
}
