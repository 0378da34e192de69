//! Central: for one size class, which spans have free blocks. Caches refill from here and flush
//! to here, many blocks at a time, under the class's lock.
//!
//! Protocol (model-checked in `crates/testkit/tests/loom.rs`): a block is claimed, released and
//! its span retired only under the lock, so a span is retired by the release that makes it idle
//! and by nobody else.

// Lowest first: each uses only modules above it in this list.
pub(crate) mod tuning;
mod span_guards;
mod hardened;
pub(crate) mod heap_record;

use crate::backend::page_heap::PageHeap;
use crate::backend::page_map::MapEntry;
use crate::backend::region::{Region, UnitIndex};
use crate::backend::span::{Order, Span};
use crate::backend::units::Units;
use crate::central::tuning::{
    FIRST_SPAN_BYTES, FULL_BEGINNINGS, POPULATED_SPANS_MIN, SMALL_BLOCK_BYTES_MAX,
};
use crate::frontend::miss_history::Asked;
use crate::platform::os::Os;
use crate::platform::sync::{Guard, Lock, const_fn};
use crate::size_class::{SizeClass, UNIT};
use span_guards::{harden, unguard};

/// Spans by how many blocks are free: list `n` has those with 2^n to 2^(n+1) - 1.
const LISTS: usize = 13;
/// In heaps, one more list: of spans without a free block, so that all spans are found.
const FULL: usize = LISTS;

/// A block that cannot be released, and why.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BadBlock {
    /// It is free already.
    Twice(*mut u8),
    /// It is no block of this class.
    Foreign(*mut u8),
}

/// What a claim of several blocks brought: how many, and by what growth.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Batch {
    pub blocks: usize,
    pub growth: Growth,
}

/// What a claim began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Growth {
    None,
    /// A span, which all blocks are from.
    Span,
    /// The same, of one unit, all pages of which are best had at once: by the caller, with no lock held, since that takes
    /// the kernel long. The last block is where it begins.
    SpanToPopulate,
}

/// What a central has done and holds, in blocks but for the calls.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct CentralCounts {
    /// Blocks out: with the program or in caches.
    pub claimed: usize,
    /// Spans now, and the blocks in them.
    pub spans: usize,
    pub blocks: usize,
    /// Calls that filled a cache.
    pub refills: usize,
    /// Calls that emptied one.
    pub flushes: usize,
    /// Bytes of new spans that went to the kernel.
    pub purged: usize,
    /// Bytes of spans that are not resident.
    pub holes: usize,
}

impl CentralCounts {
    /// Free blocks in spans.
    pub fn free(&self) -> usize {
        self.blocks - self.claimed
    }

    /// Bytes of those that are resident. Where pages are larger than 4 KiB it may be more.
    pub fn free_resident(&self, class: SizeClass) -> usize {
        (self.free() * class.size()).saturating_sub(self.holes)
    }
}

/// The spans of one class that have free blocks, fullest list first: those of no heap, or of one.
pub(crate) struct ClassSpans {
    /// The heap, 0 for none.
    heap: UnitIndex,
    heads: [UnitIndex; LISTS + 1],
    /// Bit `n` is set where list `n` is not empty.
    filled: u16,
    /// Whether mistakes with these blocks are made hard to exploit.
    hardened: bool,
    pub counts: CentralCounts,
    /// Refills when [`ClassSpans::is_abandoned`] was last asked.
    refills_before: usize,
    /// How many spans are to retire until one that is alone begins small again.
    skips: u8,
    /// The span that blocks were last claimed from, 0 for none.
    current: UnitIndex,
}

/// One class's central.
#[repr(align(64))]
pub(crate) struct Central {
    lock: Lock<ClassSpans>,
    /// Who takes large batches of its blocks in a streak.
    pub asked: Asked,
}

impl Central {
    const_fn! {
        pub fn new() -> Self {
            Self { lock: Lock::new(ClassSpans::new(0)), asked: Asked::new() }
        }
    }

    /// The spans; `None` where a batch is to go past them, or others are at them and the caller would not wait.
    pub fn spans_unless(&self, past: bool, waits: bool) -> Option<Guard<'_, ClassSpans>> {
        match (past, waits) {
            (true, _) => None,
            (false, true) => Some(self.lock.lock()),
            (false, false) => self.lock.try_lock(),
        }
    }

    /// The lock itself: for fork, and to read the counts.
    pub fn spans(&self) -> &Lock<ClassSpans> {
        &self.lock
    }
}

