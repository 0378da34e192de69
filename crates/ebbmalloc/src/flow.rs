//! Flow: which way blocks of a class go between caches and central.
//!
//! Where a thread frees and allocates by turns, its cache is best half full: there is room for
//! both. Where one thread allocates what another frees, the one's cache is only ever refilled and
//! the other's only flushed: the class *flows*. Half of each cache would never be used then, and
//! it is the number of batches that costs time, as two processors meet in each. So a batch fills or
//! empties all of a cache there (`refill.rs`).
//!
//! All this is a guess, made of plain loads and stores that may miss each other: only sizes hang on
//! it.

use crate::size_class::{CLASSES, SizeClass};
use crate::sync::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};

/// What a cache needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Need {
    /// Blocks: it is empty.
    Blocks = 1,
    /// Room: it is full.
    Room = 2,
}

/// A cache that has needed the same so many times in a row is taken to go on like that.
const STREAK: u8 = 2;
/// Above these bits of a streak, which count, is the need.
const COUNT_BITS: u32 = 4;

/// What a cache has seen. All zero bytes are nothing.
#[repr(C)]
pub(crate) struct History {
    /// Misses of stacks that had no room left to get.
    pub misses: AtomicUsize,
    /// Whether a stack was ever set up here.
    pub used: AtomicBool,
    /// For each class, what was needed last, and how often in a row.
    streaks: [AtomicU8; CLASSES],
}

impl History {
    /// Takes down what is needed; true where the same was needed before, in a streak.
    fn note(&self, class: SizeClass, need: Need) -> bool {
        let streak = &self.streaks[class.index()];
        let old = streak.load(Ordering::Relaxed);
        let (last, count) = (old >> COUNT_BITS, old % (1 << COUNT_BITS));
        if last != need as u8 {
            streak.store((need as u8) << COUNT_BITS | 1, Ordering::Relaxed);
            return false;
        }
        if count < STREAK {
            streak.store(old + 1, Ordering::Relaxed);
        }
        count >= STREAK
    }
}

/// For each class, the name of a cache that has needed blocks in a streak, in the lower half, and of
/// one that has needed room; 0 for none.
pub(crate) struct Flows([AtomicU64; CLASSES]);

impl Flows {
    pub const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; CLASSES])
    }

    /// Takes down what the cache at an address needs. True where the class flows: this cache needs
    /// the same all the time, and another the other.
    pub fn note(&self, class: SizeClass, cache: usize, history: &History, need: Need) -> bool {
        if !history.note(class, need) {
            return false;
        }
        // Caches lie at multiples of a page. Two that share a name do not flow.
        let name = ((cache >> 12) as u32).max(1);
        let flow = &self.0[class.index()];
        let old = flow.load(Ordering::Relaxed);
        let turn = if need == Need::Blocks { 0 } else { 32 };
        let turned = old.rotate_right(turn);
        let (mut same, mut other) = (turned as u32, (turned >> 32) as u32);
        if same == 0 || other == name {
            same = name;
        }
        if other == name {
            // It has turned. Whoever else needed the same as now may be gone: it will say so if not.
            other = 0;
        }
        let new = (same as u64 | (other as u64) << 32).rotate_left(turn);
        // Written only where it changes: all processors read it.
        if new != old {
            flow.store(new, Ordering::Relaxed);
        }
        other != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CACHES: [usize; 2] = [1 << 18, 2 << 18];

    fn history() -> History {
        // SAFETY: all zero bytes are a history of nothing.
        unsafe { core::mem::zeroed() }
    }

    #[test]
    fn a_class_flows_between_two_caches_until_one_turns() {
        let (class, other_class) = (SizeClass::of(100).unwrap(), SizeClass::of(1).unwrap());
        let (flows, histories) = (Flows::new(), [history(), history()]);
        let from = |need| flows.note(class, CACHES[0], &histories[0], need);
        let to = |class| flows.note(class, CACHES[1], &histories[1], Need::Blocks);
        for _ in 0..100 {
            assert!(!to(class), "flows from nowhere");
        }
        for _ in 0..STREAK {
            assert!(!from(Need::Room) && !to(class), "a short streak counts");
        }
        assert!(from(Need::Room) && to(class));
        for _ in 0..10 {
            assert!(!to(other_class), "another class flows");
        }
        for _ in 0..10 {
            assert!(!from(Need::Blocks), "there is nobody else who needs room");
        }
        assert!(!to(class), "nobody is left to flow from");
    }

    #[test]
    fn one_cache_does_not_flow() {
        let class = SizeClass::of(100).unwrap();
        let (flows, history) = (Flows::new(), history());
        for round in 0..1000 {
            let need = if round / 50 % 2 == 0 { Need::Blocks } else { Need::Room };
            assert!(!flows.note(class, CACHES[0], &history, need), "round {round}");
        }
    }

    /// As where threads free and allocate at random, each for itself.
    #[test]
    fn caches_that_keep_turning_do_not_flow() {
        let class = SizeClass::of(100).unwrap();
        let (flows, histories) = (Flows::new(), [history(), history()]);
        for round in 0..1000 {
            for (cache, history) in CACHES.iter().zip(&histories) {
                let need = if round / 2 % 2 == 0 { Need::Blocks } else { Need::Room };
                assert!(!flows.note(class, *cache, history, need), "round {round}");
            }
        }
    }
}
