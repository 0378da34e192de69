//! Refills caches from the central free lists in batches, and sets the capacity of each stack.
//! `flush.rs` has the way back.
//!
//! Capacity is bounded for each class and for a cache as a whole. A stack whose miss shows that its
//! capacity is too small gets more, while the cache has some to give. Drains of unused stacks
//! return it.

use core::ptr;

use crate::backend::span::Order;
use crate::central::{Batch, ClassSpans, Growth};
use crate::engine::Engine;
use crate::engine::caches::batch::with_batch;
use crate::engine::caches::drain;
use crate::engine::tuning::{
    CACHE_BYTES_MAX, CACHE_BYTES_MIN, CACHE_SHARE, CAPACITY_CHECK_INTERVAL, PREFETCHED_BLOCKS_MAX,
    SMALL_BATCH_BLOCKS, STREAK_GROWTH_INTERVAL, STREAK_STACK_BYTES,
};
use crate::frontend::Observed;
use crate::frontend::miss_history::MissKind;
use crate::frontend::slab::{Header, Slab};
use crate::frontend::tuning::{FLOW_MISSES, STREAK_MISSES};
use crate::platform::arch::prefetch_to_write;
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
    ///
    /// With one block more it then has as many bytes as most spans. In a thread's own cache, half
    /// as many bytes are enough, since it has no capacity for more. But there each class has that
    /// capacity from the start, so only large blocks count, of which a span has few
    /// (decisions/0029).
    fn is_flow(&self, class: SizeClass, blocks: usize) -> bool {
        let (block_bytes_min, batch_bytes_min) =
            if self.is_own { (1 << 10, UNIT / 2) } else { (0, UNIT) };
        let is_large =
            class.size() >= block_bytes_min && (blocks + 1) * class.size() >= batch_bytes_min;
        is_large && self.streak >= FLOW_MISSES
    }
}

