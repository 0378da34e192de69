//! Decides when the scavenger runs: a thread that purges memory the program no longer needs, even
//! while the program is idle. `engine/scavenge.rs` has its work; `backend/retention` decides how
//! much stays.
//!
//! Threads of the program are *counted* from their first cache miss until they exit. The first
//! thread of the process is not, unless the process has had other threads, none of which has missed
//! a cache, and much is free. The scavenger starts only while threads count. The last of them to
//! exit stops it: it wakes the scavenger and joins its thread. So no thread of ours is left when
//! the program's threads have ended (decisions/0033).
//!
//! Protocol, model-checked in `crates/testkit/tests/loom.rs`: a thread that frees memory, under a
//! lock, afterwards checks whether it must notify the scavenger. The scavenger forgets the
//! notification before it takes that lock to look for memory. It ends only if it was not notified
//! since. So no freed memory goes unnoticed, and one notification a round writes the word, not
//! each. The word also has the number of counted threads. So the last thread to leave sees the
//! scavenger, or the thread that is starting it sees that all have left.

use crate::backend::region::UnitIndex;
use crate::backend::tuning::SCAVENGER_REQUESTS_IGNORED;
use crate::platform::os::{ThreadWords, WakeFlag};
use crate::platform::sync::{
    AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, const_fn,
};

/// No scavenger runs.
const NONE: u32 = 0;
/// The scavenger has ended. The thread that starts the next one, or leaves last, must join its
/// thread.
const ENDED: u32 = 1;
/// A thread is starting it.
const STARTING: u32 = 2;
/// It runs, and was not notified since it last checked.
const AWAKE: u32 = 3;
const NOTIFIED: u32 = 4;
/// It must end, and a thread waits for that.
const STOPPING: u32 = 5;
/// No scavenger will ever run.
const NEVER: u32 = 6;

/// The lowest bits of the word hold the state, those above the number of counted threads.
const STATE_MASK: u32 = 7;
const ONE_THREAD: u32 = 8;

/// Values of [`ThreadWords::counted_as`]: a new thread; the first of the process; a counted thread;
/// a thread that no longer counts, or never will.
const NEW: u16 = 0;
const FIRST: u16 = 1;
const COUNTED: u16 = 2;
const LEFT: u16 = 3;

/// The state of the scavenger. In a cache line of its own, which all threads read and few write.
#[repr(align(64))]
pub struct Scavenger {
    word: AtomicU32,
    /// Wakes the scavenger when it must end.
    pub(crate) wake_flag: WakeFlag,
    /// Requests for a scavenger by threads other than the first.
    requests: AtomicU8,
    /// Whether the first thread of the process is known. Its words are marked then.
    pub(crate) has_first: AtomicBool,
    /// Whether a thread other than the first has started it.
    started_by_other: AtomicBool,
    /// Whether the first thread counts; and whether another ever did.
    first_counts: AtomicBool,
    other_counted: AtomicBool,
    /// The thread's handle: written by the thread that starts it, read by the thread that joins it.
    pub(crate) thread: AtomicUsize,
    /// Without a scavenger: when the next round is due, and when to consider starting one, in ms by
    /// the clock of `Os`.
    pub(crate) round_due: AtomicU64,
    pub(crate) start_due: AtomicU64,
    /// Without a scavenger: whether memory was freed in bulk since the last round.
    freed: AtomicBool,
    /// Whether the program has forbidden it for now.
    pub(crate) is_paused: AtomicBool,
    /// Time between two rounds, in ms; 0 for the usual one.
    pub(crate) round_ms: AtomicU32,
    /// Whether free memory is purged at once (`EBB_PURGE_DELAY=0`).
    pub(crate) purges_at_once: AtomicBool,
}

impl Scavenger {
    const_fn! {
        /// No scavenger runs yet.
        pub fn new() -> Self {
            Self {
                word: AtomicU32::new(NONE),
                wake_flag: WakeFlag::new(0),
                requests: AtomicU8::new(0),
                has_first: AtomicBool::new(false),
                started_by_other: AtomicBool::new(false),
                first_counts: AtomicBool::new(false),
                other_counted: AtomicBool::new(false),
                thread: AtomicUsize::new(0),
                round_due: AtomicU64::new(0),
                start_due: AtomicU64::new(0),
                freed: AtomicBool::new(false),
                is_paused: AtomicBool::new(false),
                round_ms: AtomicU32::new(0),
                purges_at_once: AtomicBool::new(false),
            }
        }
    }

    /// Without a scavenger: records that memory was freed in bulk.
    #[inline]
    pub(crate) fn note_freed(&self) {
        if !self.freed.load(Ordering::Relaxed) {
            self.freed.store(true, Ordering::Relaxed);
        }
    }

