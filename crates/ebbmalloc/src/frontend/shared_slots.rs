//! Caches that any thread may take: as many as there are CPUs, each behind a try-lock. A thread
//! starts where threads of its key last succeeded, moves on from a busy cache to the next, and
//! stays there. Works everywhere and needs to know nothing of threads' ends.
//!
//! The idea is that of Zig's `SmpAllocator` (2025); here threads remember their cache in a
//! shared table by thread key rather than in thread-local storage.

use super::front::Front;
use crate::frontend::slab::{self as cache, Header, OwnedStack, Slab, lock_of};
use crate::platform::sync::{AtomicU8, Guard, Ordering};
use crate::size_class::SizeClass;

/// Thread keys are told apart up to this many.
const KEYS: usize = 256;
/// More caches than this would not be found through a byte.
const SLOTS_MAX: usize = 256;

/// Which cache threads of a key used last.
pub(crate) struct Preferred([AtomicU8; KEYS]);

impl Preferred {
    pub const fn new() -> Self {
        Self([const { AtomicU8::new(0) }; KEYS])
    }
}

/// The front end of a thread.
pub(crate) struct Slots<'a> {
    pub slabs: *mut Slab,
    pub count: usize,
    pub preferred: &'a Preferred,
    /// The calling thread's [`crate::platform::os::Os::thread_key`].
    pub key: usize,
}

impl Slots<'_> {
    /// Runs `work` on the stack of a cache that no other thread uses meanwhile.
    fn with<R>(&self, class: SizeClass, work: impl FnOnce(&mut OwnedStack) -> R) -> R {
        let (slab, _guard) = self.take();
        // SAFETY: the lock is held until the guard goes, after the stack.
        work(&mut unsafe { OwnedStack::new(slab, class) })
    }

    /// A cache, which is the caller's as long as its guard.
    #[inline(never)]
    fn take(&self) -> (*mut Slab, Guard<'_, ()>) {
        let preferred = &self.preferred.0[self.key % KEYS];
        let count = self.count.min(SLOTS_MAX);
        let start = preferred.load(Ordering::Relaxed) as usize;
        for step in 0..count {
            let slot = (start + step) % count;
            // SAFETY: there are `count` slabs, and they live as long as the engine.
            let (slab, lock) = unsafe { (self.slabs.add(slot), lock_of(self.slabs.add(slot))) };
            let guard = match lock.try_lock() {
                Some(guard) => guard,
                // Everybody is busy: wait here rather than spin through all of them again.
                None if step + 1 == count => lock.lock(),
                None => continue,
            };
            if slot != start {
                preferred.store(slot as u8, Ordering::Relaxed);
            }
            return (slab, guard);
        }
        unreachable!("there is at least one cache")
    }

    /// Replaces the header of the class's stack; before and after.
    fn change(&self, class: SizeClass, to: impl Fn(Header) -> Header) -> (Header, Header) {
        self.with(class, |stack| {
            let old = stack.header();
            let new = to(old);
            stack.set_header(new);
            (old, new)
        })
    }
}

impl Front for Slots<'_> {
    fn pop(&self, class: SizeClass) -> *mut u8 {
        self.with(class, OwnedStack::pop)
    }

    fn holds(&self, class: SizeClass, block: *mut u8) -> bool {
        self.with(class, |stack| stack.holds(block))
    }

    fn push(&self, class: SizeClass, block: *mut u8) -> bool {
        self.with(class, |stack| stack.push_marked(block))
    }

    fn mark_local(&self, block: *mut u8) {
        let (slab, _guard) = self.take();
        // SAFETY: such slabs have marks; the lock is held.
        unsafe { cache::mark_local(slab, block) }
    }

    fn pop_batch(&self, class: SizeClass, blocks: &mut [*mut u8]) -> usize {
        self.with(class, |stack| stack.pop_batch(blocks))
    }

    fn push_batch(&self, class: SizeClass, blocks: &[*mut u8]) -> usize {
        self.with(class, |stack| stack.push_batch_marked(blocks))
    }

    fn grow(&self, class: SizeClass) -> Option<(Header, Header)> {
        Some(self.change(class, |header| header.grown(class)))
    }

    fn slab(&self) -> Option<*mut Slab> {
        let preferred = self.preferred.0[self.key % KEYS].load(Ordering::Relaxed);
        // SAFETY: preferred caches exist.
        Some(unsafe { self.slabs.add(preferred as usize) })
    }

    fn look(&self, class: SizeClass) -> Option<Header> {
        Some(self.with(class, |stack| stack.header()))
    }

    fn shrink(&self, class: SizeClass) {
        self.change(class, |header| header.shrunk(class));
    }
}
