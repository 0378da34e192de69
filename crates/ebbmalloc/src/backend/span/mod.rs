//! A span: units cut into equal blocks of one size class, with a bitmap of the free blocks.
//!
//! The bitmap is authoritative: a set bit is a block that neither the program nor a cache has. A
//! thread that works on a span holds the lock of its class, or of its heap.

mod audit;
pub(crate) mod hardened;

use core::mem::offset_of;
use core::ops::Range;

use crate::size_class::{LINE, MIN_ALIGN, SPAN_BLOCKS_MAX, SPAN_UNITS_MAX, SizeClass, UNIT};

/// The most blocks between two that begin a cache line: sizes are multiples of the minimum
/// alignment.
const LINE_BLOCKS: usize = LINE / MIN_ALIGN;
const WORDS: usize = SPAN_BLOCKS_MAX / 64;

/// The order in which free blocks of a span are claimed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// Lowest addresses first, so that pages behind may become holes.
    Lowest,
    /// Blocks after the last claimed one first, which were mostly freed longest ago
    /// (decisions/0007). Where several blocks share a cache line, from the next line on
    /// (decisions/0022).
    InTurn,
}

/// What makes a guard inaccessible.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum GuardKind {
    /// There is no guard.
    None,
    /// Nothing of ours is mapped there, but perhaps a foreign mapping.
    Gap,
    /// The kernel hides the pages in their mapping.
    Hidden,
}

/// The record of a span, kept in the region's table at the span's first unit. Spans with a free
/// block are linked in a list of their class. Links are unit numbers, 0 for none.
#[derive(Clone)]
#[repr(C, align(64))]
pub struct Span {
    pub(crate) next: u32,
    pub(crate) previous: u32,
    /// Number of free blocks, which is the number of set bits.
    pub(crate) free: u16,
    /// Number of blocks.
    pub(crate) blocks: u16,
    /// The value of `free` at the last call of [`Span::note_quiet`].
    last_free: u16,
    /// The block after the one that was claimed last.
    next_in_turn: u16,
    /// Whether `holes` has any. Kept here too, in the record's first cache line.
    any_hole: bool,
    /// The guard of this span, its last page, or of the large block that begins here.
    pub(crate) guard: GuardKind,
    /// Units in the span.
    pub(crate) units: u8,
    /// Whether pages of the span were purged since it was set up.
    pub(crate) was_purged: bool,
    /// Bit `n` is set where word `n` of `bits` is not zero.
    nonempty_words: u64,
    bits: [u64; WORDS],
    holes: PurgedPages,
}

impl Span {
    /// Sets up a span of `units` units in which every block is free. `resident` tells whether its
    /// memory is.
    pub fn set_up(&mut self, class: SizeClass, units: u32, resident: bool) {
        let blocks = class.blocks_in(units);
        self.units = units as u8;
        (self.next, self.previous, self.last_free, self.next_in_turn) = (0, 0, 0, 0);
        (self.free, self.blocks) = (blocks as u16, blocks as u16);
        (self.any_hole, self.holes, self.guard) = (!resident, PurgedPages::NONE, GuardKind::None);
        self.was_purged = false;
        if !resident {
            self.holes.add(0..self.bytes());
        }
        let words = blocks.div_ceil(64);
        self.bits[..words].fill(!0);
        if !blocks.is_multiple_of(64) {
            self.bits[words - 1] = (1 << (blocks % 64)) - 1;
        }
        self.nonempty_words = !0 >> (64 - words);
    }

    /// Reads a record of another process, which may have been changing.
    pub(crate) fn from_bytes(bytes: &[u8; size_of::<Self>()]) -> Self {
        let mut bytes = *bytes;
        let flags =
            [offset_of!(Self, any_hole), offset_of!(Self, guard), offset_of!(Self, was_purged)];
        for flag in flags {
            bytes[flag] = (bytes[flag] != 0) as u8;
        }
        // SAFETY: the bytes are as many as a span has. Its flags and `guard` are 0 or 1, which both
        // have; all other fields are integers.
        unsafe { bytes.as_ptr().cast::<Self>().read_unaligned() }
    }

