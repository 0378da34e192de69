//! Blocks on their way from central to caches, many at a time, and how much room a cache has for the
//! blocks of each class. The way back: `flush.rs`.
//!
//! Room is bounded twice, for each class and for a cache in all. It moves to the classes that
//! miss: a stack whose miss shows that its room is too small gets more, and where the
//! cache has no more to give, other classes give of theirs, in turn. The idea is tcmalloc's
//! (its per-CPU caches "steal" from size classes in rotation).

use core::ptr;

use crate::backend::span::Order;
use crate::central::{Batch, ClassSpans, Growth};
use crate::engine::Engine;
use crate::engine::caches::batch::with_batch;
use crate::engine::caches::drain;
use crate::engine::tuning::SMALL_BATCH_BLOCKS;
use crate::engine::tuning::{
    CACHE_BYTES_MAX, CACHE_BYTES_MIN, CACHE_SHARE, PREFETCHED_BLOCKS_MAX, STEAL_CLASSES,
    STEAL_INTERVAL, STREAK_GROWTH_INTERVAL, STREAK_STACK_BYTES,
};
use crate::frontend::miss_history::MissKind;
use crate::frontend::slab::{self as cache, Header, Slab};
use crate::frontend::tuning::FLOW_MISSES;
use crate::frontend::tuning::STREAK_MISSES;
use crate::platform::os::Os;
use crate::platform::prefetch;
use crate::platform::sync::{Guard, Ordering};
use crate::size_class::{CLASSES, SizeClass, UNIT};

/// What became of a stack after a miss.
#[derive(Default)]
struct Miss {
    /// The header before and after: empty ones where the thread has no cache.
    before: Header,
    after: Header,
    /// How many like this were before it in a row.
    streak: u8,
    /// Whether the cache is the thread's own.
    is_own: bool,
}

impl Miss {
    fn is_in_streak(&self) -> bool {
        self.streak >= STREAK_MISSES
    }

    /// Whether so many blocks are a large batch of a flow, which would free a span or begin one: together with one more, as many
    /// bytes as most spans have. A thread's own cache has room for half of that, but for each class from the start, so
    /// that there it has to be large blocks, of which spans have few (decisions/0029).
    fn flows(&self, class: SizeClass, blocks: usize) -> bool {
        let (least, large) = if self.is_own { (1 << 10, UNIT / 2) } else { (0, UNIT) };
        let flows = class.size() >= least && (blocks + 1) * class.size() >= large;
        flows && self.streak >= FLOW_MISSES
    }
}

