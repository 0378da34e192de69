//! Detects that purged memory is soon needed again (refaults), and has rounds purge less then. It
//! also tells `purge_budget.rs` which units refaulted.
//!
//! Memory that refaults costs page faults, and was not saved for long. A refault level counts how
//! often that repeats, as in a loop that allocates and frees a lot (decisions/0026). It falls again
//! while nothing refaults.

use crate::backend::tuning::{DECAY_DIVISOR, REFAULT_LEVELS, REFAULT_MS, SMALL_UNITS};

/// The refaults seen so far, in units of the page heap.
pub(crate) struct Refaults {
    /// How often purged memory refaulted, up to [`REFAULT_LEVELS`]; falls while none does. At each
    /// level, a round purges half as much of a surplus as at the level below.
    pub level: u32,
    /// When the level last rose or decayed, by the clock of `Os`.
    changed_ms: Option<u64>,
    /// Units purged recently, and how many of them refaulted since the level last rose.
    purged_units: usize,
    refaulted_units: usize,
    /// Units that refaulted recently.
    recent_units: usize,
}

impl Refaults {
    /// No refaults.
    pub const fn new() -> Self {
        Self { level: 0, changed_ms: None, purged_units: 0, refaulted_units: 0, recent_units: 0 }
    }

    /// Records that `units` free units are no longer resident, from `now_ms` on.
    pub fn count_purged(&mut self, now_ms: u64, units: u32) {
        self.decay(now_ms);
        self.purged_units += units as usize;
    }

    /// Records that `units` units that are not resident are about to become so. Only as many count
    /// as were purged recently. Returns how many do.
    pub fn count_refaulted(&mut self, now_ms: u64, units: u32) -> usize {
        self.decay(now_ms);
        let counted = (units as usize).min(self.purged_units - self.refaulted_units);
        self.refaulted_units += counted;
        self.recent_units += counted;
        counted
    }

    /// Raises the level if most of the units purged recently have refaulted.
    pub fn update(&mut self, now_ms: u64) {
        self.decay(now_ms);
        if self.refaulted_units >= SMALL_UNITS && self.refaulted_units * 2 > self.purged_units {
            if self.level == REFAULT_LEVELS {
                // Refaults go on and on: only the recent ones tell how much is needed again.
                self.recent_units -= self.recent_units.div_ceil(DECAY_DIVISOR);
            }
            self.level = (self.level + 1).min(REFAULT_LEVELS);
            self.purged_units -= self.refaulted_units;
            self.refaulted_units = 0;
            self.changed_ms = Some(now_ms);
        }
    }

    /// Lowers the level, and forgets purges and refaults, by the time that passed since the last
    /// change.
    pub fn decay(&mut self, now_ms: u64) {
        let changed_ms = *self.changed_ms.get_or_insert(now_ms);
        let steps =
            (now_ms.saturating_sub(changed_ms) / REFAULT_MS).min(u64::from(usize::BITS - 1)) as u32;
        if steps > 0 {
            self.level = self.level.saturating_sub(steps);
            self.purged_units >>= steps;
            self.refaulted_units >>= steps;
            (0..steps).for_each(|_| self.recent_units -= self.recent_units.div_ceil(DECAY_DIVISOR));
            self.changed_ms = Some(now_ms);
        }
    }

    /// How many units are likely to be needed again.
    pub fn units(&self) -> usize {
        self.recent_units * self.level as usize / REFAULT_LEVELS as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNITS: u32 = 1000;

    /// Repeats `times` times: units are purged, and refault `wait_ms` later.
    fn after(times: u64, wait_ms: u64) -> Refaults {
        let mut refaults = Refaults::new();
        for time in 0..times {
            refaults.count_purged(2 * time * wait_ms, UNITS);
            refaults.count_refaulted((2 * time + 1) * wait_ms, UNITS);
            refaults.update((2 * time + 1) * wait_ms);
        }
        refaults
    }

    #[test]
    fn what_comes_back_soon_may_stay_once_it_did_again_and_again() {
        assert_eq!(after(0, 100).units(), 0);
        assert!((1..UNITS as usize).contains(&after(1, 100).units()));
        assert!(after(4, 100).units() >= UNITS as usize);
        assert_eq!([0, 1, 2, 3, 100].map(|times| after(times, 100).level), [0, 1, 2, 3, 3]);
    }

    #[test]
    fn refaults_that_go_on_let_no_more_and_more_stay() {
        assert!(after(10_000, 100).units() <= DECAY_DIVISOR * UNITS as usize);
    }

    #[test]
    fn what_comes_back_late_may_not() {
        let refaults = after(100, 8 * REFAULT_MS);
        assert_eq!((refaults.units(), refaults.level), (0, 0));
    }

    #[test]
    fn what_does_not_come_back_makes_impatient_by_and_by() {
        let mut refaults = after(100, 100);
        let changed_ms = refaults.changed_ms.unwrap();
        let mut last = (refaults.level, refaults.units());
        assert_eq!(last.0, REFAULT_LEVELS);
        for time in 1..=u64::from(REFAULT_LEVELS) {
            refaults.count_purged(changed_ms + time * REFAULT_MS, UNITS);
            refaults.update(changed_ms + time * REFAULT_MS);
            assert!(refaults.level < last.0 && refaults.units() < last.1);
            last = (refaults.level, refaults.units());
        }
        assert_eq!(last, (0, 0));
        // Also without calls in between.
        let mut refaults = after(100, 100);
        refaults.update(u64::MAX);
        assert_eq!((refaults.level, refaults.units()), (0, 0));
    }

    #[test]
    fn a_little_of_what_went_is_no_reason() {
        let mut refaults = Refaults::new();
        for time in 0..1000 {
            refaults.count_purged(time * 10, UNITS);
            refaults.count_refaulted(time * 10, UNITS / 3);
            refaults.update(time * 10);
        }
        assert_eq!(refaults.units(), 0);
    }

    /// As for units left by blocks that moved with their pages, or purged earlier by a limit.
    #[test]
    fn only_what_went_comes_back() {
        let mut refaults = Refaults::new();
        for time in 0..100 {
            refaults.count_refaulted(time, UNITS);
            refaults.update(time);
        }
        assert_eq!(refaults.level, 0);
    }
}
