//! The scavenger: a thread that gives memory back which nobody needs any more, also while the program
//! does nothing. Here is when there is one; what it does is in `scavenge.rs`.
//!
//! Threads of the program count as its *company* once they have missed a cache, until they exit; the first thread of the
//! process does not count. Only where there is company may the scavenger start, and the last of the company to exit takes it along:
//! rings its bell, and waits until it has ended. So a program whose threads have ended has none of ours (decisions/0033).
//!
//! Protocol (model-checked in `crates/testkit/tests/loom.rs`): who frees memory, under a lock, looks
//! afterwards whether the scavenger must be called. The scavenger forgets that it was called before
//! it takes that lock to look for memory, and ends only if it was not called since. So nothing is
//! freed unnoticed; and the word is written by one call a round, not by each. The company is counted in the
//! same word: so whoever leaves last sees the scavenger, or whoever is starting it sees that all have left.

use crate::backend::region::UnitIndex;
use crate::backend::tuning::SCAVENGER_WISHES_MIN;
use crate::platform::os::{Bell, ThreadWords};
use crate::platform::sync::{
    AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, const_fn,
};

/// There is no scavenger.
const NONE: u32 = 0;
/// There is none any more, but whoever starts the next, or leaves last, must join its thread.
const ENDED: u32 = 1;
/// A thread is starting it.
const STARTING: u32 = 2;
/// There is one, and it was not called since it last asked.
const AWAKE: u32 = 3;
const CALLED: u32 = 4;
/// It is to end, and a thread waits for that.
const STOPPING: u32 = 5;
/// There will be none.
const NEVER: u32 = 6;

/// The state is in the lowest bits of the word, the number of threads in those above.
const STATE: u32 = 7;
const THREAD: u32 = 8;

/// In [`ThreadWords::company`]: a new thread; the first of the process; one that counts; one that counts no more, or
/// never will.
const NEW: u32 = 0;
const FIRST: u32 = 1;
const COUNTED: u32 = 2;
const LEFT: u32 = 3;

