//! The scavenger: a thread that gives memory back which nobody needs any more, also while the program
//! does nothing. Here is when there is one; what it does is in `scavenge.rs`.
//!
//! Protocol (model-checked in `crates/testkit/tests/loom.rs`): who frees memory, under a lock, looks
//! afterwards whether the scavenger must be called. The scavenger forgets that it was called before
//! it takes that lock to look for memory, and ends only if it was not called since. So nothing is
//! freed unnoticed; and the word is written by one call a round, not by each.

use crate::region::UnitIndex;
use crate::sync::{AtomicU8, AtomicU32, AtomicU64, Ordering, const_fn};

/// There is no scavenger.
const NONE: u32 = 0;
/// There is one, and it was not called since it last asked.
const AWAKE: u32 = 1;
const CALLED: u32 = 2;
/// There will be none.
const NEVER: u32 = 3;

/// Whether there is a scavenger, and whether it was called. In a cache line of its own, which
/// everybody reads and hardly anybody writes.
#[repr(align(64))]
pub struct Scavenger {
    state: AtomicU32,
    /// This process was forked.
    forked: AtomicU8,
    /// While there is none: when the next round is due, and when to think of starting one, in
    /// milliseconds by the clock of the operating system below.
    pub(crate) round_due: AtomicU64,
    pub(crate) start_due: AtomicU64,
}

impl Scavenger {
    const_fn! {
        /// None yet.
        pub fn new() -> Self {
            Self {
                state: AtomicU32::new(NONE),
                forked: AtomicU8::new(0),
                round_due: AtomicU64::new(0),
                start_due: AtomicU64::new(0),
            }
        }
    }

    /// True where one may be started.
    #[inline]
    pub fn is_wanted(&self) -> bool {
        self.state.load(Ordering::Relaxed) == NONE
    }

    /// True where there is one.
    pub fn exists(&self) -> bool {
        matches!(self.state.load(Ordering::Relaxed), AWAKE | CALLED)
    }

    /// Memory was freed, under a lock that the scavenger takes: calls it. False if there is none.
    #[inline]
    pub fn call(&self) -> bool {
        match self.state.load(Ordering::Relaxed) {
            CALLED => true,
            // It fails if the scavenger has just ended, or somebody else has called.
            AWAKE => self.change(AWAKE, CALLED) || self.exists(),
            _ => false,
        }
    }

    /// Whether it is the caller who is to start the scavenger.
    pub fn begin(&self) -> bool {
        self.change(NONE, CALLED)
    }

    /// Whether it was called since this was last asked.
    pub fn was_called(&self) -> bool {
        self.change(CALLED, AWAKE)
    }

    /// Ends the scavenger; false if it was called since it last asked.
    pub fn end(&self) -> bool {
        self.change(AWAKE, NONE)
    }

    /// In the child of a fork: there may have been one in its parent, but not here.
    pub fn end_in_child(&self) {
        self.forked.store(1, Ordering::Relaxed);
        if self.exists() {
            self.state.store(NONE, Ordering::Relaxed);
        }
    }

    /// True in the child of a fork.
    pub fn is_forked(&self) -> bool {
        self.forked.load(Ordering::Relaxed) != 0
    }

    /// There will be no scavenger.
    pub fn never(&self) {
        self.state.store(NEVER, Ordering::Release);
    }

    /// Changes the state; false if it was another.
    fn change(&self, from: u32, to: u32) -> bool {
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

/// Where the rounds have got to in which memory is given back.
pub(crate) struct Rounds {
    /// The unit at which the next round goes on.
    pub cursor: UnitIndex,
    /// How often all spans were looked at since anything last went back, or was freed.
    pub quiet: u32,
    /// Caches were in use the last time, as far as one can tell.
    pub caches_used: bool,
}

impl Rounds {
    pub const fn new() -> Self {
        Self { cursor: 0, quiet: 0, caches_used: false }
    }
}
