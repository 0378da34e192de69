//! A cache for each thread, which no other thread touches: plain loads and stores.
//!
//! A thread takes its slab out of its word while it works on it, so a signal handler that
//! interrupts it there finds none, and is served without a cache.

use core::ptr;
use core::sync::atomic::compiler_fence;

use super::Front;
use crate::cache::{Header, OwnedStack, Slab, fair_share};
use crate::os::{Os, ThreadWords};
use crate::size_class::SizeClass;
use crate::sync::Ordering;
use crate::thread_slabs::ThreadSlabs;

/// What belongs to a thread that gets no cache, or none any more.
const NOTHING: *mut u8 = ptr::without_provenance_mut(1);

/// The calling thread's cache, while the thread is not using it.
pub(crate) struct Ready<'a> {
    words: &'a ThreadWords,
    slab: *mut u8,
}

impl<'a> Ready<'a> {
    /// `None` where the thread has no cache, or a signal handler has interrupted its work on it.
    #[inline(always)]
    pub fn of(words: &'a ThreadWords) -> Option<Self> {
        let slab = words.ready.load(Ordering::Relaxed);
        (!slab.is_null()).then_some(Self { words, slab })
    }

    /// Runs `work` on a stack of the cache.
    #[inline(always)]
    pub fn with<R>(self, class: SizeClass, work: impl FnOnce(&mut OwnedStack) -> R) -> R {
        self.words.ready.store(ptr::null_mut(), Ordering::Relaxed);
        // The processor shows a thread its own stores in order, also in a handler.
        compiler_fence(Ordering::SeqCst);
        // SAFETY: the slab is this thread's, and nobody else finds it before it is put back.
        let result = work(&mut unsafe { OwnedStack::new(self.slab.cast(), class) });
        compiler_fence(Ordering::SeqCst);
        self.words.ready.store(self.slab, Ordering::Relaxed);
        result
    }
}

/// What belongs to the thread, if it has a cache.
pub(crate) fn own(words: &ThreadWords) -> Option<*mut Slab> {
    let own = words.own.load(Ordering::Relaxed);
    (!own.is_null() && own != NOTHING).then_some(own.cast())
}

/// Takes its cache from the calling thread, which gets none again.
pub(crate) fn leave(words: &ThreadWords) -> Option<*mut Slab> {
    let slab = own(words);
    words.ready.store(ptr::null_mut(), Ordering::Relaxed);
    words.own.store(NOTHING, Ordering::Relaxed);
    compiler_fence(Ordering::SeqCst);
    slab
}

/// The front end of the calling thread.
pub(crate) struct Thread<'a, O> {
    pub os: &'a O,
    pub words: &'a ThreadWords,
    pub slabs: &'a ThreadSlabs,
}

impl<O: Os> Thread<'_, O> {
    /// Gives a thread that is new a cache, as far as there are any.
    #[cold]
    fn join(&self) {
        let Self { os, words, slabs } = self;
        if !words.own.load(Ordering::Relaxed).is_null() {
            return;
        }
        // Watching the thread may allocate: without a cache.
        words.own.store(NOTHING, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        let Some(slab) = slabs.take(*os) else {
            // The next time there may be one.
            words.own.store(ptr::null_mut(), Ordering::Relaxed);
            return;
        };
        if !os.watch_thread() {
            // SAFETY: just taken, and not used.
            return unsafe { slabs.give(*os, slab) };
        }
        words.own.store(slab.cast(), Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        words.ready.store(slab.cast(), Ordering::Relaxed);
    }
}

impl<O: Os> Front for Thread<'_, O> {
    fn pop(&self, class: SizeClass) -> *mut u8 {
        Ready::of(self.words).map_or(ptr::null_mut(), |cache| cache.with(class, OwnedStack::pop))
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
        self.join();
        let share = fair_share(class, self.slabs.taken());
        Some(Ready::of(self.words)?.with(class, |stack| stack.grow(share)))
    }

    /// A thread's stacks are bounded each by itself, and by the number of threads.
    fn slab(&self) -> Option<*mut Slab> {
        None
    }

    fn look(&self, class: SizeClass) -> Option<Header> {
        Some(Ready::of(self.words)?.with(class, |stack| stack.header()))
    }

    fn shrink(&self, _: SizeClass) {}
}
