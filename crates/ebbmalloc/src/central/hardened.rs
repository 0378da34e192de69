//! What a class does where mistakes are made hard to exploit (`EBB_HARDEN`): a guard page ends each of its spans, free blocks are
//! zero, and they are handed out one by one, in random order.
//!
//! Only heaps have such spans, so all calls here are under a heap's lock.

use super::ClassSpans;
use crate::backend::page_heap::PageHeap;
use crate::backend::region::{Region, UnitIndex};
use crate::backend::span::hardened::Owner;
use crate::platform::os::Os;
use crate::platform::sync::Lock;
use crate::size_class::SizeClass;

/// A block that was claimed.
pub(crate) struct Claimed {
    pub block: *mut u8,
    /// It was never resident, or is not any more: it reads as zero.
    pub fresh: bool,
}

impl ClassSpans {
    /// From now on, before there are any spans.
    pub fn harden(&mut self) {
        debug_assert!(self.counts.spans == 0 && self.heap != 0);
        self.hardened = true;
    }

    /// Takes any free block of the fullest span.
    pub fn claim_random(
        &mut self,
        region: &Region,
        os: &impl Os,
        pages: &Lock<PageHeap>,
        class: SizeClass,
        random: u64,
    ) -> Option<Claimed> {
        let unit = match self.fullest() {
            Some(unit) => unit,
            None => self.grow(region, os, pages, class)?.0,
        };
        // SAFETY: a listed unit heads a span of this class, whose lock we hold.
        let span = unsafe { &mut *region.span(unit) };
        let list = self.list_of(span);
        let number = span.claim_random(random);
        let fresh = span.in_hole(class, number);
        if span.has_holes() {
            self.counts.holes -= span.fill(class, number);
        }
        self.relist(region, unit, list, self.list_of(span));
        self.counts.claimed += 1;
        // SAFETY: the block lies in the span.
        Some(Claimed { block: unsafe { region.address(unit).add(number * class.size()) }, fresh })
    }

    /// Whose a block is that begins in a span of this class, which begins at `first`; and the one before it, if it has one.
    #[inline]
    pub fn owners(
        &self,
        region: &Region,
        class: SizeClass,
        first: UnitIndex,
        block: *mut u8,
    ) -> (Owner, Owner) {
        let number = class.block_at(block.addr() - region.address(first).addr());
        // SAFETY: as above.
        let span = unsafe { &*region.span(first) };
        let before = number.checked_sub(1).map_or(Owner::Missing, |before| span.owner(before));
        (span.owner(number), before)
    }

    /// The program has freed this block: it is held back until it is released.
    #[inline]
    pub fn hold(&mut self, region: &Region, class: SizeClass, first: UnitIndex, block: *mut u8) {
        let number = class.block_at(block.addr() - region.address(first).addr());
        // SAFETY: as above.
        unsafe { (*region.span(first)).hold(number) }
    }

    /// A block that was held back may be released now.
    #[inline]
    pub fn release_held(&mut self, region: &Region, class: SizeClass, block: *mut u8) {
        if let Some(first) = self.span_unit(region, class, block) {
            let number = class.block_at(block.addr() - region.address(first).addr());
            // SAFETY: as above.
            unsafe { (*region.span(first)).release_held(number) }
        }
    }
}
