//! Spans with `EBB_HARDEN`: blocks are handed out in random order, and a second bit for each block
//! tells whether it is held back after it was freed.
//!
//! Blocks have at least 32 bytes in this mode, so half of the bitmap suffices for the free ones.
//! The other half has a bit for each block held back.

use super::{Span, WORDS};
use crate::size_class::SizeClass;

/// The first word of the second half of the bitmap.
const HELD_WORD: usize = WORDS / 2;

/// The owner of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Owner {
    /// The program owns it.
    Program,
    /// It was freed, or never handed out.
    Nobody,
    /// There is no such block.
    Missing,
}

impl Span {
    /// As [`Span::set_up`], without the blocks that reach into the last `guard_bytes` bytes.
    pub fn set_up_hardened(
        &mut self,
        class: SizeClass,
        units: u32,
        resident: bool,
        guard_bytes: usize,
    ) {
        self.set_up(class, units, resident);
        let blocks = (self.bytes() - guard_bytes) / class.size();
        debug_assert!(blocks <= HELD_WORD * 64 && blocks > 0);
        for (nth, word) in self.bits.iter_mut().enumerate() {
            let in_word = (blocks.saturating_sub(nth * 64)).min(64) as u32;
            *word = !(!0u64).checked_shl(in_word).unwrap_or(0);
        }
        self.nonempty_words = !0 >> (64 - blocks.div_ceil(64));
        (self.free, self.blocks) = (blocks as u16, blocks as u16);
    }

    /// Claims a free block; the span must have one. The random number picks one of the free blocks
    /// among the first 64 that have any. Picking from the whole span would be as good a choice, but
    /// would scatter the program's data.
    #[inline]
    pub fn claim_random(&mut self, random: u64) -> usize {
        let word = self.nonempty_words.trailing_zeros() as usize;
        let bits = &mut self.bits[word % WORDS];
        let bit = one_of(*bits, random as u32);
        *bits &= !(1 << bit);
        if *bits == 0 {
            self.nonempty_words &= !(1 << word);
        }
        self.free -= 1;
        word * 64 + bit as usize
    }

    #[inline]
    pub fn owner(&self, block: usize) -> Owner {
        let (word, bit) = (block / 64, 1 << (block % 64));
        if block >= self.blocks as usize {
            return Owner::Missing;
        }
        match (self.bits[word] | self.bits[HELD_WORD + word]) & bit {
            0 => Owner::Program,
            _ => Owner::Nobody,
        }
    }

    /// Holds a block back that the program has freed.
    #[inline]
    pub fn hold(&mut self, block: usize) {
        self.bits[HELD_WORD + block / 64] |= 1 << (block % 64);
    }

    /// Ends the holding back of a block, which is about to be released.
    #[inline]
    pub fn release_held(&mut self, block: usize) {
        self.bits[HELD_WORD + block / 64] &= !(1 << (block % 64));
    }

    /// How many of the first `blocks` blocks are held back, also of a record that was read while it
    /// changed.
    pub fn count_held(&self, blocks: usize) -> usize {
        let words = self.bits[HELD_WORD..].iter().take(blocks.div_ceil(64));
        (words.map(|word| word.count_ones() as usize).sum::<usize>()).min(blocks)
    }

    /// Whether all of this block lies in holes, and so reads as zero.
    #[inline]
    pub fn in_hole(&self, class: SizeClass, block: usize) -> bool {
        self.any_hole && self.holes.contain(block * class.size()..(block + 1) * class.size())
    }
}

/// The first set bit from bit `at % 64` on, cyclically. At least one bit must be set.
#[inline]
fn one_of(bits: u64, at: u32) -> u32 {
    let at = at % 64;
    (bits.rotate_right(at).trailing_zeros() + at) % 64
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::super::GuardKind;
    use super::*;

    #[test]
    fn every_block_is_claimed_once_and_knows_its_owner() {
        for class in SizeClass::all().skip(1) {
            // SAFETY: all zero bytes are a record that was never used.
            let mut span: Span = unsafe { core::mem::zeroed() };
            span.bits.fill(0x5555);
            span.set_up_hardened(class, class.random_span_units(), true, 4096);
            span.guard = GuardKind::Gap;
            let blocks = span.blocks as usize;
            let mut taken = Vec::new();
            for nth in 0..blocks as u64 {
                span.check(class);
                let block = span.claim_random(nth.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20);
                assert!(block < blocks && !taken.contains(&block), "{block} of {blocks}");
                assert_eq!(span.owner(block), Owner::Program);
                taken.push(block);
            }
            assert!(blocks < 100 || !taken.is_sorted());
            assert_eq!((span.free, span.owner(blocks)), (0, Owner::Missing));
            for block in taken {
                span.hold(block);
                assert_eq!(span.owner(block), Owner::Nobody);
                span.release_held(block);
                assert_eq!(span.owner(block), Owner::Program);
                assert!(span.release(block));
                assert_eq!(span.owner(block), Owner::Nobody);
            }
            assert!(span.is_idle());
        }
    }
}