    /// Bytes in the span.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.units as usize * UNIT
    }

    /// Whether the block is free, by the bitmap alone.
    pub(crate) fn is_free(&self, block: usize) -> bool {
        self.bits.get(block / 64).is_some_and(|word| word >> (block % 64) & 1 == 1)
    }

    /// The number of blocks, also of a record that was read while it changed.
    pub(crate) fn blocks(&self, class: SizeClass) -> usize {
        (self.blocks as usize).min(class.blocks_in(self.units as u32))
    }

    /// How many of the first `blocks` blocks are free, by the bitmap alone.
    pub(crate) fn free_blocks(&self, blocks: usize) -> usize {
        let whole = blocks / 64;
        let ones =
            |words: &[u64]| words.iter().map(|word| word.count_ones() as usize).sum::<usize>();
        let rest = self.bits.get(whole).map_or(0, |word| word & ((1 << (blocks % 64)) - 1));
        ones(&self.bits[..whole.min(WORDS)]) + rest.count_ones() as usize
    }

    /// Claims free blocks until there are no more or `out` is full. Fills `out` from its end, with
    /// the first block last, by `convert` of their numbers. Returns how many.
    #[inline(always)]
    pub fn claim<T>(
        &mut self,
        class: SizeClass,
        out: &mut [T],
        order: Order,
        convert: impl Fn(usize) -> T,
    ) -> usize {
        let mut slots = out.iter_mut().rev();
        // Blocks below this one come last.
        let mut start = match order {
            Order::InTurn if class.shares_lines() => {
                (self.next_in_turn as usize).next_multiple_of(LINE_BLOCKS)
            }
            Order::InTurn => self.next_in_turn as usize,
            Order::Lowest => 0,
        };
        let (mut claimed, mut last) = (0, None);
        while slots.len() > 0 && self.nonempty_words != 0 {
            let ahead = self.nonempty_words & (!0u64).checked_shl(start as u32 / 64).unwrap_or(0);
            if ahead == 0 {
                start = 0;
                continue;
            }
            let word = ahead.trailing_zeros() as usize;
            let below = if word == start / 64 { (1 << (start % 64)) - 1 } else { 0 };
            let (later, mut bits) =
                (self.bits[word % WORDS] & below, self.bits[word % WORDS] & !below);
            start = (word + 1) * 64;
            while bits != 0
                && let Some(slot) = slots.next()
            {
                let block = word * 64 + bits.trailing_zeros() as usize;
                *slot = convert(block);
                last = Some(block);
                bits &= bits - 1;
                claimed += 1;
            }
            self.bits[word % WORDS] = bits | later;
            if bits | later == 0 {
                self.nonempty_words &= !(1 << word);
            }
        }
        if let Some(last) = last {
            self.next_in_turn = last as u16 + 1;
        }
        self.free -= claimed as u16;
        claimed
    }

    /// Marks blocks free, up to the first that was free already or does not exist. Returns how
    /// many.
    #[inline(always)]
    pub fn release_all(&mut self, blocks: impl Iterator<Item = usize>) -> usize {
        // Copies of the fields that change with each block, so that they may stay in registers.
        let (mut released, mut nonempty_words, block_count) =
            (0, self.nonempty_words, self.blocks as usize);
        for block in blocks {
            let (word, bit) = (block / 64, 1 << (block % 64));
            if block >= block_count || self.bits[word % WORDS] & bit != 0 {
                break;
            }
            self.bits[word % WORDS] |= bit;
            nonempty_words |= 1 << word;
            released += 1;
        }
        self.nonempty_words = nonempty_words;
        self.free += released as u16;
        released
    }

    /// Whether a block that is handed out may lie in a hole; the caller calls [`Span::fill`] then.
    #[inline]
    pub fn has_holes(&self) -> bool {
        self.any_hole
    }

    /// Records that these blocks are handed out, so their pages become resident. Returns the bytes
    /// of those that were holes.
    pub fn fill(&mut self, class: SizeClass, blocks: Range<usize>) -> usize {
        let filled = self.holes.fill(blocks.start * class.size()..blocks.end * class.size());
        self.any_hole = !self.holes.is_empty();
        filled
    }

    /// Bytes in all holes, including those behind the last block.
    pub fn holes(&self) -> usize {
        self.holes.bytes()
    }

    /// Bytes of blocks that lie in holes, for OS pages of `page` bytes.
    pub fn hole_bytes(&self, class: SizeClass, page: usize) -> usize {
        let end = self.blocks as usize * class.size();
        let holes = (0..end).step_by(page).filter(|&at| self.holes.contain(at..at + page));
        holes.map(|at| page.min(end - at)).sum()
    }

    /// Records that these pages, whose blocks are free, are not resident any more.
    pub fn set_hole(&mut self, bytes: Range<usize>) {
        self.holes.add(bytes);
        self.any_hole = true;
    }

    /// Whether as many blocks are free as at the last call.
    pub fn note_quiet(&mut self) -> bool {
        core::mem::replace(&mut self.last_free, self.free) == self.free
    }

    /// Has `purge` return ranges of whole OS pages, of `page` bytes, to the kernel: those that lie
    /// in free blocks only and are not one hole already. Ranges are offsets from the start of the
    /// span. `purge` tells whether it succeeded. Returns the bytes purged.
    pub fn purge_free_pages(
        &mut self,
        class: SizeClass,
        page: usize,
        mut purge: impl FnMut(Range<usize>) -> bool,
    ) -> usize {
        let guard = if self.guard == GuardKind::None { 0 } else { page };
        let end = self.bytes() - guard;
        let (mut at, mut purged) = (0, 0);
        while at < end {
            let start = at;
            while at < end && self.all_free(class, at..at + page) {
                at += page;
            }
            // Pages of the range may be holes already. Purging those again costs nothing more.
            if at > start && !self.holes.contain(start..at) && purge(start..at) {
                self.set_hole(start..at);
                self.was_purged = true;
                purged += at - start;
            }
            at += page;
        }
        purged
    }

    /// Whether these bytes of the span belong to free blocks only.
    fn all_free(&self, class: SizeClass, bytes: Range<usize>) -> bool {
        let first = class.block_at(bytes.start);
        // Bytes behind the last block are never in use.
        let last = class.block_at(bytes.end - 1).min(self.blocks as usize - 1);
        let mut block = first;
        while block <= last {
            let (word, bit) = (block / 64, block % 64);
            let needed = !0 << bit & !0 >> (63 - (last - word * 64).min(63));
            if self.bits[word] & needed != needed {
                return false;
            }
            block = (word + 1) * 64;
        }
        true
    }

    /// Whether every block is free.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.free == self.blocks
    }
}

