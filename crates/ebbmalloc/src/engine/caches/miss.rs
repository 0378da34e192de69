//! Serves the misses of a cache: refills it from the central free lists, or flushes it to them, in
//! batches, and sets the capacity of each stack.
//!
//! Capacity is bounded for each class and for a cache as a whole. A stack whose miss shows that its
//! capacity is too small gets more, while the cache has some to give. Drains of unused stacks
//! return it.

use core::ptr;

use crate::backend::page_heap::{Memory, Pages};
use crate::backend::span::Order;
use crate::central::{BadBlock, Batch, ClassSpans, Route};
use crate::engine::tuning::{
    BATCH_BLOCKS_MAX, CACHE_BYTES_MAX, CACHE_BYTES_MIN, CACHE_DIVISOR, CAPACITY_CHECK_INTERVAL,
    MEDIUM_BATCH_BLOCKS, SMALL_BATCH_BLOCKS,
};
use crate::engine::{Engine, Setup};
use crate::frontend::slab::{Header, MissKind, Slab, is_late};
use crate::frontend::transfer_cache::Transfers;
use crate::frontend::tuning::{
    FLOW_BATCH_BYTES_MIN, FLOW_MISSES, OWN_FLOW_BATCH_BYTES_MIN, OWN_FLOW_BLOCK_BYTES_MIN,
    STREAK_MISSES, TRANSFER_CACHES_MANY,
};
use crate::frontend::{Front, Mode, Observed, PerCpu, SharedSlots, Thread, per_thread as thread};
use crate::platform::os::Os;
use crate::platform::sync::{Guard, Ordering};
use crate::size_class::{SizeClass, UNIT};

/// The outcome of a miss: how the stack has changed, and how many such misses came before.
#[derive(Default)]
struct Miss {
    /// The cache; none where the thread has none.
    slab: Option<Slab>,
    /// The headers before and after; empty ones where the thread has no cache.
    before: Header,
    after: Header,
    /// Number of equal misses in a row before this one.
    streak: u8,
    /// Whether the cache is the thread's own.
    is_own: bool,
}

impl Miss {
    fn is_in_streak(&self) -> bool {
        self.streak >= STREAK_MISSES
    }

    /// Whether a batch of `blocks` blocks is a large batch of a flow, which would retire a span or
    /// begin one.
    fn is_flow(&self, class: SizeClass, blocks: usize) -> bool {
        let (block_bytes_min, batch_bytes_min) = if self.is_own {
            (OWN_FLOW_BLOCK_BYTES_MIN, OWN_FLOW_BATCH_BYTES_MIN)
        } else {
            (0, FLOW_BATCH_BYTES_MIN)
        };
        let is_large =
            class.size() >= block_bytes_min && (blocks + 1) * class.size() >= batch_bytes_min;
        is_large && self.streak >= FLOW_MISSES
    }
}

