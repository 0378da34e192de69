//! The central free list of one size class: claims blocks from its spans and releases them.
//!
//! Caches refill from it and flush to it, many blocks at a time, under the class's lock. Heaps
//! have spans of their own for each class, under the heap's lock.
//!
//! Protocol (model-checked in `crates/testkit/tests/loom.rs`): blocks are claimed and released,
//! and spans retired, only under the lock. So a span is retired by the release that makes it idle,
//! and by no other thread.

// Lowest first: each uses only modules above it in this list.
pub(crate) mod tuning;
mod span_guards;
mod hardened;
mod audit;
pub(crate) mod heap_record;

use crate::backend::page_heap::Memory;
use crate::backend::page_map::MapEntry;
use crate::backend::region::{Region, UnitIndex};
use crate::backend::span::{Order, Span};
use crate::backend::units::Units;
use crate::central::tuning::{
    FIRST_SPAN_BYTES, FULL_BEGINNINGS, HUGE_BLOCK_BYTES_MAX, SMALL_BLOCK_BYTES_MAX,
};
use crate::frontend::transfer_cache::LastRequester;
use crate::platform::os::Os;
use crate::platform::sync::{Guard, Lock, const_fn};
use crate::size_class::{SizeClass, UNIT};
use span_guards::{harden, unguard};

/// Lists of spans: list `n` has the spans with 2^n to 2^(n+1) - 1 free blocks.
const LISTS: usize = 13;
/// Heaps have one more list, of spans without a free block: deleting a heap must find all spans.
const FULL: usize = LISTS;

/// A block that cannot be released, and the reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BadBlock {
    /// It is free already: a double free.
    Twice(*mut u8),
    /// It is not a block of this class.
    Invalid(*mut u8),
}

/// Result of a claim of several blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Batch {
    /// Blocks delivered.
    pub blocks: usize,
    /// Whether a new span was set up for it.
    pub has_grown: bool,
}

/// Counters of a central free list.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct CentralCounts {
    /// Blocks that the program or caches hold.
    pub claimed: usize,
    /// Spans at present.
    pub spans: usize,
    /// Blocks in these spans.
    pub blocks: usize,
    /// Calls that filled a cache.
    pub refills: usize,
    /// Calls that emptied a cache.
    pub flushes: usize,
    /// Bytes of new spans that were purged at once (decisions/0016).
    pub purged: usize,
    /// Bytes of spans that are not resident.
    pub holes: usize,
    /// Bytes of purged spans that became resident again by claims, since the start.
    pub refilled: usize,
}

impl CentralCounts {
    /// Free blocks in spans.
    pub fn free(&self) -> usize {
        self.blocks - self.claimed
    }

    /// Resident bytes of free blocks in spans: with OS pages above 4 KiB, a lower bound.
    pub fn free_resident(&self, class: SizeClass) -> usize {
        (self.free() * class.size()).saturating_sub(self.holes)
    }
}

/// The spans of one class, listed by free blocks, fullest spans first: of one heap, or of none.
pub(crate) struct ClassSpans {
    /// Unit of the heap's record, 0 for the spans of no heap.
    heap: UnitIndex,
    /// First span of each list.
    heads: [UnitIndex; LISTS + 1],
    /// Bit `n` is set if list `n` is not empty.
    filled: u16,
    /// Harden mode: see `hardened.rs`.
    hardened: bool,
    pub counts: CentralCounts,
    /// Value of `counts.refills` at the last call of [`ClassSpans::note_abandoned`].
    refills_before: usize,
    /// Spans that must retire before a class's only span begins small again.
    skips: u8,
    /// The span that blocks were last claimed from, 0 for none.
    current: UnitIndex,
}

/// Which way a batch goes between a cache and the spans of its class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Route {
    /// To the spans, behind other threads if need be.
    Wait,
    /// To the spans if no other thread holds their lock; else through a transfer cache.
    IfFree,
    /// Through a transfer cache.
    ByTransfer,
}

/// The central free list of one class.
#[repr(align(64))]
pub(crate) struct Central {
    lock: Lock<ClassSpans>,
    /// The thread that last asked for a large batch of this class in a flow.
    pub asked: LastRequester,
}

