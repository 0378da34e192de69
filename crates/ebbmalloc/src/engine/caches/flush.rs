//! Blocks on their way back from caches to central, many at a time: of a stack that is full, of all caches, and of those of
//! threads that are no more.

use core::ptr;

use crate::engine::Engine;
use crate::engine::caches::batch::with_batch;
use crate::engine::caches::drain::{self, DrainScope};
use crate::engine::tuning::SMALL_BATCH_BLOCKS;
use crate::frontend::slab::{self as cache, OwnedStack, Slab};
use crate::platform::os::Os;
use crate::size_class::SizeClass;

impl<O: Os> Engine<O> {
    /// Gives all blocks back to their spans that caches hold which can be emptied: all but those of threads at
    /// work on theirs. Waits for a round that somebody is in.
    pub(crate) fn flush_all(&self) {
        self.flush_own(DrainScope::All);
        let _rounds = self.rounds.lock();
        self.drain(DrainScope::All);
    }

    /// The same for some classes. Caches of threads that are no more are emptied of all. Where somebody is in a round, those of
    /// CPUs and of other threads stay as they are.
    pub(crate) fn try_drain(&self, which: DrainScope) {
        self.flush_own(which);
        if let Some(_rounds) = self.rounds.try_lock() {
            self.drain(which);
        }
    }

    /// Empties caches that nobody else uses.
    #[inline(never)]
    fn flush_own(&self, which: DrainScope) {
        for class in SizeClass::all().filter(|&class| which.has(class)) {
            self.flush(class, usize::MAX, false);
        }
        self.flush_idle();
    }

    /// How many blocks of a class all caches hold; a glance while others work.
    pub(crate) fn cached_blocks(&self, class: SizeClass) -> usize {
        // SAFETY: both give slabs of this engine, all of which live as long.
        let held_by = |slab: *mut Slab| unsafe { cache::cached_blocks(slab, class) };
        let mut held = self.slabs().map(held_by).sum();
        self.thread_slabs.for_each(|slab| held += held_by(slab));
        held
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
    #[inline(never)]
    pub(crate) fn flush_slab(&self, slab: *mut Slab) {
        // A round may have closed some, which whoever it was then leaves alone: the slab is nobody's.
        drain::reopen_all(slab);
        for class in SizeClass::all() {
            // SAFETY: the callers': it is theirs alone.
            let mut stack = unsafe { OwnedStack::new(slab, class) };
            let mut batch = [ptr::null_mut(); SMALL_BATCH_BLOCKS];
            loop {
                let popped = stack.pop_batch(&mut batch);
                if popped == 0 {
                    break;
                }
                self.release(class, &batch[..popped]);
            }
        }
    }

    /// Gives up to `most` blocks from the cache's stack of a class back to their spans, or in a flow to others.
    #[inline(never)]
    pub(crate) fn flush(&self, class: SizeClass, most: usize, flows: bool) {
        with_batch(most, |batch| self.flush_by(class, most, flows, batch));
    }

    /// The same, as many at a time as there are places in `batch`.
    #[inline(never)]
    fn flush_by(&self, class: SizeClass, most: usize, flows: bool, batch: &mut [*mut u8]) {
        let mut left = most;
        while left > 0 {
            let wanted = left.min(batch.len());
            let popped = self.front(|front| front.pop_batch(class, &mut batch[..wanted]));
            self.flush_batch(class, flows, &batch[..popped]);
            if popped < wanted {
                break;
            }
            left -= popped;
        }
    }

    /// Gives blocks from a cache back to their spans, or leaves them to others: where these are at the spans, or were the last to
    /// ask for a batch as large as that of which these are.
    fn flush_batch(&self, class: SizeClass, flows: bool, blocks: &[*mut u8]) {
        let (central, transfers) = (&self.centrals[class.index()], self.transfers());
        let past = flows && central.asked.by_another(transfers.key);
        let (spans, left) = match central.spans_unless(past, transfers.for_flows) {
            Some(spans) => (spans, 0),
            None => match transfers.leave(class, blocks) {
                left if left == blocks.len() => return,
                left => (central.spans().lock(), left),
            },
        };
        self.release_to(spans, class, &blocks[left..]);
    }
}
