//! Transfer caches: pass batches of blocks from threads that free to threads that allocate, without
//! a detour through the spans.
//!
//! They are used in three cases only:
//!
//! - The lock of a class is taken. Its holder claims or releases up to 256 blocks, each in the
//!   bitmap of its span. Where eight CPUs do nothing else, they wait most of the time. So a flush
//!   puts its batch into a transfer cache, as far as there is capacity, and the next refill that
//!   would wait takes it from there. Either holds the cache's lock only while it copies addresses,
//!   and there are several transfer caches.
//! - A flow: one thread asks for batches as large as a span, and another gives such batches back.
//!   Through the spans, each flush would free a span or more, and each refill would cut new ones.
//! - Blocks above 8 KiB: they are as large as the processor's first caches. Through the spans, half
//!   of them would come out on another CPU than the one whose caches have them (decisions/0039).
//!
//! The idea is tcmalloc's, where all batches go that way (Ghemawat, Menage, "TCMalloc").
//! decisions/0029 has the gains, and why other batches do not.

use crate::frontend::owned_stack::OwnedStack;
use crate::frontend::slab::{Slab, SlabMemory, is_late};
use crate::frontend::tuning::{
    LATE_TRANSFER_BYTES_MAX, TRANSFER_BYTES_MAX, TRANSFER_CACHES_MAX, TRANSFER_CPUS_MIN,
};
use crate::platform::sync::{AtomicUsize, Guard, Ordering, const_fn};
use crate::size_class::SizeClass;

/// Number of transfer caches, given the number of CPUs.
pub(crate) fn count(cpus: usize) -> usize {
    if cpus < TRANSFER_CPUS_MIN { 0 } else { cpus.min(TRANSFER_CACHES_MAX) }
}

/// The thread that last asked for a large batch of a class: a hint, by plain loads and stores.
pub(crate) struct LastRequester(AtomicUsize);

impl LastRequester {
    const_fn! {
        pub fn new() -> Self {
            Self(AtomicUsize::new(0))
        }
    }

    /// Records that the thread with this token asked.
    pub fn note(&self, token: usize) {
        let token = token.wrapping_add(1);
        if self.0.load(Ordering::Relaxed) != token {
            self.0.store(token, Ordering::Relaxed);
        }
    }

    /// True if a thread with another token was the last to ask.
    pub fn by_another(&self, token: usize) -> bool {
        ![0, token.wrapping_add(1)].contains(&self.0.load(Ordering::Relaxed))
    }
}

/// The transfer caches. Each has a lock, which misses only try; drains wait for it.
pub(crate) struct Transfers {
    pub slabs: *mut SlabMemory,
    pub count: usize,
    /// Whether a thread waits where another holds the lock of a class. Otherwise it goes to a
    /// transfer cache, also with a batch that does not always pass there.
    pub waits: bool,
    /// Selects the cache that is tried first: the number of the CPU, or else the thread's
    /// [`crate::platform::os::OsThreads::thread_token`].
    pub nearest: usize,
}

impl Transfers {
    /// Takes blocks from one transfer cache into the *end* of `blocks`. Returns how many it took.
    #[inline(never)]
    pub fn take(&self, class: SizeClass, blocks: &mut [*mut u8]) -> usize {
        let filled = self.each().filter(|slab| slab.cached_blocks(class) > 0);
        for (mut stack, _guard) in filled.filter_map(|slab| try_own(slab, class)) {
            let taken = stack.header().len(class).min(blocks.len());
            let start = blocks.len() - taken;
            if stack.pop_batch(&mut blocks[start..]) > 0 {
                return taken;
            }
        }
        0
    }

    /// Puts blocks into as many transfer caches as needed, from the first block on. Returns how
    /// many it put there.
    #[inline(never)]
    pub fn leave(&self, class: SizeClass, blocks: &[*mut u8]) -> usize {
        let mut stored = 0;
        for slab in self.each() {
            let Some((mut stack, _guard)) = try_own(slab, class) else { continue };
            loop {
                stored += stack.push_batch(&blocks[stored..]);
                if stored == blocks.len() {
                    return stored;
                }
                if !grow(slab, &mut stack, class) {
                    break;
                }
            }
        }
        stored
    }

    /// All transfer caches, the nearest first.
    fn each(&self) -> impl Iterator<Item = Slab> {
        // SAFETY: the remainder is below `count`. There are that many slabs, and they live as long
        // as the engine.
        let nth =
            |nth: usize| unsafe { Slab::new(self.slabs.add((self.nearest + nth) % self.count)) };
        (0..self.count).map(nth)
    }
}

/// The class's stack, which is the caller's while the guard lives; `None` if the slab's lock is
/// taken.
fn try_own<'a>(slab: Slab, class: SizeClass) -> Option<(OwnedStack, Guard<'a, ()>)> {
    // SAFETY: the guard holds the slab's lock.
    slab.lock().try_lock().map(|guard| (unsafe { OwnedStack::new(slab, class) }, guard))
}

/// Raises the stack's capacity by a step, if the cache as a whole stays within its own. False if
/// the stack has no more capacity than before.
fn grow(slab: Slab, stack: &mut OwnedStack, class: SizeClass) -> bool {
    let (now, grown) = (stack.header(), stack.header().widened(class));
    let more = grown.capacity(class).saturating_sub(now.capacity(class));
    let max_bytes = if is_late(class) { LATE_TRANSFER_BYTES_MAX } else { TRANSFER_BYTES_MAX };
    if slab.total_capacity() + more * class.size() <= max_bytes {
        slab.history().used.store(true, Ordering::Relaxed);
        stack.set_header(grown);
    }
    stack.header().capacity(class) > now.capacity(class)
}