impl Central {
    const_fn! {
        pub fn new() -> Self {
            Self { lock: Lock::new(ClassSpans::new(0)), asked: LastRequester::new() }
        }
    }

    /// Locks the spans, as far as the batch goes there. The flag tells whether that took waiting
    /// for another thread.
    pub fn lock_spans(&self, route: Route) -> Option<(Guard<'_, ClassSpans>, bool)> {
        if route == Route::ByTransfer {
            return None;
        }
        match self.lock.try_lock() {
            Some(spans) => Some((spans, false)),
            None => (route == Route::Wait).then(|| (self.lock.lock(), true)),
        }
    }

    /// The lock of the spans: for fork, and to read the counts.
    pub fn spans(&self) -> &Lock<ClassSpans> {
        &self.lock
    }
}

impl ClassSpans {
    /// No spans yet. `heap` is the unit of the heap's record, 0 for the spans of no heap.
    pub const fn new(heap: UnitIndex) -> Self {
        let counts = CentralCounts {
            claimed: 0,
            spans: 0,
            blocks: 0,
            refills: 0,
            flushes: 0,
            purged: 0,
            holes: 0,
            refilled: 0,
        };
        Self {
            heap,
            heads: [0; LISTS + 1],
            filled: 0,
            hardened: false,
            counts,
            refills_before: 0,
            skips: 0,
            current: 0,
        }
    }

    /// Claims free blocks and writes them to the *end* of `blocks`, the first of each span last.
    ///
    /// So the first block comes off a stack first. Sets up a new span only if it would deliver no
    /// block otherwise.
    pub fn claim(
        &mut self,
        memory: &Memory<'_, impl Os>,
        class: SizeClass,
        order: Order,
        blocks: &mut [*mut u8],
    ) -> Batch {
        let region = memory.region;
        let (mut left, mut has_grown) = (blocks.len(), false);
        while left > 0 {
            let unit = match self.next(region, order) {
                Some(unit) => unit,
                None if left < blocks.len() => break,
                None => match self.add_span(memory, class) {
                    Some(unit) => {
                        has_grown = true;
                        unit
                    }
                    None => break,
                },
            };
            let base = region.address(unit);
            // SAFETY: a listed unit heads a span of this class, whose lock we hold.
            let span = unsafe { &mut *region.span(unit) };
            let list = self.list_of(span);
            let (unfilled, size) = (&mut blocks[..left], class.size());
            // SAFETY: the block lies in the span.
            let claimed =
                span.claim(class, unfilled, order, |index| unsafe { base.add(index * size) });
            if span.has_holes() {
                // Neighbours at once: the later one comes first.
                let are_neighbours = |later: &*mut u8, earlier: &*mut u8| {
                    later.addr().wrapping_sub(size) == earlier.addr()
                };
                for run in unfilled[left - claimed..].chunk_by(are_neighbours) {
                    let last = class.block_at(run[0].addr() - base.addr());
                    let filled = span.fill(class, last + 1 - run.len()..last + 1);
                    self.counts.holes -= filled;
                    self.counts.refilled += if span.was_purged { filled } else { 0 };
                }
            }
            left -= claimed;
            self.current = unit;
            self.relist(region, unit, list, self.list_of(span));
        }
        let claimed = blocks.len() - left;
        self.counts.claimed += claimed;
        self.counts.refills += 1;
        Batch { blocks: claimed, has_grown }
    }