/// Whether there is a scavenger, and whether it was called. In a cache line of its own, which
/// everybody reads and hardly anybody writes.
#[repr(align(64))]
pub struct Scavenger {
    word: AtomicU32,
    /// What it is woken by when it is to end.
    pub(crate) bell: Bell,
    /// How often other threads than the first have wanted one.
    wanted: AtomicU8,
    /// Whether it is known which thread is the first of the process: its words say so.
    pub(crate) has_first: AtomicBool,
    /// Whether another thread than the first has started it.
    by_other: AtomicBool,
    /// The thread's handle: written by who starts it, read by who joins it.
    pub(crate) thread: AtomicUsize,
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
                word: AtomicU32::new(NONE),
                bell: Bell::new(0),
                wanted: AtomicU8::new(0),
                has_first: AtomicBool::new(false),
                by_other: AtomicBool::new(false),
                thread: AtomicUsize::new(0),
                round_due: AtomicU64::new(0),
                start_due: AtomicU64::new(0),
            }
        }
    }

    fn state(&self) -> u32 {
        self.word.load(Ordering::Relaxed) & STATE
    }

    /// True where one may be started, by the thread with these words.
    #[inline]
    pub(crate) fn is_wanted(&self, words: &ThreadWords) -> bool {
        match self.state() {
            NONE | ENDED => true,
            AWAKE | CALLED => self.by_other.load(Ordering::Relaxed) && words.is_first(),
            _ => false,
        }
    }

    /// True where there is one.
    pub fn exists(&self) -> bool {
        matches!(self.state(), STARTING | AWAKE | CALLED)
    }

    /// Memory was freed, under a lock that the scavenger takes: calls it. False if there is none.
    #[inline]
    pub fn call(&self) -> bool {
        match self.state() {
            STARTING | CALLED => true,
            // It fails if the scavenger has just ended, or somebody else has called.
            AWAKE => self.change(AWAKE, CALLED) || self.exists(),
            _ => false,
        }
    }

    /// Counts a thread. It calls [`Scavenger::leave`] when it exits.
    pub fn arrive(&self) {
        self.replace(|state, threads| Some((state, threads + 1)));
    }

    /// One thread less. If it was the last, and there is a scavenger, or its thread has not been joined: true, and the
    /// caller stops it.
    pub fn leave(&self) -> bool {
        let takes_along = |state, threads| threads == 1 && matches!(state, ENDED | AWAKE | CALLED);
        let left = self.replace(|state, threads| {
            let stopped = takes_along(state, threads);
            Some((if stopped { STOPPING } else { state }, threads - 1))
        });
        left.is_some_and(|(state, threads)| takes_along(state, threads))
    }

    /// Whether it is the caller who is to start the scavenger, as there are so many threads; and whether to join the
    /// one before. Followed by [`Scavenger::begun`] or [`Scavenger::not_begun`].
    pub fn begin(&self, threads_min: u32) -> Option<bool> {
        let begun = self.replace(|state, threads| {
            let may_start = matches!(state, NONE | ENDED) && threads >= threads_min;
            may_start.then_some((STARTING, threads))
        });
        begun.map(|(state, _)| state == ENDED)
    }

    /// It could not be started this time.
    pub fn not_begun(&self) {
        self.change(STARTING, NONE);
    }

    /// It was started. False if all threads have left meanwhile: then the caller stops it.
    pub fn begun(&self) -> bool {
        let begun = self
            .replace(|_, threads| Some((if threads == 0 { STOPPING } else { CALLED }, threads)));
        begun.is_some_and(|(_, threads)| threads > 0)
    }

    /// The first thread is to start it in place of the thread that did. True if there is one, and the caller stops it.
    pub fn replace_thread(&self) -> bool {
        self.change(AWAKE, STOPPING) || self.change(CALLED, STOPPING)
    }

    /// Whether it is to end, and be joined.
    pub fn is_stopping(&self) -> bool {
        self.state() == STOPPING
    }

    /// Its thread was joined.
    pub fn stopped(&self) {
        self.wanted.store(0, Ordering::Relaxed);
        self.change(STOPPING, NONE);
    }

    /// Whether it was called since this was last asked.
    pub fn was_called(&self) -> bool {
        self.change(CALLED, AWAKE)
    }

    /// Ends the scavenger; false if it was called since it last asked, or is to stop anyway.
    pub fn end(&self) -> bool {
        self.change(AWAKE, ENDED)
    }

    /// The thread with these words is the first of the process.
    pub(crate) fn come_first(&self, words: &ThreadWords) {
        words.company.store(FIRST, Ordering::Relaxed);
        self.has_first.store(true, Ordering::Relaxed);
    }

    /// In the child of a fork, in its only thread: there may have been one in its parent, but not here.
    pub fn end_in_child(&self, words: &ThreadWords) {
        self.come_first(words);
        self.replace(|state, _| Some((if state == NEVER { NEVER } else { NONE }, 0)));
    }

    /// There will be no scavenger.
    pub fn never(&self) {
        self.replace(|_, threads| Some((NEVER, threads)));
    }

    /// Whether there will be none.
    pub fn is_off(&self) -> bool {
        self.state() == NEVER
    }

    /// How many threads there must be if the thread with these words is to start it; none if it is not to. The first thread's
    /// CPUs and priority are those of the process, so others leave it some time to come first. One other thread
    /// alone starts none: it may have a CPU for itself.
    pub(crate) fn threads_min(&self, words: &ThreadWords) -> Option<u32> {
        match words.company.load(Ordering::Relaxed) {
            FIRST => Some(1),
            COUNTED => {
                let wanted = self.wanted.load(Ordering::Relaxed);
                self.wanted.store(wanted.saturating_add(1), Ordering::Relaxed);
                (wanted >= SCAVENGER_WISHES_MIN).then_some(2)
            }
            _ => None,
        }
    }

    /// The thread with these words starts it.
    pub(crate) fn start_from(&self, words: &ThreadWords) {
        self.by_other.store(!words.is_first(), Ordering::Relaxed);
    }

    /// Changes the state; false if it was another.
    fn change(&self, from: u32, to: u32) -> bool {
        self.replace(|state, threads| (state == from).then_some((to, threads))).is_some()
    }

    /// Replaces state and number of threads by what `to` makes of them, unless that is nothing. What was there before.
    fn replace(&self, to: impl Fn(u32, u32) -> Option<(u32, u32)>) -> Option<(u32, u32)> {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            let old = (word & STATE, word / THREAD);
            let (state, threads) = to(old.0, old.1)?;
            let new = (threads * THREAD) | state;
            match self.word.compare_exchange(word, new, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Some(old),
                Err(found) => word = found,
            }
        }
    }
}

impl ThreadWords {
    /// Whether it is not known yet if the thread counts.
    #[inline]
    pub(crate) fn is_uncounted(&self) -> bool {
        self.company.load(Ordering::Relaxed) == NEW
    }

    pub(crate) fn is_first(&self) -> bool {
        self.company.load(Ordering::Relaxed) == FIRST
    }

    /// The thread counts.
    pub(crate) fn come(&self) {
        self.company.store(COUNTED, Ordering::Relaxed);
    }

    /// The thread does not count, and never will again. Whether it did.
    pub(crate) fn go(&self) -> bool {
        let counted = self.company.load(Ordering::Relaxed) == COUNTED;
        self.company.store(LEFT, Ordering::Relaxed);
        counted
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
