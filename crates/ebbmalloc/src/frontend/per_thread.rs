//! The front end of thread mode: a cache for each thread, used by plain loads and stores.
//!
//! The number of threads that have a cache may be limited. The others share the caches of slot mode
//! (`shared_slots.rs`).
//!
//! While a thread works on its slab, its state is *busy*. A signal handler that interrupts it there
//! is served without a cache. A drainer looks at the state too (`engine/caches/drain.rs`).

use core::ptr;
use core::sync::atomic::compiler_fence;

use crate::frontend::owned_stack::OwnedStack;
use crate::frontend::slab::{Slab, SlabMemory};
use crate::frontend::thread_slabs::ThreadSlabs;
use crate::platform::os::{Os, ThreadWords};
use crate::platform::sync::Ordering;
use crate::size_class::SizeClass;

/// State of a thread that has no cache yet.
const NEW: u32 = 0;
/// State of a thread that has a cache, and is not using it.
const READY: u32 = 1;
/// As [`READY`], but the hot path must not use the cache.
const READY_FOR_SLOW: u32 = 2;
/// State of a thread that is using its cache, or about to get one.
const BUSY: u32 = 3;
/// State of a thread that will never get a cache, or has given its own back.
const GONE: u32 = 4;

/// The calling thread's cache, while the thread is not using it.
pub(crate) struct Ready<'a> {
    words: &'a ThreadWords,
    state: u32,
}

impl<'a> Ready<'a> {
    /// As [`Thread::ready`], for the hot path: `None` also if that must not use the cache.
    #[inline(always)]
    pub fn hot(words: &'a ThreadWords) -> Option<Self> {
        let ready = words.state.load(Ordering::Relaxed) == READY;
        ready.then_some(Self { words, state: READY })
    }

    /// Runs `work` on a stack of the cache.
    #[inline(always)]
    pub fn with<R>(self, class: SizeClass, work: impl FnOnce(&mut OwnedStack) -> R) -> R {
        let Self { words, state } = self;
        words.state.store(BUSY, Ordering::Relaxed);
        // A fence for the compiler is enough: the processor shows a thread its own stores in order,
        // also in a signal handler.
        compiler_fence(Ordering::SeqCst);
        let slab = words.own.load(Ordering::Relaxed).cast();
        // SAFETY: the slab is this thread's, and a signal handler does not use it while the state
        // is busy.
        let result = work(&mut unsafe { OwnedStack::new(Slab::new(slab), class) });
        compiler_fence(Ordering::SeqCst);
        // Release: a thread that loads this state also sees the stores to the slab.
        words.state.store(state, Ordering::Release);
        result
    }
}

/// True if the thread that has these words is certainly not using its cache, or has ended. It may
/// begin to use it at any time.
pub(crate) fn is_at_rest(os: &impl Os, words: *const ThreadWords) -> bool {
    !os.may_be(words, BUSY)
}

/// The calling thread's slab, if it has one.
pub(crate) fn own(words: &ThreadWords) -> Option<Slab> {
    let slab = words.own.load(Ordering::Relaxed).cast::<SlabMemory>();
    // SAFETY: the slab lives as long as the engine.
    (!slab.is_null()).then(|| unsafe { Slab::new(slab) })
}

/// True if a thread has no cache of its own because `max` threads have one already.
pub(crate) fn is_beyond(words: &ThreadWords, slabs: &ThreadSlabs, max: usize) -> bool {
    words.state.load(Ordering::Relaxed) == NEW && slabs.taken() >= max
}

/// Marks a thread as one that never gets a cache of its own; false if it was not new.
pub(crate) fn refuse(words: &ThreadWords) -> bool {
    let new = words.state.load(Ordering::Relaxed) == NEW;
    words.state.store(GONE, Ordering::Relaxed);
    compiler_fence(Ordering::SeqCst);
    new
}

/// Takes the calling thread's cache away, and marks the thread as one that gets no other. Returns
/// the cache, if it had one.
pub(crate) fn leave(words: &ThreadWords) -> Option<Slab> {
    // Release, as in `Ready::with`: a thread that loads this state also sees the stores to the
    // slab.
    words.state.store(GONE, Ordering::Release);
    compiler_fence(Ordering::SeqCst);
    let slab = own(words);
    words.own.store(ptr::null_mut(), Ordering::Relaxed);
    slab
}

/// The front end of the calling thread.
pub(crate) struct Thread<'a, O> {
    pub os: &'a O,
    pub words: &'a ThreadWords,
    pub slabs: &'a ThreadSlabs,
    /// True if the hot path may use the cache.
    pub hot: bool,
}

impl<O: Os> Thread<'_, O> {
    /// `None` if the thread has no cache, or if a signal handler has interrupted its work on it.
    pub fn ready(&self) -> Option<Ready<'_>> {
        let state = self.words.state.load(Ordering::Relaxed);
        let words = self.words;
        matches!(state, READY | READY_FOR_SLOW).then_some(Ready { words, state })
    }

    pub fn join_if_new(&self) {
        if self.words.state.load(Ordering::Relaxed) == NEW {
            self.join();
        }
    }

    /// Gives a new thread a cache, if one is free or there is memory for another.
    #[cold]
    fn join(&self) {
        let Self { os, words, slabs, hot } = self;
        // Busy, since `watch_thread` may allocate, which must then go without a cache.
        words.state.store(BUSY, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        let state = match slabs.take(*os, *words) {
            // The next miss tries again.
            None => NEW,
            Some(slab) if os.watch_thread() => {
                words.own.store(slab.address(), Ordering::Relaxed);
                if *hot { READY } else { READY_FOR_SLOW }
            }
            Some(slab) => {
                // SAFETY: the slab was just taken, and no thread uses it.
                unsafe { slabs.give(*os, slab) }
                GONE
            }
        };
        compiler_fence(Ordering::SeqCst);
        words.state.store(state, Ordering::Relaxed);
    }
}