    /// Takes blocks back and retires the spans that become idle. Stops at the first block that is
    /// not claimed; the blocks before it are released.
    #[inline(never)]
    pub fn release(
        &mut self,
        memory: &Memory<'_, impl Os>,
        class: SizeClass,
        blocks: &[*mut u8],
    ) -> Result<(), BadBlock> {
        let region = memory.region;
        self.counts.flushes += 1;
        let mut rest = blocks;
        while let Some(&first) = rest.first() {
            let Some(unit) = self.span_unit(region, class, first) else {
                return Err(BadBlock::Invalid(first));
            };
            let base = region.address(unit);
            // SAFETY: `span_unit` found that the unit heads a span of this class.
            let span = unsafe { &mut *region.span(unit) };
            let list = self.list_of(span);
            // Neighbours in a batch often share a span: release them together.
            let bytes = span.bytes();
            let offset_of = |block: &*mut u8| block.addr().wrapping_sub(base.addr());
            let in_span = rest.iter().map(offset_of).take_while(|&offset| offset < bytes);
            let taken = span.release_all(in_span.map(|offset| class.block_at(offset)));
            let bad = rest.get(taken).filter(|block| offset_of(block) < bytes).map(|block| {
                // The end of a span, behind its last block, may look like another block.
                let exists = class.block_at(offset_of(block)) < span.blocks as usize;
                if exists { BadBlock::Twice(*block) } else { BadBlock::Invalid(*block) }
            });
            self.counts.claimed -= taken;
            if span.is_idle() {
                self.unlist(region, unit, list);
                self.retire(memory, unit);
            } else {
                self.relist(region, unit, list, self.list_of(span));
            }
            if let Some(bad) = bad {
                return Err(bad);
            }
            rest = &rest[taken..];
        }
        Ok(())
    }

    /// Purges the OS pages of a span in which all blocks are free. Returns the bytes purged.
    ///
    /// Does nothing if the unit does not head a span of this class. With `only_quiet`, also if the
    /// number of free blocks changed since the last call.
    #[inline(never)]
    pub fn purge_free_pages(
        &mut self,
        memory: &Memory<'_, impl Os>,
        class: SizeClass,
        unit: UnitIndex,
        only_quiet: bool,
    ) -> usize {
        let Memory { region, os, .. } = *memory;
        if !self.is_span(region, class, unit) {
            return 0;
        }
        // SAFETY: the unit heads a span of this class, whose lock we hold.
        let span = unsafe { &mut *region.span(unit) };
        let page = os.page_size();
        if !span.note_quiet() && only_quiet || (span.free as usize) * class.size() < page {
            return 0;
        }
        let base = region.address(unit);
        let (hardened, before) = (self.hardened, span.holes());
        let purged = span.purge_free_pages(class, page, |bytes| {
            // SAFETY: whole pages of the span, whose blocks are free and stay free under the lock.
            unsafe {
                let (start, bytes) = (base.add(bytes.start), bytes.len());
                let purged = os.purge(start, bytes);
                if !purged && hardened {
                    // A refused purge leaves unspecified contents, and free blocks must be zero.
                    start.write_bytes(0, bytes);
                }
                purged
            }
        });
        self.counts.holes += span.holes() - before;
        purged
    }

    /// Whether no cache was filled since the last call.
    pub fn note_abandoned(&mut self) -> bool {
        let refills = self.counts.refills;
        core::mem::replace(&mut self.refills_before, refills) == refills
    }

    /// Calls [`ClassSpans::purge_free_pages`] on spans with free blocks, the emptiest first, until
    /// at least `target_bytes` are purged.
    pub fn purge_free_pages_up_to(
        &mut self,
        memory: &Memory<'_, impl Os>,
        class: SizeClass,
        target_bytes: usize,
    ) -> usize {
        let mut purged = 0;
        for list in (0..LISTS).rev() {
            let mut unit = self.heads[list];
            while unit != 0 && purged < target_bytes {
                purged += self.purge_free_pages(memory, class, unit, false);
                // SAFETY: a listed unit heads a span of this class, whose lock we hold.
                unit = unsafe { (*memory.region.span(unit)).next };
            }
        }
        purged
    }

    /// For models: whether these are the spans of this heap.
    #[cfg(loom)]
    pub fn is_of(&self, heap: UnitIndex) -> bool {
        self.heap == heap
    }

    /// Copies the record of the span that begins at this unit, if it is of this class.
    pub fn copy(&self, region: &Region, class: SizeClass, unit: UnitIndex) -> Option<Span> {
        // SAFETY: the unit heads a span of this class, whose lock we hold.
        self.is_span(region, class, unit).then(|| unsafe { (*region.span(unit)).clone() })
    }

    /// Whether one of these spans begins at this unit.
    fn is_span(&self, region: &Region, class: SizeClass, unit: UnitIndex) -> bool {
        region.entry(unit as usize) == self.entry(class, unit)
    }

