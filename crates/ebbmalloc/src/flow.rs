//! Flow: which way blocks of a class go between caches and central.
//!
//! Where a thread frees and allocates by turns, its cache is best half full: there is room for
//! both. Where one thread allocates what another frees, the one's cache is only ever refilled and
//! the other's only flushed. Then the class *flows*: half of each cache would never be used, so
//! batches are as large as caches are (`refill.rs`), and go by the transfer cache (`transfer.rs`).
//!
//! All this is a guess, made of plain loads and stores that may miss each other; only the size of
//! batches and the way that they take hang on it.

use crate::size_class::{CLASSES, SizeClass};
use crate::sync::{AtomicU8, AtomicU32, Ordering};

/// What a cache needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Need {
    /// Blocks: it is empty.
    Blocks = 1,
    /// Room: it is full.
    Room = 2,
}

/// A cache that has needed the same so many times in a row goes on like that.
const STREAK: u8 = 2;
/// Which bits of a streak are the count; above is the need.
const COUNT: u8 = 0x3f;
const NEED_SHIFT: u32 = 6;

/// For each class, what one cache needed last, and how often in a row. All zero bytes are none.
pub(crate) struct Streaks([AtomicU8; CLASSES]);

impl Streaks {
    /// Takes down what the cache needs; true where it has needed the same before, in a streak.
    fn note(&self, class: SizeClass, need: Need) -> bool {
        let streak = &self.0[class.index()];
        let old = streak.load(Ordering::Relaxed);
        let goes_on = old >> NEED_SHIFT == need as u8;
        if !goes_on {
            streak.store((need as u8) << NEED_SHIFT | 1, Ordering::Relaxed);
        } else if old & COUNT < STREAK {
            streak.store(old + 1, Ordering::Relaxed);
        }
        goes_on && old & COUNT >= STREAK
    }
}

/// For each class, a cache that has needed blocks in a streak, in the lower half, and one that has
/// needed room; 0 for none.
pub(crate) struct Flows([AtomicU32; CLASSES]);

impl Flows {
    pub const fn new() -> Self {
        #[cfg(not(loom))]
        return Self([const { AtomicU32::new(0) }; CLASSES]);
        #[cfg(loom)]
        unreachable!("models have no flows")
    }

    /// Takes down what a cache needs. True where the class flows: the cache needs the same all the
    /// time, and another one the other.
    pub fn note(&self, class: SizeClass, cache: u16, streaks: &Streaks, need: Need) -> bool {
        if !streaks.note(class, need) {
            return false;
        }
        let flow = &self.0[class.index()];
        let old = flow.load(Ordering::Relaxed);
        let (blocks, room) = (old as u16, (old >> 16) as u16);
        let (mut same, mut other) =
            if need == Need::Blocks { (blocks, room) } else { (room, blocks) };
        if same == 0 {
            same = cache;
        }
        if other == cache {
            // It has turned.
            other = 0;
        }
        let (blocks, room) = if need == Need::Blocks { (same, other) } else { (other, same) };
        let new = blocks as u32 | (room as u32) << 16;
        // Only where it changes: all processors read it.
        if new != old {
            flow.store(new, Ordering::Relaxed);
        }
        other != 0
    }

    /// Forgets who needed what.
    pub fn forget(&self, class: SizeClass) {
        self.0[class.index()].store(0, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn streaks() -> Streaks {
        Streaks([const { AtomicU8::new(0) }; CLASSES])
    }

    #[test]
    fn a_class_flows_between_two_caches_until_one_turns() {
        let class = SizeClass::of(100).unwrap();
        let (flows, from, to) = (Flows::new(), streaks(), streaks());
        let from = |need| flows.note(class, 1, &from, need);
        let to = |class, need| flows.note(class, 2, &to, need);
        for _ in 0..100 {
            assert!(!to(class, Need::Blocks), "flows from nowhere");
        }
        for _ in 0..STREAK {
            assert!(!from(Need::Room), "a short streak counts");
        }
        assert!(from(Need::Room) && to(class, Need::Blocks));
        for _ in 0..10 {
            assert!(!to(SizeClass::of(1).unwrap(), Need::Blocks), "another class flows");
        }
        for _ in 0..10 {
            assert!(!from(Need::Blocks), "the cache that turned flows to itself");
        }
        assert!(!to(class, Need::Blocks), "nobody is left to flow from");
    }

    #[test]
    fn one_cache_does_not_flow() {
        let class = SizeClass::of(100).unwrap();
        let (flows, only) = (Flows::new(), streaks());
        for round in 0..1000 {
            let need = if round / 50 % 2 == 0 { Need::Blocks } else { Need::Room };
            assert!(!flows.note(class, 1, &only, need), "round {round}");
        }
    }

    #[test]
    fn what_is_forgotten_must_be_seen_again() {
        let class = SizeClass::of(100).unwrap();
        let (flows, from, to) = (Flows::new(), streaks(), streaks());
        for _ in 0..10 {
            flows.note(class, 1, &from, Need::Room);
            flows.note(class, 2, &to, Need::Blocks);
        }
        assert!(flows.note(class, 2, &to, Need::Blocks));
        flows.forget(class);
        assert!(!flows.note(class, 2, &to, Need::Blocks));
        flows.note(class, 1, &from, Need::Room);
        assert!(flows.note(class, 2, &to, Need::Blocks));
    }
}
