//! Transfer caches: where many CPUs are at the spans of one class, or large batches of it flow from one thread to another, blocks
//! pass from those that free to those that allocate beside the spans.
//!
//! Who finds the lock of a class taken has to wait for others to take or give back up to 256 blocks, each in the bitmap of its
//! span; with eight CPUs that do nothing else, most of the time is waiting. So a batch that comes from a cache then goes to
//! a transfer cache instead, as far as there is room, and the next that has to wait for blocks takes it from there, as a whole:
//! each holds a lock for as long as it takes to copy the addresses, and there are several. Where a thread asks for
//! batches as large as a span, and another has such batches to give back, they pass here though nobody waits: else each would free
//! a span or more, only for the next to cut others. Elsewhere there is nothing here. The idea is tcmalloc's, where all batches go
//! that way (Ghemawat, Menage, "TCMalloc"); what it is worth, and why only there: decisions/0029.

use crate::frontend::slab::{self as cache, OwnedStack, Slab, lock_of};
use crate::frontend::tuning::{TRANSFER_BYTES_MAX, TRANSFER_CACHES_MAX, TRANSFER_CPUS_MIN};
use crate::platform::sync::{Guard, Ordering};
use crate::size_class::SizeClass;

/// How many there are beside so many caches of CPUs.
pub(crate) fn count(cpus: usize) -> usize {
    if cpus < TRANSFER_CPUS_MIN { 0 } else { cpus.min(TRANSFER_CACHES_MAX) }
}

/// The transfer caches, each behind a lock that nobody waits for.
pub(crate) struct Transfers {
    pub slabs: *mut Slab,
    pub count: usize,
    /// Only flows pass: who finds others at the spans waits for them.
    pub for_flows: bool,
    /// The calling thread's [`crate::platform::os::Os::thread_key`]: threads begin with different ones.
    pub key: usize,
}

impl Transfers {
    /// Fills the *end* of `blocks` with what others have left, from one cache; how many came.
    #[inline(never)]
    pub fn take(&self, class: SizeClass, blocks: &mut [*mut u8]) -> usize {
        // SAFETY: slabs live as long as the engine.
        let has_any = |&slab: &*mut Slab| unsafe { cache::cached_blocks(slab, class) } > 0;
        for (mut stack, _guard) in self.each().filter(has_any).filter_map(|slab| own(slab, class)) {
            let taken = stack.header().held(class).min(blocks.len());
            let start = blocks.len() - taken;
            if stack.pop_batch(&mut blocks[start..]) > 0 {
                return taken;
            }
        }
        0
    }

    /// Leaves blocks to others, from the first on, in as many caches as it takes; how many.
    #[inline(never)]
    pub fn leave(&self, class: SizeClass, blocks: &[*mut u8]) -> usize {
        let mut left = 0;
        for slab in self.each() {
            let Some((mut stack, _guard)) = own(slab, class) else { continue };
            loop {
                left += stack.push_batch(&blocks[left..]);
                if left == blocks.len() {
                    return left;
                }
                if !grow(slab, &mut stack, class) {
                    break;
                }
            }
        }
        left
    }

    /// All of them, each thread from one of its own on.
    fn each(&self) -> impl Iterator<Item = *mut Slab> {
        // SAFETY: there are so many.
        let nth = |nth: usize| unsafe { self.slabs.add((self.key + nth) % self.count) };
        (0..self.count).map(nth)
    }
}

/// The class's stack, which is the caller's as long as the guard; `None` where it is somebody else's.
fn own<'a>(slab: *mut Slab, class: SizeClass) -> Option<(OwnedStack, Guard<'a, ()>)> {
    // SAFETY: slabs live as long as the engine; the lock is held.
    unsafe { lock_of(slab).try_lock().map(|guard| (OwnedStack::new(slab, class), guard)) }
}

/// Gives the stack a step more room, if the cache has that left; false if there is no more.
fn grow(slab: *mut Slab, stack: &mut OwnedStack, class: SizeClass) -> bool {
    let (now, grown) = (stack.header(), stack.header().grown(class));
    let more = grown.room(class).saturating_sub(now.room(class));
    // SAFETY: a slab, which is the caller's, and which lives as long as the engine.
    let (history, room) = unsafe { (cache::history_of(slab), cache::full_capacity(slab)) };
    if room + more * class.size() <= TRANSFER_BYTES_MAX {
        history.used.store(true, Ordering::Relaxed);
        stack.set_header(grown);
    }
    stack.header().room(class) > now.room(class)
}