    /// Whether memory was freed in bulk since the last call.
    pub(crate) fn take_freed(&self) -> bool {
        self.freed.load(Ordering::Relaxed) && self.freed.swap(false, Ordering::Relaxed)
    }

    fn state(&self) -> u32 {
        self.word.load(Ordering::Relaxed) & STATE_MASK
    }

    /// Whether the thread with these words may start a scavenger, or replace the one that runs.
    #[inline]
    pub(crate) fn is_wanted(&self, words: &ThreadWords) -> bool {
        match self.state() {
            NONE | ENDED => true,
            AWAKE | NOTIFIED => self.started_by_other.load(Ordering::Relaxed) && words.is_first(),
            _ => false,
        }
    }

    /// Whether a scavenger runs or starts.
    pub fn exists(&self) -> bool {
        matches!(self.state(), STARTING | AWAKE | NOTIFIED)
    }

    /// Notifies the scavenger, after memory was freed under a lock that the scavenger takes. False
    /// if there is no scavenger.
    #[inline]
    pub fn notify(&self) -> bool {
        match self.state() {
            STARTING | NOTIFIED => true,
            // The change fails if the scavenger has just ended, or another thread has notified it.
            AWAKE => self.change(AWAKE, NOTIFIED) || self.exists(),
            _ => false,
        }
    }

    /// Counts a thread. It must call [`Scavenger::leave`] when it exits.
    pub fn arrive(&self) {
        self.replace(|state, threads| Some((state, threads + 1)));
    }

    /// Counts a thread that is not the first. From now on the first does not count.
    pub(crate) fn arrive_beside_first(&self) {
        self.other_counted.store(true, Ordering::SeqCst);
        self.arrive();
        if self.take_first() {
            self.leave();
        }
    }

    /// Whether only the first thread is known to allocate.
    pub(crate) fn is_for_first(&self) -> bool {
        !self.other_counted.load(Ordering::Relaxed)
    }

    /// Whether the first thread may count.
    pub(crate) fn may_count_first(&self) -> bool {
        !self.first_counts.load(Ordering::Relaxed) && self.is_for_first()
    }

    /// Counts the first thread, once, unless another counts or has counted. Returns true as
    /// [`Scavenger::leave`] does.
    pub(crate) fn arrive_first(&self) -> bool {
        self.arrive();
        let counted_before = self.first_counts.swap(true, Ordering::SeqCst);
        let other_counted = self.other_counted.load(Ordering::SeqCst);
        (counted_before || other_counted && self.take_first()) && self.leave()
    }

    /// Whether the first thread counted. It does not any more, and must leave.
    pub(crate) fn take_first(&self) -> bool {
        self.first_counts.swap(false, Ordering::SeqCst)
    }

    /// Uncounts a thread. Returns true if it was the last and the scavenger runs or awaits a join;
    /// the caller must stop the scavenger then.
    pub fn leave(&self) -> bool {
        let must_stop = |state, threads| threads == 1 && matches!(state, ENDED | AWAKE | NOTIFIED);
        let left = self.replace(|state, threads| {
            let stopped = must_stop(state, threads);
            Some((if stopped { STOPPING } else { state }, threads - 1))
        });
        left.is_some_and(|(state, threads)| must_stop(state, threads))
    }

    /// Whether no thread counts.
    pub(crate) fn counts_none(&self) -> bool {
        self.word.load(Ordering::Relaxed) / ONE_THREAD == 0
    }

    /// Claims the start of the scavenger for the caller, if it may start and at least `threads_min`
    /// threads count. Returns `None` if not, and otherwise whether to join the previous thread.
    /// Call [`Scavenger::begun`] or [`Scavenger::not_begun`] next.
    pub fn begin(&self, threads_min: u32) -> Option<bool> {
        let begun = self.replace(|state, threads| {
            let may_start = matches!(state, NONE | ENDED) && threads >= threads_min;
            may_start.then_some((STARTING, threads))
        });
        begun.map(|(state, _)| state == ENDED)
    }

    /// Records that the start failed.
    pub fn not_begun(&self) {
        self.change(STARTING, NONE);
    }

    /// Records that the scavenger was started. Returns false if all threads have left meanwhile;
    /// the caller must stop it then.
    pub fn begun(&self) -> bool {
        let begun = self
            .replace(|_, threads| Some((if threads == 0 { STOPPING } else { NOTIFIED }, threads)));
        begun.is_some_and(|(_, threads)| threads > 0)
    }

    /// Lets the first thread replace a scavenger that another thread started. Returns true if one
    /// runs; the caller must stop it then.
    pub fn replace_thread(&self) -> bool {
        self.change(AWAKE, STOPPING) || self.change(NOTIFIED, STOPPING)
    }

    /// Whether it must end, and will be joined.
    pub fn is_stopping(&self) -> bool {
        self.state() == STOPPING
    }