/// The smallest OS page. A larger one takes several bits.
const PAGE: usize = 4096;
const HOLE_WORDS: usize = SPAN_UNITS_MAX * UNIT / PAGE / 64;

/// A bitmap of a span's OS pages that are not resident (*holes*): nothing was ever stored there, or
/// they were purged while all their blocks were free. The engine never writes to free blocks, so a
/// hole costs nothing until one of its blocks is handed out.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct PurgedPages([u64; HOLE_WORDS]);

impl PurgedPages {
    /// No page is known to be a hole.
    pub const NONE: Self = Self([0; HOLE_WORDS]);

    /// Whether no page is known to be a hole.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|&word| word == 0)
    }

    /// Bytes in all holes.
    pub fn bytes(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum::<usize>() * PAGE
    }

    /// Marks the pages of this byte range as resident, since blocks there are handed out. Returns
    /// the bytes of those that were holes.
    pub fn fill(&mut self, bytes: Range<usize>) -> usize {
        let mut filled = 0;
        for page in bytes.start / PAGE..bytes.end.div_ceil(PAGE) {
            let (word, bit) = (&mut self.0[page / 64], page % 64);
            filled += (*word >> bit & 1) as usize * PAGE;
            *word &= !(1 << bit);
        }
        filled
    }

    /// Marks the whole pages of this byte range as holes.
    pub fn add(&mut self, bytes: Range<usize>) {
        for page in bytes.start / PAGE..bytes.end / PAGE {
            self.0[page / 64] |= 1 << (page % 64);
        }
    }

    /// Whether all pages that this byte range touches are holes.
    pub fn contain(&self, bytes: Range<usize>) -> bool {
        (bytes.start / PAGE..bytes.end.div_ceil(PAGE))
            .all(|page| self.0[page / 64] >> (page % 64) & 1 == 1)
    }

    /// Whether any page that this byte range touches is a hole.
    pub fn meet(&self, bytes: Range<usize>) -> bool {
        (bytes.start / PAGE..bytes.end.div_ceil(PAGE))
            .any(|page| self.0[page / 64] >> (page % 64) & 1 == 1)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::vec::Vec;

    use super::*;

    fn span(class: SizeClass) -> Span {
        // SAFETY: all zero bytes are a record that was never used.
        let mut span: Span = unsafe { core::mem::zeroed() };
        span.set_up(class, class.span_units(), true);
        span
    }

    #[test]
    fn every_block_is_claimed_once_and_in_order() {
        for class in SizeClass::all() {
            let mut span = span(class);
            let mut next = 0;
            let mut out = [0; 7];
            loop {
                let claimed = span.claim(class, &mut out, Order::Lowest, |block| block);
                span.check(class);
                for &block in out[7 - claimed..].iter().rev() {
                    assert_eq!(block, next);
                    next += 1;
                }
                if claimed < 7 {
                    break;
                }
            }
            assert_eq!(next, span.blocks as usize);
            for block in (0..next).rev() {
                assert!(!span.is_idle());
                assert!(span.release(block));
                assert!(!span.release(block), "released twice");
                span.check(class);
            }
            assert!(span.is_idle() && !span.release(next));
        }
    }
    #[test]
    fn blocks_in_turn_are_those_freed_longest_ago() {
        for class in SizeClass::all() {
            let mut span = span(class);
            let blocks = span.blocks as usize;
            let mut out = [0; 7];
            let mut waiting: VecDeque<usize> = VecDeque::new();
            let mut next = 0usize;
            for _ in 0..2 * blocks {
                // Free in another order than claimed, and some late.
                if waiting.len() > 1 + blocks / 2 {
                    assert!(span.release(waiting.remove(waiting.len() / 3).unwrap()));
                    assert!(span.release(waiting.pop_front().unwrap()));
                }
                let free: Vec<_> = (0..blocks).filter(|&block| span.is_free(block)).collect();
                let line = if class.shares_lines() { LINE_BLOCKS } else { 1 };
                let from = free.partition_point(|&block| block < next.next_multiple_of(line));
                let expected: Vec<_> = free[from..].iter().chain(&free[..from]).take(7).collect();
                let claimed = span.claim(class, &mut out, Order::InTurn, |block| block);
                span.check(class);
                assert!(out[7 - claimed..].iter().rev().eq(expected));
                waiting.extend(out[7 - claimed..].iter().rev());
                next = if claimed > 0 { out[7 - claimed] + 1 } else { next };
            }
        }
    }

    #[test]
    fn holes_are_where_all_blocks_are_free() {
        for (nth, class) in SizeClass::all().enumerate() {
            for page in [4096, 16384, 65536] {
                let mut span = span(class);
                let mut claimed = std::vec![0; span.blocks as usize];
                span.claim(class, &mut claimed, Order::Lowest, |block| block);
                // Patterns of gaps from almost empty to almost full.
                let used = |block: usize| (block * 7 + nth).is_multiple_of(3 + nth % 61);
                let blocks = span.blocks as usize;
                (0..blocks).filter(|&block| !used(block)).for_each(|block| {
                    assert!(span.release(block));
                });
                let bytes = class.span_units() as usize * UNIT;
                let free = |page: &Range<usize>| {
                    let blocks = (0..blocks).filter(|&block| used(block));
                    let mut bytes = blocks.map(|b| b * class.size()..(b + 1) * class.size());
                    !bytes.any(|used| used.start < page.end && page.start < used.end)
                };
                let expected: Vec<_> =
                    (0..bytes).step_by(page).map(|at| at..at + page).filter(free).collect();
                let mut found = Vec::new();
                let purged = span.purge_free_pages(class, page, |range| {
                    found.extend(range.step_by(page).map(|at| at..at + page));
                    true
                });
                assert_eq!(found, expected, "class {} page {page}", class.size());
                assert_eq!(purged, expected.len() * page);
                let of_blocks = |page: &Range<usize>| {
                    page.end.min(blocks * class.size()).saturating_sub(page.start)
                };
                assert_eq!(span.hole_bytes(class, page), expected.iter().map(of_blocks).sum());
                assert_eq!(span.has_holes(), purged > 0);
                assert_eq!(span.purge_free_pages(class, page, |_| panic!("purged twice")), 0);
                // As blocks are handed out, the pages become resident again.
                let count = span.claim(class, &mut claimed, Order::Lowest, |block| block);
                let before = span.holes();
                let filled: usize = claimed[blocks - count..]
                    .iter()
                    .map(|&block| span.fill(class, block..block + 1))
                    .sum();
                assert_eq!(span.holes(), before - filled);
                assert_eq!(span.hole_bytes(class, page), 0);
                let tail = bytes - blocks * class.size();
                assert!(!span.has_holes() || tail >= 4096);
            }
        }
    }
}
