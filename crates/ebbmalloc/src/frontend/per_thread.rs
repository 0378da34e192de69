//! A cache for each thread, which no other thread uses: plain loads and stores. Where only so many
//! may have one, threads beyond these share others (`slot.rs`).
//!
//! While a thread works on its slab, its state says so, and a signal handler that interrupts it
//! there is served without a cache. Whoever empties the caches of others looks at the state too (`drain.rs`).

use core::ptr;
use core::sync::atomic::compiler_fence;

use super::front::Front;
use crate::frontend::slab::{Header, OwnedStack, Slab, fair_share};
use crate::frontend::thread_slabs::ThreadSlabs;
use crate::platform::os::{Os, ThreadWords};
use crate::platform::sync::Ordering;
use crate::size_class::SizeClass;

/// A thread's state: it has no cache yet.
const NEW: u32 = 0;
/// It has one, and is not using it.
const READY: u32 = 1;
/// The same, where the hot path must not use it.
const READY_FOR_SLOW: u32 = 2;
/// It is using it, or about to get it.
const BUSY: u32 = 3;
/// It gets none, or none any more.
const GONE: u32 = 4;

/// The calling thread's cache, while the thread is not using it.
pub(crate) struct Ready<'a> {
    words: &'a ThreadWords,
    state: u32,
}

impl<'a> Ready<'a> {
    /// `None` where the thread has no cache, or a signal handler has interrupted its work on it.
    fn of(words: &'a ThreadWords) -> Option<Self> {
        let state = words.state.load(Ordering::Relaxed);
        matches!(state, READY | READY_FOR_SLOW).then_some(Self { words, state })
    }

    /// The same for the hot path: `None` also where that must not use caches.
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
        // The processor shows a thread its own stores in order, also in a handler.
        compiler_fence(Ordering::SeqCst);
        let slab = words.own.load(Ordering::Relaxed).cast();
        // SAFETY: the slab is this thread's, and a handler leaves it alone while that is busy.
        let result = work(&mut unsafe { OwnedStack::new(slab, class) });
        compiler_fence(Ordering::SeqCst);
        // Who sees this state sees what was stored meanwhile.
        words.state.store(state, Ordering::Release);
        result
    }
}

/// Whether the thread that has these words is certainly not at work on its cache, or has ended. It may begin any time.
pub(crate) fn is_at_rest(os: &impl Os, words: *const ThreadWords) -> bool {
    !os.may_be(words, BUSY)
}

/// The calling thread's slab; null if it has none.
pub(crate) fn own(words: &ThreadWords) -> *mut Slab {
    words.own.load(Ordering::Relaxed).cast()
}

/// Whether a thread has no cache of its own because all that there may be are taken.
pub(crate) fn is_beyond(words: &ThreadWords, slabs: &ThreadSlabs, most: usize) -> bool {
    words.state.load(Ordering::Relaxed) == NEW && slabs.taken() >= most
}

/// Sees to it that a new thread never gets a cache of its own; false if it was not new.
pub(crate) fn refuse(words: &ThreadWords) -> bool {
    let new = words.state.load(Ordering::Relaxed) == NEW;
    words.state.store(GONE, Ordering::Relaxed);
    compiler_fence(Ordering::SeqCst);
    new
}

/// Takes its cache from the calling thread, which gets none again; null if it had none.
pub(crate) fn leave(words: &ThreadWords) -> *mut Slab {
    // As any end of work.
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
    /// Whether the hot path may use the cache.
    pub hot: bool,
}

impl<O: Os> Thread<'_, O> {
    /// Gives a thread that is new a cache, as far as there are any.
    #[cold]
    fn join(&self) {
        let Self { os, words, slabs, hot } = self;
        // Watching the thread may allocate: without a cache.
        words.state.store(BUSY, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        let state = match slabs.take(*os, *words) {
            // The next time there may be one.
            None => NEW,
            Some(slab) if os.watch_thread() => {
                words.own.store(slab.cast(), Ordering::Relaxed);
                if *hot { READY } else { READY_FOR_SLOW }
            }
            Some(slab) => {
                // SAFETY: just taken, and not used.
                unsafe { slabs.give(*os, slab) }
                GONE
            }
        };
        compiler_fence(Ordering::SeqCst);
        words.state.store(state, Ordering::Relaxed);
    }
}

impl<O: Os> Front for Thread<'_, O> {
    fn pop(&self, class: SizeClass) -> *mut u8 {
        Ready::of(self.words).map_or(ptr::null_mut(), |cache| cache.with(class, OwnedStack::pop))
    }

    fn holds(&self, class: SizeClass, block: *mut u8) -> bool {
        Ready::of(self.words)
            .is_some_and(|cache| cache.with(class, |stack| stack.is_near_top(block)))
    }

    fn push(&self, class: SizeClass, block: *mut u8) -> bool {
        Ready::of(self.words).is_some_and(|cache| cache.with(class, |stack| stack.push(block)))
    }

    fn pop_batch(&self, class: SizeClass, blocks: &mut [*mut u8]) -> usize {
        let cache = Ready::of(self.words);
        cache.map_or(0, |cache| cache.with(class, |stack| stack.pop_batch(blocks)))
    }

    fn push_batch(&self, class: SizeClass, blocks: &[*mut u8]) -> usize {
        let cache = Ready::of(self.words);
        cache.map_or(0, |cache| cache.with(class, |stack| stack.push_batch(blocks)))
    }

    fn grow(&self, class: SizeClass) -> Option<(Header, Header)> {
        if self.words.state.load(Ordering::Relaxed) == NEW {
            self.join();
        }
        let share = fair_share(class, self.slabs.taken());
        Some(Ready::of(self.words)?.with(class, |stack| stack.grow(share)))
    }

    fn slab(&self) -> Option<*mut Slab> {
        let slab = own(self.words);
        (!slab.is_null()).then_some(slab)
    }

    fn look(&self, class: SizeClass) -> Option<Header> {
        Some(Ready::of(self.words)?.with(class, |stack| stack.header()))
    }

    fn is_own(&self) -> bool {
        true
    }

    fn shrink(&self, _: SizeClass) {}
}
