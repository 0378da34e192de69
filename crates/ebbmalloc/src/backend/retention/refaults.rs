//! Whether what was purged is soon wanted back, and how patient that makes with free memory.
//!
//! Memory that comes back costs page faults, and was not saved for long. Where that happens again and again, as in
//! a loop that allocates much and frees it, free memory stays longer, and more of it (decisions/0026). Where it does not,
//! patience is lost by and by.

use crate::backend::tuning::{
    REFAULT_DECAY_SHARE, REFAULT_LEVEL_KEEPS_ALL, REFAULT_LEVELS, REFAULT_LEVELS_PER_HALVING,
    REFAULT_MS, REFAULT_UNITS_MIN,
};

/// What was learnt so far. Units are the page heap's.
pub(crate) struct Refaults {
    /// How often it was seen of late.
    degree: u32,
    /// When it was last seen, or patience was lost, by the clock of the operating system below.
    since: Option<u64>,
    /// Units that went of late, and how many of them have come back since it was last seen.
    gone: usize,
    back: usize,
    /// Units that came back of late.
    wanted: usize,
}

impl Refaults {
    /// None.
    pub const fn new() -> Self {
        Self { degree: 0, since: None, gone: 0, back: 0, wanted: 0 }
    }

    /// So many units of free memory are no longer resident, from this time on.
    pub fn count_gone(&mut self, now: u64, units: u32) {
        self.age(now);
        self.gone += units as usize;
    }

    /// So many such units are to become resident again.
    pub fn count_back(&mut self, now: u64, units: u32) {
        self.age(now);
        let soon = (units as usize).min(self.gone - self.back);
        self.back += soon;
        self.wanted += soon;
    }

    /// Looks whether most of what went is back.
    pub fn look(&mut self, now: u64) {
        self.age(now);
        if self.back >= REFAULT_UNITS_MIN && self.back * 2 > self.gone {
            self.degree = (self.degree + 1).min(REFAULT_LEVELS);
            self.gone -= self.back;
            self.back = 0;
            self.since = Some(now);
        }
    }

    /// Where nothing was seen for so long, some patience is lost, and what went is no longer of late.
    fn age(&mut self, now: u64) {
        let since = *self.since.get_or_insert(now);
        let times = (now.saturating_sub(since) / REFAULT_MS).min(u64::from(usize::BITS - 1)) as u32;
        if times > 0 {
            self.degree = self.degree.saturating_sub(times);
            self.gone >>= times;
            self.back >>= times;
            (0..times).for_each(|_| self.wanted -= self.wanted.div_ceil(REFAULT_DECAY_SHARE));
            self.since = Some(now);
        }
    }

    /// This time, doubled as often as it was seen, up to [`REFAULT_MS`].
    pub fn extend_over(&self, milliseconds: u64) -> u64 {
        (milliseconds << self.degree).min(REFAULT_MS)
    }

    /// How many units may stay that nobody needs.
    pub fn units(&self) -> usize {
        self.wanted * self.degree.min(REFAULT_LEVEL_KEEPS_ALL) as usize
            / REFAULT_LEVEL_KEEPS_ALL as usize
    }

    /// How often to halve the part that goes at a time where somebody looks regularly.
    pub fn halvings(&self) -> u32 {
        self.degree / REFAULT_LEVELS_PER_HALVING
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MUCH: u32 = 1000;

    /// So many times much goes, and comes back after so many milliseconds.
    fn after(times: u64, wait: u64) -> Refaults {
        let mut patience = Refaults::new();
        for time in 0..times {
            patience.count_gone(2 * time * wait, MUCH);
            patience.count_back((2 * time + 1) * wait, MUCH);
            patience.look((2 * time + 1) * wait);
        }
        patience
    }

    #[test]
    fn what_comes_back_soon_may_stay_once_it_did_again_and_again() {
        assert_eq!(after(0, 100).units(), 0);
        assert!((1..MUCH as usize).contains(&after(1, 100).units()));
        assert!(after(4, 100).units() >= MUCH as usize);
        assert_eq!(after(1, 100).extend_over(10), 20);
        assert_eq!(after(100, 100).extend_over(10), REFAULT_MS);
        assert_eq!([1, 3, 6, 100].map(|times| after(times, 100).halvings()), [0, 1, 2, 2]);
    }

    #[test]
    fn what_comes_back_late_may_not() {
        let patience = after(100, 8 * REFAULT_MS);
        assert_eq!((patience.units(), patience.extend_over(10)), (0, 10));
    }

    #[test]
    fn what_does_not_come_back_makes_impatient_by_and_by() {
        let mut patience = after(100, 100);
        let since = patience.since.unwrap();
        let mut last = (patience.degree, patience.units());
        assert_eq!(last.0, REFAULT_LEVELS);
        for time in 1..=u64::from(REFAULT_LEVELS) {
            patience.count_gone(since + time * REFAULT_MS, MUCH);
            patience.look(since + time * REFAULT_MS);
            assert!(patience.degree < last.0 && patience.units() < last.1);
            last = (patience.degree, patience.units());
        }
        assert_eq!(last, (0, 0));
        // The same where nobody looks meanwhile.
        let mut patience = after(100, 100);
        patience.look(u64::MAX);
        assert_eq!((patience.degree, patience.units()), (0, 0));
    }

    #[test]
    fn a_little_of_what_went_is_no_reason() {
        let mut patience = Refaults::new();
        for time in 0..1000 {
            patience.count_gone(time * 10, MUCH);
            patience.count_back(time * 10, MUCH / 3);
            patience.look(time * 10);
        }
        assert_eq!(patience.units(), 0);
    }

    /// As what blocks left that moved with their pages, or what a limit sent away before.
    #[test]
    fn only_what_went_comes_back() {
        let mut patience = Refaults::new();
        for time in 0..100 {
            patience.count_back(time, MUCH);
            patience.look(time);
        }
        assert_eq!(patience.extend_over(10), 10);
    }
}