    /// The map entry of the units of a span.
    fn entry(&self, class: SizeClass, first: UnitIndex) -> MapEntry {
        let entry = MapEntry::small(class, first);
        if self.heap == 0 { entry } else { entry.of_heap() }
    }

    /// The list of a span. A span of no heap is in none while it has no free block.
    #[inline]
    fn list_of(&self, span: &Span) -> Option<usize> {
        match span.free.checked_ilog2() {
            Some(list) => Some(list as usize),
            None => (self.heap != 0).then_some(FULL),
        }
    }

    /// The first unit of the span that contains the address, if it is one of these spans.
    #[inline]
    fn span_unit(&self, region: &Region, class: SizeClass, address: *mut u8) -> Option<UnitIndex> {
        let offset = region.committed_offset(address)?;
        let entry = region.entry(offset / UNIT);
        (entry.code() == self.entry(class, 0).code())
            .then(|| ((offset - entry.within_span(offset)) / UNIT) as UnitIndex)
    }

    /// Retires all spans, with all blocks in use: a heap is being deleted.
    pub fn retire_all(&mut self, memory: &Memory<'_, impl Os>) {
        let region = memory.region;
        while self.filled != 0 {
            let list = self.filled.trailing_zeros() as usize;
            let unit = self.heads[list];
            self.unlist(region, unit, Some(list));
            self.retire(memory, unit);
        }
        self.counts.claimed = 0;
    }

    /// Chooses the span to claim from.
    ///
    /// In turn, blocks come from the current span while it has any: the fullest span often has
    /// blocks that were freed a moment ago (decisions/0007).
    fn next(&self, region: &Region, order: Order) -> Option<UnitIndex> {
        let keeps_current = order == Order::InTurn
            && self.current != 0
            // SAFETY: `current` heads a span of this class, whose lock we hold; `retire` resets
            // it.
            && unsafe { (*region.span(self.current)).free } > 0;
        if keeps_current { Some(self.current) } else { self.fullest() }
    }

    /// Chooses a span with free blocks from the fullest list, so that emptier ones may become
    /// idle.
    fn fullest(&self) -> Option<UnitIndex> {
        let filled = self.filled & !(1 << FULL);
        (filled != 0).then(|| self.heads[filled.trailing_zeros() as usize])
    }

    /// Whether a new block would come from another span than this block's, which is at least as
    /// empty as the others are on average.
    ///
    /// Blocks come from one span until it is full. So a program that moves all such blocks moves
    /// each at most once, and moves some as long as two spans have free blocks.
    pub fn would_pack(&self, region: &Region, class: SizeClass, block: *mut u8) -> bool {
        let (Some(own), Some(next)) = (self.span_unit(region, class, block), self.fullest()) else {
            return false;
        };
        // SAFETY: both units head spans of this class, whose lock we hold.
        let free_in = |unit| unsafe { (*region.span(unit)).free as usize };
        let (others, free_in_others) = (self.counts.spans - 1, self.counts.free() - free_in(next));
        own != next && free_in(own) > 0 && free_in(own) * others >= free_in_others
    }

    /// Sets up a new span in a run from the page heap, and lists it.
    #[cold]
    #[inline(never)]
    fn add_span(&mut self, memory: &Memory<'_, impl Os>, class: SizeClass) -> Option<UnitIndex> {
        let region = memory.region;
        let units = match self.hardened {
            true => class.random_span_units(),
            false => class.span_units(),
        };
        let granted = {
            let mut pages = memory.lock();
            let units = Units::new(units)?;
            let granted = match self.fills_soon(class) {
                true => pages.alloc_touched(units)?,
                false => pages.alloc(units, Units::ONE)?,
            };
            pages.note(granted.first, 0, self.heap);
            granted
        };
        let first = granted.first;
        for nth in 0..units {
            region.set_entry(first + nth, self.entry(class, first));
        }
        match self.hardened {
            true => harden(memory, class, granted, units),
            // SAFETY: the run and its records are ours alone.
            false => unsafe { (*region.span(first)).set_up(class, units, !granted.zeroed) },
        }
        // SAFETY: the run and its records are ours alone.
        let span = unsafe { &mut *region.span(first) };
        if !granted.zeroed {
            self.begin_small(memory, class, first, span);
        }
        self.counts.spans += 1;
        self.counts.blocks += span.blocks as usize;
        self.counts.holes += span.holes();
        self.relist(region, first, None, self.list_of(span));
        Some(first)
    }