    /// Records that its thread was joined.
    pub fn stopped(&self) {
        self.requests.store(0, Ordering::Relaxed);
        self.change(STOPPING, NONE);
    }

    /// Whether it was notified since the last check.
    pub fn take_notified(&self) -> bool {
        self.change(NOTIFIED, AWAKE)
    }

    /// Ends the scavenger. Returns false if it was notified since the last check, or must stop
    /// anyway.
    pub fn end(&self) -> bool {
        self.change(AWAKE, ENDED)
    }

    /// Marks the thread with these words as the first of the process.
    pub(crate) fn mark_first(&self, words: &ThreadWords) {
        words.counted_as.store(FIRST, Ordering::Relaxed);
        self.has_first.store(true, Ordering::Relaxed);
    }

    /// Called in the child of a fork, by its only thread: a scavenger of the parent does not run
    /// here.
    pub fn end_in_child(&self, words: &ThreadWords) {
        self.mark_first(words);
        // The child has one thread, but the memory of its parent, and the C library may not say so.
        self.first_counts.store(false, Ordering::Relaxed);
        self.other_counted.store(true, Ordering::Relaxed);
        self.replace(|state, _| Some((if state == NEVER { NEVER } else { NONE }, 0)));
    }

    /// Rules a scavenger out for good.
    pub fn never(&self) {
        self.replace(|_, threads| Some((NEVER, threads)));
    }

    /// Whether a scavenger is ruled out.
    pub fn is_off(&self) -> bool {
        self.state() == NEVER
    }

    /// How many threads must count for the thread with these words to start the scavenger; `None`
    /// if it must not. The first thread has the CPUs and priority of the process, so the others
    /// give it some time to be the one. A single other thread starts none: it may have a CPU for
    /// itself.
    pub(crate) fn threads_min(&self, words: &ThreadWords) -> Option<u32> {
        match words.counted_as.load(Ordering::Relaxed) {
            FIRST => Some(1),
            COUNTED => {
                let requests = self.requests.load(Ordering::Relaxed);
                self.requests.store(requests.saturating_add(1), Ordering::Relaxed);
                (requests >= SCAVENGER_REQUESTS_IGNORED).then_some(2)
            }
            _ => None,
        }
    }

    /// Records that the thread with these words starts it.
    pub(crate) fn start_from(&self, words: &ThreadWords) {
        self.started_by_other.store(!words.is_first(), Ordering::Relaxed);
    }

    /// Changes the state. Returns false if it was not `from`.
    fn change(&self, from: u32, to: u32) -> bool {
        self.replace(|state, threads| (state == from).then_some((to, threads))).is_some()
    }

    /// Replaces state and thread count by the result of `to`, unless that is `None`. Returns the
    /// old values.
    fn replace(&self, to: impl Fn(u32, u32) -> Option<(u32, u32)>) -> Option<(u32, u32)> {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            let old = (word & STATE_MASK, word / ONE_THREAD);
            let (state, threads) = to(old.0, old.1)?;
            let new = (threads * ONE_THREAD) | state;
            match self.word.compare_exchange(word, new, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Some(old),
                Err(found) => word = found,
            }
        }
    }
}

impl ThreadWords {
    /// Whether it is not yet known if the thread counts.
    #[inline]
    pub(crate) fn is_uncounted(&self) -> bool {
        self.counted_as.load(Ordering::Relaxed) == NEW
    }

    pub(crate) fn is_first(&self) -> bool {
        self.counted_as.load(Ordering::Relaxed) == FIRST
    }

    /// Marks the thread as counted.
    pub(crate) fn mark_counted(&self) {
        self.counted_as.store(COUNTED, Ordering::Relaxed);
    }

    /// Marks the thread as one that never counts again. Returns whether it counted.
    pub(crate) fn mark_left(&self) -> bool {
        let counted = self.counted_as.load(Ordering::Relaxed) == COUNTED;
        self.counted_as.store(LEFT, Ordering::Relaxed);
        counted
    }
}

/// Progress of the rounds that give memory back.
pub(crate) struct Rounds {
    /// The unit at which the next round continues.
    pub cursor: UnitIndex,
    /// Full passes over all spans since anything was last purged or freed.
    pub quiet: u32,
    /// Whether caches were in use at the last round, as far as is known.
    pub caches_used: bool,
    /// The unit at which the next purge after a burst of frees continues.
    pub burst_cursor: UnitIndex,
    /// Bytes of purged spans that claims had filled again by the last check for a burst, since the
    /// start.
    pub refilled_bytes: usize,
    /// Before this time, malloc_trim waits for no other thread.
    pub wait_due_ms: u64,
}

impl Rounds {
    pub const fn new() -> Self {
        Self {
            cursor: 0,
            quiet: 0,
            caches_used: false,
            burst_cursor: 0,
            refilled_bytes: 0,
            wait_due_ms: 0,
        }
    }
}
