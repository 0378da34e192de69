//! The miss history of a cache: detects *streaks*, in which a stack misses the same way again and
//! again.
//!
//! If a thread frees and allocates by turns, its stacks are best half full, which serves both. If
//! it only allocates for a while, or only frees, half of the stack would stay unused, and the
//! number of batches costs time. So a refill in a streak fills the whole stack, and a flush in a
//! streak empties it (`engine/caches/miss.rs`; decisions/0007).
//!
//! The history consists of hints. Plain loads and stores may lose an update; only the sizes of
//! batches depend on it.

use crate::frontend::tuning::FLOW_MISSES;
use crate::platform::sync::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use crate::size_class::{CLASSES, SizeClass};

/// How a cache missed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MissKind {
    /// It was empty: an allocation found no block.
    Underflow = 1,
    /// It was full: a free found no slot for its block.
    Overflow = 2,
}

/// The lowest bits of a streak, which count misses. The bits above are a [`MissKind`].
const COUNT_BITS: u32 = 4;

/// The miss history of one cache. All zero bytes are an empty history.
#[repr(C)]
pub(crate) struct History {
    /// Misses of stacks that got no more capacity.
    pub refused: AtomicUsize,
    /// True once a stack was set up here.
    pub used: AtomicBool,
    /// For each class, the kind of the last miss, and how many like it came in a row.
    streaks: [AtomicU8; CLASSES],
}

impl History {
    /// Records a miss. Returns how many of the same kind came before it in a row, up to
    /// [`FLOW_MISSES`].
    pub fn note(&self, class: SizeClass, kind: MissKind) -> u8 {
        let streak = &self.streaks[class.index()];
        let old = streak.load(Ordering::Relaxed);
        let (last, count) = (old >> COUNT_BITS, old % (1 << COUNT_BITS));
        if last != kind as u8 {
            streak.store((kind as u8) << COUNT_BITS | 1, Ordering::Relaxed);
            return 0;
        }
        if count < FLOW_MISSES {
            streak.store(old + 1, Ordering::Relaxed);
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frontend::tuning::STREAK_MISSES;

    fn history() -> History {
        // SAFETY: all zero bytes are an empty history.
        unsafe { core::mem::zeroed() }
    }

    #[test]
    fn a_streak_is_of_one_class_and_lasts_until_the_cache_turns() {
        let (class, other) = (SizeClass::of(100).unwrap(), SizeClass::of(1).unwrap());
        let history = history();
        for kind in [MissKind::Underflow, MissKind::Overflow, MissKind::Underflow] {
            for before in 0..1000 {
                assert_eq!(history.note(class, kind), before.min(FLOW_MISSES as u32) as u8);
            }
            assert_eq!(history.note(other, kind), 0, "another class's counts");
        }
    }

    /// As with threads that free and allocate at random, each its own blocks.
    #[test]
    fn a_cache_that_keeps_turning_has_no_streak() {
        let (class, history) = (SizeClass::of(100).unwrap(), history());
        for round in 0..1000 {
            let kind = if round / 2 % 2 == 0 { MissKind::Underflow } else { MissKind::Overflow };
            assert!(history.note(class, kind) < STREAK_MISSES, "round {round}");
        }
    }
}
