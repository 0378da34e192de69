//! Blocks on their way between caches and central, many at a time: refilling caches, flushing
//! them, and taking back those of threads that are no more.

use core::ptr;

use crate::cache::{OwnedStack, Slab};
use crate::central::BadBlock;
use crate::engine::Engine;
use crate::front::thread;
use crate::os::Os;
use crate::size_class::SizeClass;

/// Blocks that move between a cache and its central at a time.
const BATCH: usize = 256;
/// The same for classes of which caches hold few: clearing room for more would take longer than
/// moving them.
const SMALL_BATCH: usize = 16;

impl<O: Os> Engine<O> {
    /// Gives the calling thread's cache back, because the thread is about to exit: what it still
    /// allocates and frees then goes past caches. Does nothing in other modes than thread.
    pub fn leave_thread(&self) {
        if let Some(slab) = thread::leave(self.os.thread_words()) {
            self.flush_slab(slab);
            // SAFETY: it was this thread's, which let go of it.
            unsafe { self.thread_slabs.give(&self.os, slab) }
        }
    }

    /// Fills half of the cache's room for a class and takes one block more; null if there is none.
    pub(crate) fn refill(&self, class: SizeClass) -> *mut u8 {
        let room = self.front(|front| front.grow(class)).map_or(0, |(_, new)| new.room(class));
        match room / 2 + 1 {
            wanted @ ..=SMALL_BATCH => self.refill_by::<SMALL_BATCH>(class, wanted),
            wanted => self.refill_by::<BATCH>(class, wanted),
        }
    }

    fn refill_by<const AT_A_TIME: usize>(&self, class: SizeClass, mut wanted: usize) -> *mut u8 {
        let mut block: *mut u8 = ptr::null_mut();
        let mut batch = [ptr::null_mut(); AT_A_TIME];
        while wanted > 0 {
            let batch = &mut batch[..wanted.min(AT_A_TIME)];
            let central = &self.centrals[class.index()];
            let claimed = central.claim(&self.region, &self.os, &self.pages, class, batch);
            let start = batch.len() - claimed;
            let mut blocks = &batch[start..];
            if block.is_null() {
                let Some((&lowest, others)) = blocks.split_last() else {
                    break;
                };
                (block, blocks) = (lowest, others);
            }
            let kept = self.front(|front| front.push_batch(class, blocks));
            if kept < blocks.len() {
                // Another thread has filled this cache meanwhile, or there is no cache.
                self.release(class, &blocks[kept..]);
                break;
            }
            if start > 0 {
                break;
            }
            wanted -= claimed;
        }
        block
    }

    /// Gives all blocks in the calling thread's cache back to their spans.
    pub(crate) fn flush_all(&self) {
        for class in SizeClass::all() {
            self.flush(class, usize::MAX);
        }
    }

    /// Gives the blocks back that the caches of threads hold which are no more, and their memory.
    pub(crate) fn flush_idle(&self) {
        while let Some(slab) = self.thread_slabs.take_idle() {
            self.flush_slab(slab);
            // SAFETY: just taken, and not used any more.
            unsafe { self.thread_slabs.put_away(&self.os, slab) }
        }
    }

    /// Gives all blocks in a slab back that nobody else uses.
    fn flush_slab(&self, slab: *mut Slab) {
        for class in SizeClass::all() {
            // SAFETY: the callers': it is theirs alone.
            let mut stack = unsafe { OwnedStack::new(slab, class) };
            let mut batch = [ptr::null_mut(); SMALL_BATCH];
            loop {
                let popped = stack.pop_batch(&mut batch);
                if popped == 0 {
                    break;
                }
                self.release(class, &batch[..popped]);
            }
        }
    }

    /// Gives up to `most` blocks from the cache's stack of a class back to their spans.
    pub(crate) fn flush(&self, class: SizeClass, most: usize) {
        match most {
            ..=SMALL_BATCH => self.flush_by::<SMALL_BATCH>(class, most),
            _ => self.flush_by::<BATCH>(class, most),
        }
    }

    fn flush_by<const AT_A_TIME: usize>(&self, class: SizeClass, most: usize) {
        let mut batch = [ptr::null_mut(); AT_A_TIME];
        let mut left = most;
        while left > 0 {
            let wanted = left.min(AT_A_TIME);
            let popped = self.front(|front| front.pop_batch(class, &mut batch[..wanted]));
            self.release(class, &batch[..popped]);
            if popped < wanted {
                break;
            }
            left -= popped;
        }
    }

    pub(crate) fn release(&self, class: SizeClass, blocks: &[*mut u8]) {
        let central = &self.centrals[class.index()];
        match central.release(&self.region, &self.os, &self.pages, class, blocks) {
            Ok(()) => {}
            Err(BadBlock::Twice(block)) => self.fault("double free", block, "free"),
            Err(BadBlock::Foreign(block)) => self.fault("invalid free", block, "free"),
        }
    }
}
