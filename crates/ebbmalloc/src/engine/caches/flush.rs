//! Flushes blocks from caches to the central free lists in batches: from a full stack, from all
//! caches that can be emptied, and from the caches of ended threads.

use core::ptr;

use crate::engine::Engine;
use crate::engine::caches::batch::with_batch;
use crate::engine::caches::drain::{self, DrainScope};
use crate::engine::tuning::SMALL_BATCH_BLOCKS;
use crate::frontend::slab::{OwnedStack, Slab};
use crate::platform::os::Os;
use crate::size_class::SizeClass;

impl<O: Os> Engine<O> {
    /// Returns the blocks of caches to their spans, as far as the caches can be emptied. Waits for
    /// a round that another thread runs.
    ///
    /// That is the calling thread's cache, those of ended threads, and those that [`Engine::drain`]
    /// empties. While several threads run, it leaves the caches of other CPUs and threads to the
    /// rounds.
    pub(crate) fn flush_all(&self) {
        self.flush_own(DrainScope::All);
        let _rounds = self.rounds.lock();
        self.drain(DrainScope::All);
    }

    /// As [`Engine::flush_all`] for the stacks in `scope`, but skips [`Engine::drain`] if another
    /// thread runs a round. Caches of ended threads lose the blocks of all classes.
    pub(crate) fn try_drain(&self, scope: DrainScope) {
        self.flush_own(scope);
        if let Some(_rounds) = self.rounds.try_lock() {
            self.drain(scope);
        }
    }

    /// Empties stacks in the calling thread's cache, and the caches of ended threads.
    #[inline(never)]
    fn flush_own(&self, scope: DrainScope) {
        for class in SizeClass::all().filter(|&class| scope.has(class)) {
            self.flush(class, usize::MAX, false);
        }
        self.flush_idle();
    }

    /// Number of blocks of a class in all caches. An estimate while other threads use their caches.
    pub(crate) fn cached_blocks(&self, class: SizeClass) -> usize {
        let cached_in = |slab: Slab| slab.cached_blocks(class);
        let mut cached = self.slabs().map(cached_in).sum();
        self.thread_slabs.for_each(|slab| cached += cached_in(slab));
        cached
    }

    /// Returns the blocks in caches of ended threads to their spans, and purges these caches.
    pub(crate) fn flush_idle(&self) {
        while let Some(slab) = self.thread_slabs.take_idle() {
            self.flush_slab(slab);
            // SAFETY: `take_idle` has just given us the slab, and it is empty.
            unsafe { self.thread_slabs.put_away(&self.os, slab) }
        }
    }

    /// Returns all blocks in a slab to their spans. No other thread uses the slab.
    #[inline(never)]
    pub(crate) fn flush_slab(&self, slab: Slab) {
        // An earlier round may have closed stacks while a thread owned the slab. Rounds skip it
        // now.
        drain::reopen_all(slab);
        for class in SizeClass::all() {
            // SAFETY: all callers own the slab: no other thread uses it, and rounds skip it.
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

    /// Flushes up to `max` blocks of a class from the thread's cache. `is_flow`: they may go to a
    /// transfer cache, for another thread.
    #[inline(never)]
    pub(crate) fn flush(&self, class: SizeClass, max: usize, is_flow: bool) {
        with_batch(max, |batch| self.flush_by(class, max, is_flow, batch));
    }

    /// The work of [`Engine::flush`], in steps of the length of `batch`.
    #[inline(never)]
    fn flush_by(&self, class: SizeClass, max: usize, is_flow: bool, batch: &mut [*mut u8]) {
        let mut left = max;
        while left > 0 {
            let step = left.min(batch.len());
            let popped = self.front().pop_batch(class, &mut batch[..step]);
            self.flush_batch(class, is_flow, &batch[..popped]);
            if popped < step {
                break;
            }
            left -= popped;
        }
    }

    /// Returns blocks from a cache to their spans, or puts them into a transfer cache: if another
    /// thread holds the class's lock, or was the last to ask for a large batch of a flow. Blocks
    /// that the transfer caches do not take go to their spans.
    fn flush_batch(&self, class: SizeClass, is_flow: bool, blocks: &[*mut u8]) {
        let (central, transfers) = (&self.centrals[class.index()], self.transfers());
        let to_other = is_flow && central.asked.by_another(transfers.key);
        let (spans, transferred) = match central.lock_spans(transfers.route(to_other)) {
            Some((spans, _)) => (spans, 0),
            None => match transfers.leave(class, blocks) {
                all if all == blocks.len() => return,
                some => (central.spans().lock(), some),
            },
        };
        self.release_to(spans, class, &blocks[transferred..]);
    }
}
