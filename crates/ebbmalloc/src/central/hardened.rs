//! Spans of one class in harden mode (`EBB_HARDEN`): random order, zeroed free blocks, guard
//! pages.
//!
//! Blocks are claimed one at a time, in random order. A guard page ends each span where the kernel
//! allows it. Only heaps have hardened spans, so callers of all methods here hold a heap's lock.

use super::ClassSpans;
use crate::backend::page_heap::Memory;
use crate::backend::region::{Region, UnitIndex};
use crate::backend::span::hardened::Owner;
use crate::platform::os::Os;
use crate::size_class::SizeClass;

impl ClassSpans {
    /// Hardens all spans of this class. Called before there are any.
    pub fn harden(&mut self) {
        debug_assert!(self.counts.spans == 0 && self.heap != 0);
        self.hardened = true;
    }

    /// Claims a random free block of the fullest span. Returns also whether none of its pages is
    /// resident, so that it reads as zero.
    pub fn claim_random(
        &mut self,
        memory: &Memory<'_, impl Os>,
        class: SizeClass,
        random: u64,
    ) -> Option<(*mut u8, bool)> {
        let region = memory.region;
        let unit = match self.fullest() {
            Some(unit) => unit,
            None => self.add_span(memory, class)?,
        };
        // SAFETY: a listed unit heads a span of this class, whose lock we hold.
        let span = unsafe { &mut *region.span(unit) };
        let list = self.list_of(span);
        let index = span.claim_random(random);
        let is_fresh = span.in_hole(class, index);
        if span.has_holes() {
            self.counts.holes -= span.fill(class, index..index + 1);
        }
        self.relist(region, unit, list, self.list_of(span));
        self.counts.claimed += 1;
        // SAFETY: the block lies in the span.
        Some((unsafe { region.address(unit).add(index * class.size()) }, is_fresh))
    }

    /// Returns the owners of a block and of the block before it in the same span.
    ///
    /// The span is of this class and begins at unit `first`.
    #[inline]
    pub fn owners(
        &self,
        region: &Region,
        class: SizeClass,
        first: UnitIndex,
        block: *mut u8,
    ) -> (Owner, Owner) {
        let index = class.block_at(block.addr() - region.address(first).addr());
        // SAFETY: `first` heads a span of this class, whose lock we hold.
        let span = unsafe { &*region.span(first) };
        let before = index.checked_sub(1).map_or(Owner::Missing, |before| span.owner(before));
        (span.owner(index), before)
    }

    /// Holds back a block that the program freed, until [`ClassSpans::release_held`].
    #[inline]
    pub fn hold(&mut self, region: &Region, class: SizeClass, first: UnitIndex, block: *mut u8) {
        let index = class.block_at(block.addr() - region.address(first).addr());
        // SAFETY: `first` heads a span of this class, whose lock we hold.
        unsafe { (*region.span(first)).hold(index) }
    }

    /// Stops holding back a block, which may be released next.
    #[inline]
    pub fn release_held(&mut self, region: &Region, class: SizeClass, block: *mut u8) {
        if let Some(first) = self.span_unit(region, class, block) {
            let index = class.block_at(block.addr() - region.address(first).addr());
            // SAFETY: `span_unit` found that `first` heads a span of this class; we hold its lock.
            unsafe { (*region.span(first)).release_held(index) }
        }
    }
}