impl<O: Os> Engine<O> {
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
            drain::reopen(slab, class);
            observed = front.observe(class);
        }
        if let Some(Observed { slab, header }) = observed {
            let history = slab.history();
            (miss.slab, miss.streak, miss.is_own) = (Some(slab), history.note(class, kind), is_own);
            if !is_own {
                let capacity = header.capacity(class);
                let added = header.grown(class).capacity(class).saturating_sub(capacity);
                let added_bytes = added * class.size();
                let large_in_streak =
                    miss.is_in_streak() && capacity * class.size() >= STREAK_STACK_BYTES;
                if capacity > 0
                    && (added == 0 || !self.may_grow(slab, added_bytes, large_in_streak))
                {
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
    ///
    /// `large_in_streak`: a stack of at least [`STREAK_STACK_BYTES`] misses in a streak. Such a
    /// stack grows only now and then, within half of the cache's bound.
    fn may_grow(&self, slab: Slab, added_bytes: usize, large_in_streak: bool) -> bool {
        let history = slab.history();
        let refused = history.refused.load(Ordering::Relaxed);
        let due = match large_in_streak {
            true => history.misses_with_much(STREAK_GROWTH_INTERVAL),
            false => refused.is_multiple_of(CAPACITY_CHECK_INTERVAL),
        };
        if due {
            let in_use_bytes = self.pages.lock().counts.in_use * UNIT;
            let caches = self.caches_ever_used.load(Ordering::Relaxed).max(1);
            let max_bytes = (in_use_bytes / CACHE_SHARE / caches)
                .clamp(CACHE_BYTES_MIN, CACHE_BYTES_MAX)
                >> large_in_streak as u32;
            // In these modes all stacks are in their full places.
            if slab.extra_capacity() + added_bytes <= max_bytes {
                return true;
            }
        }
        if !large_in_streak {
            history.refused.store(refused.wrapping_add(1), Ordering::Relaxed);
        }
        false
    }

    /// Fills the class's stack to half of its capacity, or fully in a streak, and returns one block
    /// more; null if memory is short. Marks that block as local to the cache.
    ///
    /// Now and then it returns a sampled block for a request of `size` bytes, and refills nothing.
    #[inline(never)]
    pub(crate) fn refill(&self, size: usize, class: SizeClass) -> *mut u8 {
        let miss = self.grow_stack(class, MissKind::Underflow);
        let capacity = miss.after.capacity(class);
        let needed = if miss.is_in_streak() { capacity + 1 } else { capacity / 2 + 1 };
        let is_flow = miss.is_flow(class, needed);
        // The first blocks of a stack share no cache line with blocks that another CPU claims.
        let apart = class.shares_lines() && miss.before.is_new();
        let order = if miss.is_in_streak() || apart { Order::InTurn } else { Order::Lowest };
        let sampled = self.sample(size, class, needed);
        if !sampled.is_null() {
            return sampled;
        }
        if miss.after.len(class) > 0 {
            // The stack was closed, or is that of another CPU now.
            let block = self.front().pop(class);
            if !block.is_null() {
                return block;
            }
        }
        let refill = |batch: &mut [_]| self.refill_by(class, needed, order, is_flow, batch);
        let block = with_batch(needed, refill);
        if let Some(slab) = miss.slab
            && !miss.is_own
            && !block.is_null()
        {
            // SAFETY: all slabs that are no thread's own have marks.
            unsafe { slab.mark_local(block) }
        }
        block
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
            self.flush(class, goes, miss.is_flow(class, goes));
        }
        if before.is_new() { after.capacity(class).saturating_sub(1) } else { 0 }
    }

    /// Pushes up to `others` other blocks on top of a block from another CPU. Left on top, it would
    /// be handed out next, and two CPUs would write to one cache line (decisions/0022).
    ///
    /// A thread's own cache has no marks by which it sees a second free of the buried block. But
    /// there the stack is new and the other blocks fill it, so the next free takes the slow path
    /// and searches it.
    #[inline(never)]
    pub(crate) fn bury(&self, class: SizeClass, others: usize) {
        let needed = others.min(SMALL_BATCH_BLOCKS);
        let mut batch = [ptr::null_mut(); SMALL_BATCH_BLOCKS];
        let batch = &mut batch[..needed];
        let spans = self.centrals[class.index()].spans().lock();
        let claimed = self.claim(spans, class, Order::InTurn, batch);
        self.put_or_release(class, &batch[needed - claimed.blocks..]);
        if claimed.growth != Growth::None {
            self.reclaim_before_growth(class.span_units());
        }
    }

    /// Calls [`ClassSpans::claim`], unlocks the spans, and makes the pages of a new span resident
    /// if the claim says so.
    fn claim(
        &self,
        mut spans: Guard<'_, ClassSpans>,
        class: SizeClass,
        order: Order,
        batch: &mut [*mut u8],
    ) -> Batch {
        let claimed = spans.claim(&self.region, &self.os, &self.pages, class, order, batch);
        drop(spans);
        self.populate_new_span(claimed.growth, batch);
        claimed
    }

    /// Locks the class's spans, or takes blocks from a transfer cache: if another thread holds the
    /// lock, or the batch is one of a flow. The flag tells whether the lock took waiting; `Err` has
    /// the number of blocks taken, at the end of `batch`.
    fn spans_or_transferred(
        &self,
        class: SizeClass,
        is_flow: bool,
        batch: &mut [*mut u8],
    ) -> Result<(Guard<'_, ClassSpans>, bool), usize> {
        let (central, transfers) = (&self.centrals[class.index()], self.transfers());
        if is_flow {
            central.asked.note(transfers.key);
        }
        match central.lock_spans(transfers.route(is_flow)) {
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

    /// Gets `needed` blocks, in steps of the length of `batch`. Returns one of them, null if there
    /// is none, and pushes the others to the cache.
    #[inline(never)]
    fn refill_by(
        &self,
        class: SizeClass,
        mut needed: usize,
        order: Order,
        is_flow: bool,
        batch: &mut [*mut u8],
    ) -> *mut u8 {
        let mut block: *mut u8 = ptr::null_mut();
        let mut grown = false;
        loop {
            let step = needed.min(batch.len());
            let batch = &mut batch[..step];
            let claimed = match self.spans_or_transferred(class, is_flow, batch) {
                Ok((spans, waited)) => {
                    if waited && block.is_null() {
                        // Another thread of this CPU may have waited for the lock too, and filled
                        // the cache.
                        block = self.pop_of_cpu(class);
                        if !block.is_null() {
                            return block;
                        }
                    }
                    self.claim(spans, class, order, batch)
                }
                Err(transferred) => Batch { blocks: transferred, growth: Growth::None },
            };
            grown |= claimed.growth != Growth::None;
            let start = batch.len() - claimed.blocks;
            let mut blocks = &batch[start..];
            if block.is_null() {
                let Some((&first, others)) = blocks.split_last() else {
                    break;
                };
                (block, blocks) = (first, others);
            }
            if order == Order::InTurn {
                blocks
                    .iter()
                    .rev()
                    .take(PREFETCHED_BLOCKS_MAX)
                    .for_each(|&block| prefetch_to_write(block));
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
        if grown {
            self.reclaim_before_growth(class.span_units());
        }
        block
    }
}
