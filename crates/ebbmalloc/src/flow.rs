//! Flow: which way blocks of a class go between caches and central.
//!
//! Where a thread frees and allocates by turns, its cache is best half full: there is room for
//! both. Where one thread allocates what another frees, the one's cache is only ever refilled and
//! the other's only flushed. Then the class *flows*: half of a cache would never be used, and each
//! batch costs as much as a small one, since two processors meet in the same lines. So caches are
//! filled and emptied wholly there, and may have more room (`refill.rs`).
//!
//! All this is a guess, made of plain loads and stores that may miss each other; nothing but the
//! size of batches hangs on it.

use crate::size_class::{CLASSES, SizeClass};
use crate::sync::{AtomicU8, Ordering};

/// What a cache needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Need {
    /// Blocks: it is empty.
    Blocks = 1,
    /// Room: it is full.
    Room = 2,
}

/// A cache that needs the same so many times in a row goes on like that.
const STREAK: u8 = 8;
/// The bits of a streak that count; the others are the need.
const COUNT: u8 = 0x3f;
const NEED_SHIFT: u32 = 6;

/// For each class, what one cache needed last, and how often in a row. All zero bytes are none.
pub(crate) struct Streaks([AtomicU8; CLASSES]);

/// For each class, a bit for each [`Need`] that some cache had in a streak, since a streak last
/// broke.
pub(crate) struct Flows([AtomicU8; CLASSES]);

impl Flows {
    pub const fn new() -> Self {
        Self([const { AtomicU8::new(0) }; CLASSES])
    }

    /// Takes down what a cache needs. True where the class flows: this cache always needs the
    /// same, and some other always needs the other.
    pub fn note(&self, class: SizeClass, streaks: &Streaks, need: Need) -> bool {
        let (streak, flow) = (&streaks.0[class.index()], &self.0[class.index()]);
        let old = streak.load(Ordering::Relaxed);
        let count = old & COUNT;
        if old >> NEED_SHIFT != need as u8 {
            streak.store((need as u8) << NEED_SHIFT | 1, Ordering::Relaxed);
            if count >= STREAK {
                flow.store(0, Ordering::Relaxed);
            }
            return false;
        }
        if count < STREAK {
            streak.store(old + 1, Ordering::Relaxed);
            return false;
        }
        // Written only where it changes: all processors read it.
        let needs = flow.load(Ordering::Relaxed);
        if needs & need as u8 == 0 {
            flow.store(needs | need as u8, Ordering::Relaxed);
        }
        needs == Need::Blocks as u8 | Need::Room as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn streaks() -> Streaks {
        Streaks([const { AtomicU8::new(0) }; CLASSES])
    }

    #[test]
    fn a_class_flows_between_two_caches_until_one_turns() {
        let class = SizeClass::of(100).unwrap();
        let (flows, from, to) = (Flows::new(), streaks(), streaks());
        let note = |streaks, need| flows.note(class, streaks, need);
        for _ in 0..100 {
            assert!(!note(&to, Need::Blocks), "flows from nowhere");
        }
        for _ in 0..STREAK {
            assert!(!note(&from, Need::Room), "a short streak counts");
        }
        note(&from, Need::Room);
        assert!(note(&from, Need::Room) && note(&to, Need::Blocks));
        assert!(!flows.note(SizeClass::of(1).unwrap(), &to, Need::Blocks), "another class flows");
        assert!(!note(&from, Need::Blocks), "the cache that turns goes on");
        assert!(!note(&to, Need::Blocks), "nobody is left to flow from");
    }

    #[test]
    fn a_cache_that_grows_and_shrinks_does_not_flow() {
        let class = SizeClass::of(100).unwrap();
        let (flows, only) = (Flows::new(), streaks());
        for round in 0..1000 {
            let need = if round / 50 % 2 == 0 { Need::Blocks } else { Need::Room };
            assert!(!flows.note(class, &only, need), "round {round}");
        }
    }
}
