//! Counts time that may be spent, as a share of all time. There is one budget for refaults where no
//! scavenger runs (`retention/purge_budget.rs`), and two for huge pages.

use crate::backend::tuning::{BUDGET_DIVISOR, BUDGET_NS_MAX, DEBT_NS_MAX};

/// What may be spent: 1/[`BUDGET_DIVISOR`] of the time that has passed, less what was spent.
pub(crate) struct Budget {
    /// Negative after something dear. Earned up to `earned_ms`, by the clock of `Os`.
    credit_ns: i64,
    earned_ms: u64,
}

impl Budget {
    /// An empty one. All zero bytes, as are all initial values of an engine, so that files hold
    /// none.
    pub const fn new() -> Self {
        Self { credit_ns: 0, earned_ms: 0 }
    }

    /// The first credit is earned from now on.
    pub fn begin(&mut self, now_ms: u64) {
        self.earned_ms = now_ms;
    }

    /// Adds the share of the time that has passed since the last call.
    pub fn earn(&mut self, now_ms: u64) {
        let passed_ms = now_ms.saturating_sub(self.earned_ms).min(i64::MAX as u64 / 1_000_000);
        self.earned_ms = now_ms;
        let earned_ns = passed_ms as i64 * 1_000_000 / BUDGET_DIVISOR;
        self.credit_ns = (self.credit_ns + earned_ns).min(BUDGET_NS_MAX);
    }

    /// Whether more may be spent, as of the last [`Budget::earn`].
    pub fn is_left(&self) -> bool {
        self.credit_ns >= 0
    }

    /// What may be spent, as of the last [`Budget::earn`].
    pub fn left_ns(&self) -> u64 {
        self.credit_ns.max(0) as u64
    }

    /// Takes what was spent. The process may have been stopped meanwhile, so debts are bounded.
    /// Negative costs are gains.
    pub fn spend(&mut self, ns: i64) {
        self.credit_ns = self.credit_ns.saturating_sub(ns).clamp(-DEBT_NS_MAX, BUDGET_NS_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spends `cost_ns` in each of `times_ms` milliseconds in which the budget allows it. Returns
    /// how often it did.
    fn spent(times_ms: u64, cost_ns: i64) -> i64 {
        let mut budget = Budget::new();
        budget.begin(1_000_000);
        (0..times_ms).fold(0, |spent, ms| {
            budget.earn(1_000_000 + ms);
            let is_left = budget.is_left();
            if is_left {
                budget.spend(cost_ns);
            }
            spent + is_left as i64
        })
    }

    #[test]
    fn a_share_of_the_time_is_spent() {
        for cost_ns in [50_000, 1_000_000, 30_000_000, 200_000_000] {
            let share_ns = 10_000_000_000 / BUDGET_DIVISOR;
            let spent_ns = spent(10_000, cost_ns) * cost_ns;
            assert!((share_ns - cost_ns..=share_ns + cost_ns).contains(&spent_ns), "{cost_ns}");
        }
    }

    #[test]
    fn who_waits_saves_no_more_than_so_much() {
        let mut budget = Budget::new();
        budget.earn(u64::MAX);
        budget.spend(BUDGET_NS_MAX + 1);
        assert!(!budget.is_left());
    }

    #[test]
    fn debts_are_paid_back() {
        let mut budget = Budget::new();
        budget.spend(i64::MAX);
        let paid_ms = (DEBT_NS_MAX * BUDGET_DIVISOR / 1_000_000) as u64;
        budget.earn(paid_ms - 1);
        assert!(!budget.is_left());
        budget.earn(paid_ms);
        assert!(budget.is_left());
    }
}
