//! Streaks: caches that miss the same way again and again.
//!
//! Where a thread frees and allocates by turns, its cache is best half full: there is room for
//! both. Where it only allocates for a while, or only frees, half of the cache would not be used, and
//! it is the number of batches that costs time. So the batches of a streak fill or empty all
//! of a cache (`refill.rs`; decisions/0007).
//!
//! All this is a guess, made of plain loads and stores that may miss each other: only sizes hang on
//! it.

use crate::frontend::tuning::FLOW_MISSES;
use crate::platform::sync::{AtomicBool, AtomicU8, AtomicUsize, Ordering, const_fn};
use crate::size_class::{CLASSES, SizeClass};

/// What a cache needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MissKind {
    /// It was empty: an allocation found no block.
    Underflow = 1,
    /// It was full: a free found no place.
    Overflow = 2,
}

/// Above these bits of a streak, which count, is the need.
const COUNT_BITS: u32 = 4;

/// What a cache has seen. All zero bytes are nothing.
#[repr(C)]
pub(crate) struct History {
    /// Misses of stacks that had no room left to get.
    pub misses: AtomicUsize,
    /// Whether a stack was ever set up here.
    pub used: AtomicBool,
    /// Misses of streaks whose stacks have much room already; begins anew at 256.
    much: AtomicU8,
    /// For each class, what was needed last, and how often in a row.
    streaks: [AtomicU8; CLASSES],
}

impl History {
    /// Takes down what is needed; how often the same was before, in a row, as far as that is asked.
    pub fn note(&self, class: SizeClass, need: MissKind) -> u8 {
        let streak = &self.streaks[class.index()];
        let old = streak.load(Ordering::Relaxed);
        let (last, count) = (old >> COUNT_BITS, old % (1 << COUNT_BITS));
        if last != need as u8 {
            streak.store((need as u8) << COUNT_BITS | 1, Ordering::Relaxed);
            return 0;
        }
        if count < FLOW_MISSES {
            streak.store(old + 1, Ordering::Relaxed);
        }
        count
    }

    /// Takes down such a miss; true at one in so many, a power of two.
    pub fn misses_with_much(&self, times: u8) -> bool {
        let much = self.much.load(Ordering::Relaxed).wrapping_add(1);
        self.much.store(much, Ordering::Relaxed);
        much.is_multiple_of(times)
    }
}

/// The thread that was the last to ask for a large batch of a class. A guess: plain loads and stores.
pub(crate) struct Asked(AtomicUsize);

impl Asked {
    const_fn! {
        pub fn new() -> Self {
            Self(AtomicUsize::new(0))
        }
    }

    /// It is the one with this key.
    pub fn note(&self, key: usize) {
        let key = key.wrapping_add(1);
        if self.0.load(Ordering::Relaxed) != key {
            self.0.store(key, Ordering::Relaxed);
        }
    }

    /// Whether it is another than the one with this key.
    pub fn by_another(&self, key: usize) -> bool {
        ![0, key.wrapping_add(1)].contains(&self.0.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frontend::tuning::STREAK_MISSES;

    fn history() -> History {
        // SAFETY: all zero bytes are a history of nothing.
        unsafe { core::mem::zeroed() }
    }

    #[test]
    fn a_streak_is_of_one_class_and_lasts_until_the_cache_turns() {
        let (class, other) = (SizeClass::of(100).unwrap(), SizeClass::of(1).unwrap());
        let history = history();
        for need in [MissKind::Underflow, MissKind::Overflow, MissKind::Underflow] {
            for before in 0..1000 {
                assert_eq!(history.note(class, need), before.min(FLOW_MISSES as u32) as u8);
            }
            assert_eq!(history.note(other, need), 0, "another class's counts");
        }
    }

    /// As where threads free and allocate at random, each for itself.
    #[test]
    fn a_cache_that_keeps_turning_has_no_streak() {
        let (class, history) = (SizeClass::of(100).unwrap(), history());
        for round in 0..1000 {
            let need = if round / 2 % 2 == 0 { MissKind::Underflow } else { MissKind::Overflow };
            assert!(history.note(class, need) < STREAK_MISSES, "round {round}");
        }
    }
}
