//! The scavenger: a thread that gives memory back which nobody needs any more, also while the program
//! does nothing. Here is when it runs and when it sleeps; what it does is in `scavenge.rs`.
//!
//! Protocol (model-checked in `crates/testkit/tests/loom.rs`): one word holds the state and how often
//! blocks were freed, so that nothing can be freed unnoticed between its last look and its sleep.

use crate::os::{futex_wait, futex_wake};
use crate::region::UnitIndex;
use crate::sync::{AtomicU32, Ordering, const_fn};

/// The low bits of the word.
const STATE: u32 = 3;
/// There is no scavenger.
const NONE: u32 = 0;
const AWAKE: u32 = 1;
const ASLEEP: u32 = 2;
/// There will be none.
const NEVER: u32 = 3;
/// What one more call adds.
const CALL: u32 = STATE + 1;

/// Whether there is a scavenger, and what it was told.
pub struct Scavenger(AtomicU32);

impl Scavenger {
    const_fn! {
        /// None yet.
        pub fn new() -> Self {
            Self(AtomicU32::new(NONE))
        }
    }

    /// True where one may be started.
    #[inline]
    pub fn is_none(&self) -> bool {
        self.0.load(Ordering::Relaxed) & STATE == NONE
    }

    /// Memory was freed: wakes the scavenger if it sleeps. How often that was told by now.
    #[inline]
    pub fn call(&self) -> u32 {
        let word = self.0.fetch_add(CALL, Ordering::AcqRel);
        if word & STATE == ASLEEP {
            self.wake();
        }
        word / CALL
    }

    #[cold]
    fn wake(&self) {
        if self.change(ASLEEP, AWAKE) {
            futex_wake(&self.0);
        }
    }

    /// Whether it is the caller who is to start the scavenger.
    pub fn begin(&self) -> bool {
        self.change(NONE, AWAKE)
    }

    /// There is no scavenger any more: it ends, or belongs to the parent of this process.
    pub fn end(&self) {
        let _ = self.change(AWAKE, NONE) || self.change(ASLEEP, NONE);
    }

    /// There will be no scavenger.
    pub fn never(&self) {
        let _ = self.change(NONE, NEVER) || self.change(AWAKE, NEVER);
    }

    /// How often it was called.
    pub fn calls(&self) -> u32 {
        self.0.load(Ordering::Acquire) / CALL
    }

    /// Sleeps until the next call, but not if there was one since there had been so many.
    pub fn sleep(&self, calls: u32) {
        let (awake, mut asleep) = (calls * CALL + AWAKE, calls * CALL + ASLEEP);
        if self.0.compare_exchange(awake, asleep, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return;
        }
        while asleep & STATE == ASLEEP {
            futex_wait(&self.0, asleep);
            asleep = self.0.load(Ordering::Acquire);
        }
    }

    /// Changes the state; false if it was another.
    fn change(&self, from: u32, to: u32) -> bool {
        let mut word = self.0.load(Ordering::Relaxed);
        while word & STATE == from {
            let new = word & !STATE | to;
            match self.0.compare_exchange(word, new, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }
}

/// Where the rounds have got to in which memory is given back.
pub(crate) struct Rounds {
    /// The unit at which the next round goes on.
    pub cursor: UnitIndex,
    /// When the next round is due, where there is no scavenger: in milliseconds of the clock.
    pub due: u64,
    /// Something went back since all spans had last been looked at.
    pub fruitful: bool,
}

impl Rounds {
    pub const fn new() -> Self {
        Self { cursor: 0, due: 0, fruitful: false }
    }
}
