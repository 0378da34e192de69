//! Audits a span, and changes single blocks of it, for tests.

use super::{GuardKind, Span};
use crate::size_class::SizeClass;

impl Span {
    /// Marks a block free. Returns false, and changes nothing, if it was free already or does not
    /// exist.
    pub fn release(&mut self, block: usize) -> bool {
        self.release_all([block].into_iter()) == 1
    }

    /// Marks a block as not free, to count it: the opposite of [`Span::release`].
    pub fn take(&mut self, block: usize) {
        let (word, bit) = (block / 64, 1 << (block % 64));
        assert!(self.bits[word] & bit != 0, "block {block} is not free");
        self.bits[word] &= !bit;
        if self.bits[word] == 0 {
            self.nonempty_words &= !(1 << word);
        }
        self.free -= 1;
    }

    /// Panics unless the counts agree with the bitmap and no block in use lies in a hole.
    pub fn check(&self, class: SizeClass) {
        let guard_blocks = class.blocks_in(self.units as u32) - self.blocks as usize;
        assert!(
            guard_blocks == 0 || self.guard != GuardKind::None,
            "blocks of a span of {class:?}"
        );
        let words = self.bits.iter().enumerate().take((self.blocks as usize).div_ceil(64));
        let set: u32 = words.clone().map(|(_, bits)| bits.count_ones()).sum();
        assert_eq!(set, self.free as u32, "free blocks of a span");
        for (word, bits) in words {
            assert_eq!(*bits != 0, self.nonempty_words >> word & 1 == 1, "summary bit {word}");
        }
        assert_eq!(self.any_hole, !self.holes.is_empty(), "whether there are holes");
        let in_use =
            (0..self.blocks as usize).filter(|&block| self.any_hole && !self.is_free(block));
        for block in in_use {
            let bytes = block * class.size()..(block + 1) * class.size();
            assert!(!self.holes.meet(bytes), "block {block} of {class:?} is in use, in a hole");
        }
    }
}