    /// Whether all pages of the next span are soon touched: not if a block has several pages, of
    /// which the program may touch one, nor if it is the first span.
    fn fills_soon(&self, class: SizeClass) -> bool {
        self.counts.spans > 0 && class.size() <= HUGE_BLOCK_BYTES_MAX
    }

    /// Purges the pages of a class's only span beyond its first ones, where blocks are handed out
    /// first.
    ///
    /// In small programs most classes have a few blocks in use, and a span each, cut from resident
    /// memory. If the last such span came to use all of its pages, the span stays as it is
    /// (decisions/0016).
    fn begin_small(
        &mut self,
        memory: &Memory<'_, impl Os>,
        class: SizeClass,
        first: UnitIndex,
        span: &mut Span,
    ) {
        let is_only_span = self.counts.spans == 0 && self.heap == 0;
        if !is_only_span || self.skips > 0 || class.size() > SMALL_BLOCK_BYTES_MAX {
            return;
        }
        let kept_bytes = FIRST_SPAN_BYTES.max(memory.os.page_size());
        let rest_bytes = span.bytes().saturating_sub(kept_bytes);
        // SAFETY: whole pages of a span in which no block is in use yet.
        if rest_bytes > 0
            && unsafe { memory.os.purge(memory.region.address(first).add(kept_bytes), rest_bytes) }
        {
            self.counts.purged += rest_bytes;
            span.set_hole(kept_bytes..kept_bytes + rest_bytes);
        }
    }

    /// Returns the run of an unlisted span to the page heap.
    fn retire(&mut self, memory: &Memory<'_, impl Os>, first: UnitIndex) {
        let region = memory.region;
        // SAFETY: the unit heads a span of this class, whose lock we hold.
        let span = unsafe { &*region.span(first) };
        self.skips = match self.skips {
            0 if !span.has_holes() => FULL_BEGINNINGS,
            skips => skips.saturating_sub(1),
        };
        let units = span.units as u32;
        if self.current == first {
            self.current = 0;
        }
        for nth in 0..units {
            region.set_entry(first + nth, MapEntry::NONE);
        }
        self.counts.spans -= 1;
        self.counts.blocks -= span.blocks as usize;
        let holes = span.holes();
        self.counts.holes -= holes;
        let mostly_purged = span.was_purged && 2 * holes > span.bytes();
        let mut pages = memory.lock();
        if !self.hardened || unguard(memory, &mut pages, first, units) {
            match mostly_purged {
                true => pages.free_purged(first, units),
                false => pages.free(first, units),
            }
        }
    }

    /// Moves a span from one list to another.
    #[inline]
    fn relist(&mut self, region: &Region, unit: UnitIndex, from: Option<usize>, to: Option<usize>) {
        if from == to {
            return;
        }
        self.unlist(region, unit, from);
        let Some(list) = to else { return };
        let next = self.heads[list];
        // SAFETY: both units head spans of this class, whose lock we hold.
        unsafe {
            (*region.span(unit)).next = next;
            (*region.span(unit)).previous = 0;
            if next != 0 {
                (*region.span(next)).previous = unit;
            }
        }
        self.heads[list] = unit;
        self.filled |= 1 << list;
    }

    /// Takes a span out of its list.
    fn unlist(&mut self, region: &Region, unit: UnitIndex, from: Option<usize>) {
        let Some(list) = from else { return };
        // SAFETY: listed spans are of this class, whose lock we hold.
        unsafe {
            let (next, previous) = ((*region.span(unit)).next, (*region.span(unit)).previous);
            if next != 0 {
                (*region.span(next)).previous = previous;
            }
            if previous != 0 {
                (*region.span(previous)).next = next;
            } else {
                self.heads[list] = next;
                if next == 0 {
                    self.filled &= !(1 << list);
                }
            }
        }
    }
}
