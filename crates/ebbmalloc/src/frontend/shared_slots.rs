//! The front end of slot mode: as many caches as CPUs, each behind a lock that is tried first.
//!
//! A thread starts at the cache that a thread of its token used last. It moves on from a busy cache
//! to the next, and stays there. This works on every system, and needs no notice of a thread's end.
//!
//! The idea is that of Zig's `SmpAllocator` (2025). Here a shared table by thread token remembers
//! the cache, rather than thread-local storage.

use crate::frontend::owned_stack::OwnedStack;
use crate::frontend::slab::{Slab, SlabMemory};
use crate::platform::sync::{AtomicU8, Guard, Ordering};
use crate::size_class::SizeClass;

/// Entries of the table; threads whose tokens are equal modulo this share one.
const PREFERENCES: usize = 256;
/// The most caches in use: an entry of the table is a byte.
const SLOTS_MAX: usize = 256;

/// The table of the cache that threads of each token used last.
pub(crate) struct Preferred([AtomicU8; PREFERENCES]);

impl Preferred {
    pub const fn new() -> Self {
        Self([const { AtomicU8::new(0) }; PREFERENCES])
    }
}

/// The front end of a thread in slot mode.
pub(crate) struct SharedSlots<'a> {
    pub slabs: *mut SlabMemory,
    pub count: usize,
    pub preferred: &'a Preferred,
    /// The calling thread's [`crate::platform::os::OsThreads::thread_token`].
    pub token: usize,
}

impl SharedSlots<'_> {
    /// Runs `work` on the class's stack in a cache whose lock is held meanwhile.
    pub fn with<R>(&self, class: SizeClass, work: impl FnOnce(&mut OwnedStack) -> R) -> R {
        let (slab, _guard) = self.take();
        // SAFETY: the guard holds the slab's lock, and outlives the stack. The slab has marks.
        work(&mut unsafe { OwnedStack::marked(slab, class) })
    }

    /// Locks a cache, and remembers it in the table. The cache is the caller's while the guard
    /// lives.
    #[inline(never)]
    fn take(&self) -> (Slab, Guard<'_, ()>) {
        let preferred = &self.preferred.0[self.token % PREFERENCES];
        let count = self.count.min(SLOTS_MAX);
        let start = preferred.load(Ordering::Relaxed) as usize;
        for step in 0..count {
            let slot = (start + step) % count;
            // SAFETY: there are `count` slabs, and they live as long as the engine.
            let slab = unsafe { Slab::new(self.slabs.add(slot)) };
            let guard = match slab.lock().try_lock() {
                Some(guard) => guard,
                // All caches are busy: wait for this one rather than try all of them again.
                None if step + 1 == count => slab.lock().lock(),
                None => continue,
            };
            if slot != start {
                preferred.store(slot as u8, Ordering::Relaxed);
            }
            return (slab, guard);
        }
        unreachable!("there is at least one cache")
    }
}