impl ClassSpans {
    /// No spans, of this heap, 0 for none.
    pub const fn new(heap: UnitIndex) -> Self {
        let counts = CentralCounts {
            claimed: 0,
            spans: 0,
            blocks: 0,
            refills: 0,
            flushes: 0,
            purged: 0,
            holes: 0,
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

    /// Fills the *end* of `blocks` with free blocks, the first of each span last, so that it comes
    /// off a stack first. Starts a new span only to deliver any at all.
    pub fn claim(
        &mut self,
        region: &Region,
        os: &impl Os,
        pages: &Lock<PageHeap>,
        class: SizeClass,
        order: Order,
        blocks: &mut [*mut u8],
    ) -> Batch {
        let (mut left, mut growth) = (blocks.len(), Growth::None);
        while left > 0 {
            let unit = match self.next(region, order) {
                Some(unit) => unit,
                None if left < blocks.len() => break,
                None => match self.grow(region, os, pages, class) {
                    Some((unit, begun)) => {
                        growth = begun;
                        unit
                    }
                    None => break,
                },
            };
            let base = region.address(unit);
            // SAFETY: a listed unit heads a span of this class, whose lock we hold.
            let span = unsafe { &mut *region.span(unit) };
            let list = self.list_of(span);
            let (places, size) = (&mut blocks[..left], class.size());
            // SAFETY: the block lies in the span.
            let claimed = span.claim(places, order, |block| unsafe { base.add(block * size) });
            if span.has_holes() {
                for block in &places[left - claimed..] {
                    self.counts.holes -=
                        span.fill(class, class.block_at(block.addr() - base.addr()));
                }
            }
            left -= claimed;
            self.current = unit;
            self.relist(region, unit, list, self.list_of(span));
        }
        let claimed = blocks.len() - left;
        self.counts.claimed += claimed;
        self.counts.refills += 1;
        Batch { blocks: claimed, growth }
    }

    /// Takes blocks back and retires the spans that become idle. Stops at a block that is not
    /// claimed; those before it are taken back.
    #[inline(never)]
    pub fn release(
        &mut self,
        region: &Region,
        os: &impl Os,
        pages: &Lock<PageHeap>,
        class: SizeClass,
        blocks: &[*mut u8],
    ) -> Result<(), BadBlock> {
        self.counts.flushes += 1;
        let mut rest = blocks;
        while let Some(&first) = rest.first() {
            let Some(unit) = self.span_unit(region, class, first) else {
                return Err(BadBlock::Foreign(first));
            };
            let base = region.address(unit);
            // SAFETY: `span_unit` found that the unit heads a span of this class.
            let span = unsafe { &mut *region.span(unit) };
            let list = self.list_of(span);
            // Neighbours in a batch often share a span: book those together.
            let bytes = span.bytes();
            let offset_of = |block: &*mut u8| block.addr().wrapping_sub(base.addr());
            let here = rest.iter().map(offset_of).take_while(|&offset| offset < bytes);
            let taken = span.release_all(here.map(|offset| class.block_at(offset)));
            let bad = rest.get(taken).filter(|block| offset_of(block) < bytes).map(|block| {
                // Behind the last block there may be room that looks like one more.
                let exists = class.block_at(offset_of(block)) < span.blocks as usize;
                if exists { BadBlock::Twice(*block) } else { BadBlock::Foreign(*block) }
            });
            self.counts.claimed -= taken;
            if span.is_idle() {
                self.unlist(region, unit, list);
                self.retire(region, os, pages, unit);
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

    /// Returns OS pages of a span to the kernel in which nothing lies but free blocks, if the span is
    /// one of this class, and quiet where only those are wanted. Bytes that went.
    #[inline(never)]
    pub fn purge_free_pages(
        &mut self,
        region: &Region,
        os: &impl Os,
        class: SizeClass,
        unit: UnitIndex,
        only_quiet: bool,
    ) -> usize {
        if !self.is_one(region, class, unit) {
            return 0;
        }
        // SAFETY: the unit heads a span of this class, whose lock we hold.
        let span = unsafe { &mut *region.span(unit) };
        let page = os.page_size();
        if !span.is_quiet() && only_quiet || (span.free as usize) * class.size() < page {
            return 0;
        }
        let base = region.address(unit);
        let (hardened, before) = (self.hardened, span.holes());
        let purged = span.purge_free_pages(class, page, |bytes| {
            // SAFETY: whole pages of the span whose blocks are free and stay so under the lock.
            unsafe {
                let (start, bytes) = (base.add(bytes.start), bytes.len());
                let purged = os.purge(start, bytes);
                if !purged && hardened {
                    // Unspecified, and to be zero.
                    start.write_bytes(0, bytes);
                }
                purged
            }
        });
        self.counts.holes += span.holes() - before;
        purged
    }

    /// Whether no cache was filled from here since this was last asked.
    pub fn is_abandoned(&mut self) -> bool {
        let refills = self.counts.refills;
        core::mem::replace(&mut self.refills_before, refills) == refills
    }

    /// [`ClassSpans::dig`] for spans that have free blocks, the emptiest first, until so many bytes went.
    pub fn purge_free_pages_up_to(
        &mut self,
        region: &Region,
        os: &impl Os,
        class: SizeClass,
        most: usize,
    ) -> usize {
        let mut purged = 0;
        for list in (0..LISTS).rev() {
            let mut unit = self.heads[list];
            while unit != 0 && purged < most {
                purged += self.purge_free_pages(region, os, class, unit, false);
                // SAFETY: a listed unit heads a span of this class, whose lock we hold.
                unit = unsafe { (*region.span(unit)).next };
            }
        }
        purged
    }

    /// Whether these are this heap's spans: for models.
    #[cfg(loom)]
    pub fn is_of(&self, heap: UnitIndex) -> bool {
        self.heap == heap
    }

    /// A copy of the record of a span, if it is one of this class.
    pub fn copy(&self, region: &Region, class: SizeClass, unit: UnitIndex) -> Option<Span> {
        // SAFETY: the unit heads a span of this class, whose lock we hold.
        self.is_one(region, class, unit).then(|| unsafe { (*region.span(unit)).clone() })
    }

    /// Walks every listed span and panics at the first that is booked wrongly: for tests.
    /// Returns the free blocks that were found, and the units of the spans that are listed.
    pub fn check(&self, region: &Region, class: SizeClass) -> (usize, usize) {
        let is_one = |unit| self.is_one(region, class, unit);
        assert!(self.current == 0 || is_one(self.current), "claimed from: {}", self.current);
        let (mut free, mut units) = (0, 0);
        for (list, &head) in self.heads.iter().enumerate() {
            assert_eq!(head != 0, self.filled >> list & 1 == 1, "summary bit of list {list}");
            let (mut unit, mut previous) = (head, 0);
            while unit != 0 {
                // SAFETY: as in `claim`.
                let span = unsafe { &*region.span(unit) };
                assert!(is_one(unit), "listed: {unit}");
                span.check(class);
                assert_eq!(self.list_of(span), Some(list), "span {unit} is in the wrong list");
                assert_eq!(span.previous, previous, "back link of span {unit}");
                assert!(!span.is_idle(), "span {unit} should have been retired");
                free += span.free as usize;
                units += span.units as usize;
                (previous, unit) = (unit, span.next);
            }
        }
        (free, units)
    }

    /// Whether one of these spans begins with this unit.
    fn is_one(&self, region: &Region, class: SizeClass, unit: UnitIndex) -> bool {
        region.entry(unit as usize) == self.entry(class, unit)
    }

    /// What the map says of the units of a span.
    fn entry(&self, class: SizeClass, first: UnitIndex) -> MapEntry {
        let entry = MapEntry::small(class, first);
        if self.heap == 0 { entry } else { entry.of_heap() }
    }

    /// The list that a span belongs in; none for one without a free block that is no heap's.
    #[inline]
    fn list_of(&self, span: &Span) -> Option<usize> {
        match span.free.checked_ilog2() {
            Some(list) => Some(list as usize),
            None => (self.heap != 0).then_some(FULL),
        }
    }

    /// The first unit of the span of this class that the address lies in.
    #[inline]
    fn span_unit(&self, region: &Region, class: SizeClass, address: *mut u8) -> Option<UnitIndex> {
        let offset = region.committed_offset(address)?;
        let entry = region.entry(offset / UNIT);
        (entry.code() == self.entry(class, 0).code())
            .then(|| ((offset - entry.within_span(offset)) / UNIT) as UnitIndex)
    }

    /// Gives all spans back, whatever is in use in them: the end of a heap.
    pub fn retire_all(&mut self, region: &Region, os: &impl Os, pages: &Lock<PageHeap>) {
        while self.filled != 0 {
            let list = self.filled.trailing_zeros() as usize;
            let unit = self.heads[list];
            self.unlist(region, unit, Some(list));
            self.retire(region, os, pages, unit);
        }
        self.counts.claimed = 0;
    }

    /// The span with free blocks to claim from. In turn it is the one that the last were from, as long as that has any: the
    /// fullest often is one that some came back to a moment ago (decisions/0007).
    fn next(&self, region: &Region, order: Order) -> Option<UnitIndex> {
        let goes_on = order == Order::InTurn
            && self.current != 0
            // SAFETY: a span of this class, whose lock we hold, until it retires.
            && unsafe { (*region.span(self.current)).free } > 0;
        if goes_on { Some(self.current) } else { self.fullest() }
    }

    /// A span with free blocks from the fullest list that has one: emptier ones get the chance
    /// to become idle.
    fn fullest(&self) -> Option<UnitIndex> {
        let filled = self.filled & !(1 << FULL);
        (filled != 0).then(|| self.heads[filled.trailing_zeros() as usize])
    }

    #[cold]
    #[inline(never)]
    fn grow(
        &mut self,
        region: &Region,
        os: &impl Os,
        pages: &Lock<PageHeap>,
        class: SizeClass,
    ) -> Option<(UnitIndex, Growth)> {
        let (granted, units) = {
            let mut pages = pages.lock();
            let units = match self.hardened {
                true => class.random_span_units(),
                false => pages.span_units(region, class),
            };
            let granted = pages.alloc(region, os, Units::new(units)?, Units::ONE)?;
            pages.note(region, granted.first, 0, self.heap);
            (granted, units)
        };
        let first = granted.first;
        for nth in 0..units {
            region.set_entry(first + nth, self.entry(class, first));
        }
        match self.hardened {
            true => harden(region, os, pages, class, granted, units),
            // SAFETY: the run is ours alone now.
            false => unsafe { (*region.span(first)).set_up(class, units, !granted.zeroed) },
        }
        // SAFETY: as above.
        let span = unsafe { &mut *region.span(first) };
        if !granted.zeroed {
            self.begin_small(region, os, class, first, span);
        }
        let at_once = granted.zeroed && units == 1 && self.is_growing(class);
        self.counts.spans += 1;
        self.counts.blocks += span.blocks as usize;
        self.counts.holes += span.holes();
        self.relist(region, first, None, self.list_of(span));
        Some((first, if at_once { Growth::SpanToPopulate } else { Growth::Span }))
    }

    /// Most classes have a few blocks in use in small programs, and still a span each, cut from memory that is resident. So the
    /// pages of a class's only span go back but for the first, from where blocks are handed out first; unless the
    /// last such span came to use all of its own (decisions/0016).
    fn begin_small(
        &mut self,
        region: &Region,
        os: &impl Os,
        class: SizeClass,
        first: UnitIndex,
        span: &mut Span,
    ) {
        let alone = self.counts.spans == 0 && self.heap == 0;
        if !alone || self.skips > 0 || class.size() > SMALL_BLOCK_BYTES_MAX {
            return;
        }
        let keep = FIRST_SPAN_BYTES.max(os.page_size());
        let rest = span.bytes().saturating_sub(keep);
        // SAFETY: whole pages of a span in which no block is in use yet.
        if rest > 0 && unsafe { os.purge(region.address(first).add(keep), rest) } {
            self.counts.purged += rest;
            span.set_hole(keep..keep + rest);
        }
    }

    /// Whether the class has so many spans that the next will be filled as well, and if not is a small part. To get
    /// all of its pages at once takes the kernel less time than one by one (decisions/0020).
    fn is_growing(&self, class: SizeClass) -> bool {
        self.counts.spans >= POPULATED_SPANS_MIN
            && class.size() <= SMALL_BLOCK_BYTES_MAX
            && !self.hardened
    }

    fn retire(&mut self, region: &Region, os: &impl Os, pages: &Lock<PageHeap>, first: UnitIndex) {
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
        self.counts.holes -= span.holes();
        let mut pages = pages.lock();
        if !self.hardened || unguard(region, os, &mut pages, first, units) {
            pages.free(region, os, first, units);
        }
    }

    #[inline]
    fn relist(&mut self, region: &Region, unit: UnitIndex, from: Option<usize>, to: Option<usize>) {
        if from == to {
            return;
        }
        self.unlist(region, unit, from);
        let Some(list) = to else { return };
        let next = self.heads[list];
        // SAFETY: listed spans are of this class, whose lock we hold.
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

    fn unlist(&mut self, region: &Region, unit: UnitIndex, from: Option<usize>) {
        let Some(list) = from else { return };
        // SAFETY: as in `relist`.
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