impl<O: Os> Engine<O> {
    /// After a miss: sets the class's stack up, or gives it more room if the bounds allow.
    #[inline(never)]
    fn grow_stack(&self, class: SizeClass, need: MissKind) -> Miss {
        let look = || self.front(|front| Some((front.slab()?, front.look(class)?, front.is_own())));
        let mut found = look();
        if let Some((slab, now, _)) = found
            && now.is_closed()
        {
            // Who was about to empty it may not get on for long.
            drain::reopen(slab, class);
            found = look();
        }
        let mut miss = Miss::default();
        if let Some((slab, now, is_own)) = found {
            // SAFETY: a front end's slabs live as long as the engine.
            let history = unsafe { cache::history_of(slab) };
            (miss.streak, miss.is_own) = (history.note(class, need), is_own);
            if !is_own {
                let room = now.room(class);
                let more = now.grown(class).room(class).saturating_sub(room);
                let bytes = more * class.size();
                let has_much = miss.is_in_streak() && room * class.size() >= STREAK_STACK_BYTES;
                if room > 0 && (more == 0 || !self.may_grow(slab, class, bytes, has_much)) {
                    (miss.before, miss.after) = (now, now);
                    return miss;
                }
                if !history.used.load(Ordering::Relaxed)
                    && !history.used.swap(true, Ordering::Relaxed)
                {
                    self.caches_used.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        (miss.before, miss.after) = self.front(|front| front.grow(class)).unwrap_or_default();
        miss
    }

    /// Whether the cache has `bytes` of room left to give, if need be after others gave theirs. Where the stack of a streak `has_much`
    /// it is asked now and then, gives half of its room at most, and others are left alone.
    fn may_grow(&self, slab: *mut Slab, class: SizeClass, bytes: usize, has_much: bool) -> bool {
        // SAFETY: as above.
        let history = unsafe { cache::history_of(slab) };
        let misses = history.misses.load(Ordering::Relaxed);
        let due = match has_much {
            true => history.misses_with_much(STREAK_GROWTH_INTERVAL),
            false => misses.is_multiple_of(STEAL_INTERVAL),
        };
        if due {
            let in_use = self.pages.lock().counts.in_use * UNIT;
            let caches = self.caches_used.load(Ordering::Relaxed).max(1);
            let room = (in_use / CACHE_SHARE / caches).clamp(CACHE_BYTES_MIN, CACHE_BYTES_MAX)
                >> has_much as u32;
            // SAFETY: as above, and in these modes stacks lie in their full places.
            if unsafe { cache::extra_capacity(slab) } + bytes <= room {
                return true;
            }
        }
        if has_much {
            return false;
        }
        // Those that ask next get nothing, or find out what this one gave.
        history.misses.store(misses.wrapping_add(1), Ordering::Relaxed);
        if due {
            for step in 0..STEAL_CLASSES {
                let asked = (misses / STEAL_INTERVAL * STEAL_CLASSES + step) % (CLASSES - 1) + 1;
                if let Some(other) = SizeClass::from_index(asked).filter(|&other| other != class) {
                    self.shrink_stack(other);
                }
            }
        }
        false
    }

    /// Halves a class's room and what is kept there.
    fn shrink_stack(&self, class: SizeClass) {
        let header = self.front(|front| front.look(class)).unwrap_or_default();
        if header.extra_capacity(class) > 0 {
            self.flush(class, header.held(class).div_ceil(2), false);
            self.front(|front| front.shrink(class));
        }
    }

    /// Fills half of the cache's room for a class, all of it in a streak, and takes one
    /// block more, which the cache will know; null if there is none. Now and then it only takes a sampled one, for a
    /// request of `size` bytes.
    #[inline(never)]
    pub(crate) fn refill(&self, size: usize, class: SizeClass) -> *mut u8 {
        let miss = self.grow_stack(class, MissKind::Underflow);
        let room = miss.after.room(class);
        let wanted = if miss.is_in_streak() { room + 1 } else { room / 2 + 1 };
        let flows = miss.flows(class, wanted);
        // What a cache begins with has no neighbours that others have.
        let apart = class.shares_lines() && miss.before.is_new();
        let order = if miss.is_in_streak() || apart { Order::InTurn } else { Order::Lowest };
        let sampled = self.sample(size, class, wanted);
        if !sampled.is_null() {
            return sampled;
        }
        let refill = |batch: &mut [_]| self.refill_by(class, wanted, order, flows, batch);
        let block = with_batch(wanted, refill);
        if !block.is_null() {
            self.front(|front| front.mark_local(block));
        }
        block
    }

    /// Sees to it that the cache has room for a block more: makes room, or else flushes half of what
    /// the room is, all in a streak. How many more a stack has room for that was set up only now, else 0.
    pub(crate) fn overflow(&self, class: SizeClass) -> usize {
        let miss = self.grow_stack(class, MissKind::Overflow);
        let Miss { before, after, .. } = miss;
        if after.room(class) <= before.room(class) {
            // Half of the room stays; where that has shrunk, more than half goes.
            let stays = if miss.is_in_streak() { 0 } else { after.room(class).div_ceil(2) };
            let goes = after.held(class).saturating_sub(stays);
            self.flush(class, goes, miss.flows(class, goes));
        }
        if before.is_new() { after.room(class).saturating_sub(1) } else { 0 }
    }

    /// Puts blocks into the thread's cache, the last one topmost; how many went.
    #[inline(never)] // Each way into a front end is there once for each mode.
    pub(crate) fn push_to_cache(&self, class: SizeClass, blocks: &[*mut u8]) -> usize {
        self.front(|front| front.push_batch(class, blocks))
    }

    /// Puts up to so many other blocks on one that came from elsewhere, as did its neighbours: on top it would soon have
    /// two CPUs write to one cache line (decisions/0022). A thread's own cache has no marks to tell a second free of the block
    /// by. But there they fill the stack, which is new, so that the next free has to look at all of it.
    #[inline(never)]
    pub(crate) fn bury(&self, class: SizeClass, others: usize) {
        let wanted = others.min(SMALL_BATCH_BLOCKS);
        let mut batch = [ptr::null_mut(); SMALL_BATCH_BLOCKS];
        let batch = &mut batch[..wanted];
        let spans = self.centrals[class.index()].spans().lock();
        let claimed = self.claim(spans, class, Order::InTurn, batch);
        self.put_or_release(class, &batch[wanted - claimed.blocks..]);
        if claimed.growth != Growth::None {
            self.reclaim_before_growth(class.span_units());
        }
    }

    /// As [`ClassSpans::claim`], from the spans that this guards, which it lets go of; the blocks may be used at once.
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

    /// The class's spans; or where others are at these, or the batch is of a flow, how many blocks were left: at the end of `batch`.
    fn spans_or_transferred(
        &self,
        class: SizeClass,
        flows: bool,
        batch: &mut [*mut u8],
    ) -> Result<Guard<'_, ClassSpans>, usize> {
        let (central, transfers) = (&self.centrals[class.index()], self.transfers());
        if flows {
            central.asked.note(transfers.key);
        }
        match central.spans_unless(flows, transfers.for_flows) {
            Some(spans) => Ok(spans),
            None => match transfers.take(class, batch) {
                0 => Ok(central.spans().lock()),
                left => Err(left),
            },
        }
    }

    /// Puts blocks into the thread's cache; what it has no room for goes back to its spans. True if all are there.
    fn put_or_release(&self, class: SizeClass, blocks: &[*mut u8]) -> bool {
        let kept = self.push_to_cache(class, blocks);
        let all = kept == blocks.len();
        if !all {
            self.release(class, &blocks[kept..]);
        }
        all
    }

    /// Fills the cache with so many blocks, one of which it takes, as many at a time as there are places in `batch`.
    #[inline(never)]
    fn refill_by(
        &self,
        class: SizeClass,
        mut wanted: usize,
        order: Order,
        flows: bool,
        batch: &mut [*mut u8],
    ) -> *mut u8 {
        let mut block: *mut u8 = ptr::null_mut();
        let mut grown = false;
        loop {
            let at_a_time = wanted.min(batch.len());
            let batch = &mut batch[..at_a_time];
            let claimed = match self.spans_or_transferred(class, flows, batch) {
                Ok(spans) => {
                    if block.is_null() {
                        // Of threads of one CPU that waited, the first has filled the cache for all of them.
                        block = self.pop_of_cpu(class);
                        if !block.is_null() {
                            return block;
                        }
                    }
                    self.claim(spans, class, order, batch)
                }
                Err(left) => Batch { blocks: left, growth: Growth::None },
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
                    .for_each(|&block| prefetch::to_write(block));
            }
            if !self.put_or_release(class, blocks) {
                // Another thread has filled this cache meanwhile, or there is no cache.
                break;
            }
            wanted -= claimed.blocks;
            // One more call for the last few would take longer than to miss a little earlier.
            if start > 0 || wanted < SMALL_BATCH_BLOCKS {
                break;
            }
        }
        if grown {
            self.reclaim_before_growth(class.span_units());
        }
        block
    }
}