impl<O: Os> Engine<O> {
    /// The calling thread's front end.
    #[inline(always)] // Slot mode calls it for each block.
    pub(crate) fn front(&self) -> Front<'_, O> {
        let (setup, os) = (self.setup(), &self.os);
        match setup.mode {
            Mode::PerCpu => Front::PerCpu(PerCpu {
                base: setup.percpu_base,
                os,
                joining: setup.registers_threads,
            }),
            Mode::Thread if !self.shares_caches() => Front::Own(Thread {
                os,
                words: os.thread_words(),
                slabs: &self.thread_slabs,
                hot: !self.counting() && !self.all_in_heaps() && !self.sampling(),
            }),
            Mode::Thread | Mode::Slot => Front::Shared(SharedSlots {
                slabs: self.region.slabs(),
                count: setup.cpu_cache_count,
                preferred: &self.preferred_slots,
                token: os.thread_token(),
            }),
        }
    }

    /// In thread mode: whether the calling thread shares caches, because as many threads as may
    /// have a cache of their own have one.
    #[inline(never)] // None of its callers is hot.
    pub(crate) fn shares_caches(&self) -> bool {
        thread::is_beyond(self.os.thread_words(), &self.thread_slabs, self.setup().own_caches_max)
    }

    /// Where the engine's memory comes from.
    pub(crate) fn memory(&self) -> Memory<'_, O> {
        Memory { region: &self.region, os: &self.os, heap: &self.pages }
    }

    /// Locks the page heap.
    pub(crate) fn pages(&self) -> Pages<'_, O> {
        self.memory().lock()
    }

    /// Whether a batch of `blocks` blocks passes through the transfer caches: one of a late class,
    /// or of a flow with its other end in another thread, as far as is known.
    ///
    /// In thread mode late classes are as others: the bitmaps of spans see double frees, which
    /// transfer caches do not see there.
    fn passes(&self, miss: &Miss, kind: MissKind, class: SizeClass, blocks: usize) -> bool {
        if is_late(class) && self.setup().mode != Mode::Thread {
            return miss.after.capacity(class) > 0;
        }
        let asked = &self.centrals[class.index()].asked;
        match kind {
            _ if !miss.is_flow(class, blocks) => false,
            MissKind::Underflow => {
                asked.note(self.os.thread_token());
                true
            }
            MissKind::Overflow => asked.by_another(self.os.thread_token()),
        }
    }

    /// Fills the class's stack to half of its capacity, or fully in a streak, and returns one block
    /// more; null if memory is short. Marks that block as local to the cache. Returns also whether
    /// the class got a new span.
    ///
    /// Now and then it returns a sampled block for a request of `size` bytes, and refills nothing.
    #[inline(never)]
    pub(crate) fn refill(&self, size: usize, class: SizeClass) -> (*mut u8, bool) {
        let miss = self.grow_stack(class, MissKind::Underflow);
        let capacity = miss.after.capacity(class);
        let needed = if miss.is_in_streak() { capacity + 1 } else { capacity / 2 + 1 };
        // The first blocks of a stack share no cache line with blocks that another CPU claims.
        let apart = class.shares_lines() && miss.before.is_new();
        let order = if miss.is_in_streak() || apart { Order::InTurn } else { Order::Lowest };
        let sampled = self.sample(size, class, needed);
        if !sampled.is_null() {
            return (sampled, false);
        }
        if miss.after.len(class) > 0 {
            // The stack was closed, or is that of another CPU now.
            let block = self.front().pop(class);
            if !block.is_null() {
                return (block, false);
            }
        }
        let passes = self.passes(&miss, MissKind::Underflow, class, needed);
        let refill = |batch: &mut [_]| self.refill_by(class, needed, order, passes, batch);
        let (block, has_grown) = with_batch(needed, refill);
        if let Some(slab) = miss.slab
            && !miss.is_own
            && !block.is_null()
        {
            // SAFETY: all slabs that are no thread's own have marks.
            unsafe { slab.mark_local(block) }
        }
        (block, has_grown)
    }

    /// Gets `needed` blocks, in steps of the length of `batch`. Returns one of them, null if there
    /// is none, and pushes the others to the cache. Returns also whether the class got a new span.
    #[inline(never)]
    fn refill_by(
        &self,
        class: SizeClass,
        mut needed: usize,
        order: Order,
        passes: bool,
        batch: &mut [*mut u8],
    ) -> (*mut u8, bool) {
        let mut block: *mut u8 = ptr::null_mut();
        let mut has_grown = false;
        loop {
            let step = needed.min(batch.len());
            let batch = &mut batch[..step];
            let claimed = match self.spans_or_transferred(class, passes, batch) {
                Ok((mut spans, waited)) => {
                    if waited && block.is_null() && self.setup().mode == Mode::PerCpu {
                        // Another thread of this CPU may have waited for the lock too, and filled
                        // the cache meanwhile.
                        block = self.front().pop(class);
                        if !block.is_null() {
                            return (block, false);
                        }
                    }
                    spans.claim(&self.memory(), class, order, batch)
                }
                Err(transferred) => Batch { blocks: transferred, has_grown: false },
            };
            has_grown |= claimed.has_grown;
            let start = batch.len() - claimed.blocks;
            let mut blocks = &batch[start..];
            if block.is_null() {
                let Some((&first, others)) = blocks.split_last() else {
                    break;
                };
                (block, blocks) = (first, others);
            }
            if !self.put_or_release(class, blocks) {
                // Another thread has filled the cache meanwhile, or there is none.
                break;
            }
            needed -= claimed.blocks;
            // Another claim for a few blocks costs more than a slightly earlier miss.
            if start > 0 || needed < SMALL_BATCH_BLOCKS {
                break;
            }
        }
        (block, has_grown)
    }

    /// Locks the class's spans, or takes blocks from a transfer cache: if another thread holds the
    /// lock, or the batch passes there. The flag tells whether the lock took waiting; `Err` has the
    /// number of blocks taken, at the end of `batch`.
    fn spans_or_transferred(
        &self,
        class: SizeClass,
        passes: bool,
        batch: &mut [*mut u8],
    ) -> Result<(Guard<'_, ClassSpans>, bool), usize> {
        let (central, transfers) = (&self.centrals[class.index()], self.transfers());
        match central.lock_spans(route(&transfers, passes)) {
            Some(spans) => Ok(spans),
            None => match transfers.take(class, batch) {
                0 => Ok((central.spans().lock(), true)),
                taken => Err(taken),
            },
        }
    }

    /// Pushes blocks to the thread's cache, and returns those that do not fit to their spans. True
    /// if all fit.
    fn put_or_release(&self, class: SizeClass, blocks: &[*mut u8]) -> bool {
        let pushed = self.front().push_batch(class, blocks);
        let all = pushed == blocks.len();
        if !all {
            self.release(class, &blocks[pushed..]);
        }
        all
    }

    /// After a miss: sets the class's stack up, or raises its capacity if the bounds allow.
    #[inline(never)]
    fn grow_stack(&self, class: SizeClass, kind: MissKind) -> Miss {
        let front = self.front();
        let mut miss = Miss::default();
        let (mut observed, is_own) = (front.observe(class), front.is_own());
        if let Some(Observed { slab, header }) = observed
            && header.is_closed()
        {
            // The drainer may be descheduled: reopen the stack instead of waiting for it.
            slab.reopen(class);
            observed = front.observe(class);
        }
        if let Some(Observed { slab, header }) = observed {
            let history = slab.history();
            (miss.slab, miss.streak, miss.is_own) = (Some(slab), history.note(class, kind), is_own);
            if !is_own {
                let capacity = header.capacity(class);
                let added = header.grown(class).capacity(class).saturating_sub(capacity);
                let added_bytes = added * class.size();
                if capacity > 0 && (added == 0 || !self.may_grow(slab, added_bytes)) {
                    (miss.before, miss.after) = (header, header);
                    return miss;
                }
                if !history.used.load(Ordering::Relaxed)
                    && !history.used.swap(true, Ordering::Relaxed)
                {
                    self.caches_ever_used.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        let header = observed.map_or(Header::default(), |observed| observed.header);
        let grown = front.grow(class, header);
        (miss.before, miss.after) = grown.unwrap_or_default();
        miss
    }

    /// Whether the cache may have `added_bytes` more capacity. After a refusal the next misses get
    /// none without a look.
    fn may_grow(&self, slab: Slab, added_bytes: usize) -> bool {
        let history = slab.history();
        let refused = history.refused.load(Ordering::Relaxed);
        if refused.is_multiple_of(CAPACITY_CHECK_INTERVAL) {
            let in_use_bytes = self.pages.lock().counts.in_use * UNIT;
            let caches = self.caches_ever_used.load(Ordering::Relaxed).max(1);
            let max_bytes =
                (in_use_bytes / CACHE_DIVISOR / caches).clamp(CACHE_BYTES_MIN, CACHE_BYTES_MAX);
            // All stacks are in their full extents: the cache is no thread's own.
            if slab.extra_capacity() + added_bytes <= max_bytes {
                return true;
            }
        }
        history.refused.store(refused.wrapping_add(1), Ordering::Relaxed);
        false
    }

    /// Makes room for a block in the class's stack: raises the capacity, or else flushes so that
    /// half of the capacity stays filled, or in a streak nothing.
    ///
    /// Returns the number of further blocks that fit if the stack was set up only now; else 0.
    pub(crate) fn overflow(&self, class: SizeClass) -> usize {
        let miss = self.grow_stack(class, MissKind::Overflow);
        let Miss { before, after, .. } = miss;
        if after.capacity(class) <= before.capacity(class) {
            // The stack may hold more than its capacity, where that has shrunk.
            let stays = if miss.is_in_streak() { 0 } else { after.capacity(class).div_ceil(2) };
            let goes = after.len(class).saturating_sub(stays);
            self.flush(class, goes, self.passes(&miss, MissKind::Overflow, class, goes));
        }
        if before.is_new() { after.capacity(class).saturating_sub(1) } else { 0 }
    }

    /// Flushes up to `max` blocks of a class from the thread's cache: to transfer caches, if the
    /// batch `passes` there.
    #[inline(never)]
    pub(crate) fn flush(&self, class: SizeClass, max: usize, passes: bool) {
        with_batch(max, |batch| self.flush_by(class, max, passes, batch));
    }

    /// The work of [`Engine::flush`], in steps of the length of `batch`.
    #[inline(never)]
    fn flush_by(&self, class: SizeClass, max: usize, passes: bool, batch: &mut [*mut u8]) {
        let mut left = max;
        while left > 0 {
            let step = left.min(batch.len());
            let popped = self.front().pop_batch(class, &mut batch[..step]);
            self.flush_batch(class, passes, &batch[..popped]);
            if popped < step {
                break;
            }
            left -= popped;
        }
    }

    /// Returns blocks from a cache to their spans, or puts them into a transfer cache: if another
    /// thread holds the class's lock, or the batch passes there. Blocks that the transfer caches do
    /// not take go to their spans.
    fn flush_batch(&self, class: SizeClass, passes: bool, blocks: &[*mut u8]) {
        let (central, transfers) = (&self.centrals[class.index()], self.transfers());
        let (spans, transferred) = match central.lock_spans(route(&transfers, passes)) {
            Some((spans, _)) => (spans, 0),
            None => match transfers.leave(class, blocks) {
                all if all == blocks.len() => return,
                some => (central.spans().lock(), some),
            },
        };
        self.release_to(spans, class, &blocks[transferred..]);
    }

    /// Pushes up to `others` other blocks on top of a block from another CPU. Left on top, it would
    /// be handed out next, and two CPUs would write to one cache line (decisions/0022).
    ///
    /// A thread's own cache has no marks by which it sees a second free of the buried block. But
    /// there the stack is new and the other blocks fill it, so the next free takes the slow path
    /// and searches it.
    ///
    /// Returns whether the class got a new span.
    #[inline(never)]
    pub(crate) fn bury(&self, class: SizeClass, others: usize) -> bool {
        let needed = others.min(SMALL_BATCH_BLOCKS);
        let mut batch = [ptr::null_mut(); SMALL_BATCH_BLOCKS];
        let batch = &mut batch[..needed];
        let mut spans = self.centrals[class.index()].spans().lock();
        let claimed = spans.claim(&self.memory(), class, Order::InTurn, batch);
        drop(spans);
        self.put_or_release(class, &batch[needed - claimed.blocks..]);
        claimed.has_grown
    }

    /// Returns blocks to the spans of their class.
    pub(crate) fn release(&self, class: SizeClass, blocks: &[*mut u8]) {
        self.release_to(self.centrals[class.index()].spans().lock(), class, blocks);
    }

    /// Returns blocks to these spans, and unlocks them.
    pub(crate) fn release_to(
        &self,
        mut spans: Guard<'_, ClassSpans>,
        class: SizeClass,
        blocks: &[*mut u8],
    ) {
        let released = spans.release(&self.memory(), class, blocks);
        drop(spans);
        if !self.scavenger.exists() {
            self.freed_bytes.fetch_add(blocks.len() * class.size(), Ordering::Relaxed);
        }
        self.abort_on_bad_block(released, "free");
    }

    /// Aborts the program if a block could not be released.
    pub(crate) fn abort_on_bad_block(&self, released: Result<(), BadBlock>, operation: &str) {
        match released {
            Ok(()) => {}
            Err(BadBlock::Twice(block)) => self.fault("double free", block, operation),
            Err(BadBlock::Invalid(block)) => self.fault("invalid free", block, operation),
        }
    }

    /// The transfer caches, as the calling thread uses them.
    #[inline(never)] // Inlined, it would take more of the caller's stack.
    pub(crate) fn transfers(&self) -> Transfers {
        let Setup { cpu_cache_count, transfer_cache_count: count, mode, .. } = *self.setup();
        // SAFETY: the slabs of transfer caches follow those of per-CPU caches.
        let slabs = unsafe { self.region.slabs().add(cpu_cache_count) };
        let waits = mode == Mode::PerCpu && count < TRANSFER_CACHES_MANY;
        let nearest = self.front().cpu().unwrap_or_else(|| self.os.thread_token());
        Transfers { slabs, count, waits, nearest }
    }
}

/// The way of a batch, which `passes` through a transfer cache even if the lock is free.
fn route(transfers: &Transfers, passes: bool) -> Route {
    match (passes, transfers.waits) {
        (true, _) => Route::ByTransfer,
        (false, true) => Route::Wait,
        (false, false) => Route::IfFree,
    }
}

/// Calls `work` with an array for a batch of `blocks` blocks, or for [`BATCH_BLOCKS_MAX`] if that
/// is less.
///
/// Each array size has a stack frame of its own: with one frame for the largest batch, most threads
/// would touch one page more of their stack (decisions/0027).
fn with_batch<R>(blocks: usize, work: impl FnOnce(&mut [*mut u8]) -> R) -> R {
    #[inline(never)]
    fn within<const CAPACITY: usize, R>(work: impl FnOnce(&mut [*mut u8]) -> R) -> R {
        work(&mut [ptr::null_mut(); CAPACITY])
    }
    if blocks <= SMALL_BATCH_BLOCKS {
        within::<SMALL_BATCH_BLOCKS, R>(work)
    } else if blocks <= MEDIUM_BATCH_BLOCKS {
        within::<MEDIUM_BATCH_BLOCKS, R>(work)
    } else {
        within::<BATCH_BLOCKS_MAX, R>(work)
    }
}
