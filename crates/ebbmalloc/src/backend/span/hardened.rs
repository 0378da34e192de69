//! What a span does where mistakes are made hard to exploit (`EBB_HARDEN`): blocks are handed out in random order, and it is
//! known which of those that are not free were freed, and are held back.
//!
//! Blocks have 32 bytes at least then, so half of the bitmap is enough for those that are free. The other
//! half has a bit for each block held back.

use super::{Span, WORDS};
use crate::size_class::SizeClass;

/// Where the second half begins.
const HELD: usize = WORDS / 2;

/// Whose a block is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Owner {
    /// The program's.
    Program,
    /// Nobody's: it was freed, or never handed out.
    Nobody,
    /// There is no such block.
    Missing,
}

impl Span {
    /// As [`Span::set_up`], without the blocks that reach into the last `lost` bytes.
    pub fn set_up_hardened(&mut self, class: SizeClass, units: u32, resident: bool, lost: usize) {
        self.set_up(class, units, resident);
        let blocks = (self.bytes() - lost) / class.size();
        debug_assert!(blocks <= HELD * 64 && blocks > 0);
        for (nth, word) in self.bits.iter_mut().enumerate() {
            let beyond = (blocks.saturating_sub(nth * 64)).min(64) as u32;
            *word = !(!0u64).checked_shl(beyond).unwrap_or(0);
        }
        self.occupied = !0 >> (64 - blocks.div_ceil(64));
        (self.free, self.blocks) = (blocks as u16, blocks as u16);
    }

    /// Takes a free block, of which there is one: by a random number any of those that are free of the first 64 with a
    /// free one. Others farther away would be as good a choice, but for programs whose data lie scattered then.
    #[inline]
    pub fn claim_random(&mut self, random: u64) -> usize {
        let word = self.occupied.trailing_zeros() as usize;
        let bits = &mut self.bits[word % WORDS];
        let bit = one_of(*bits, random as u32);
        *bits &= !(1 << bit);
        if *bits == 0 {
            self.occupied &= !(1 << word);
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
        match (self.bits[word] | self.bits[HELD + word]) & bit {
            0 => Owner::Program,
            _ => Owner::Nobody,
        }
    }

    /// The program has freed this block, which is not to be handed out yet.
    #[inline]
    pub fn hold(&mut self, block: usize) {
        self.bits[HELD + block / 64] |= 1 << (block % 64);
    }

    /// Undoes that: the block is to be released.
    #[inline]
    pub fn release_held(&mut self, block: usize) {
        self.bits[HELD + block / 64] &= !(1 << (block % 64));
    }

    /// How many blocks are held back, of so many that there are. Of a record that is perhaps half-written.
    pub fn count_held(&self, blocks: usize) -> usize {
        let words = self.bits[HELD..].iter().take(blocks.div_ceil(64));
        (words.map(|word| word.count_ones() as usize).sum::<usize>()).min(blocks)
    }

    /// True where all of this block lies in holes, and so reads as zero.
    #[inline]
    pub fn in_hole(&self, class: SizeClass, block: usize) -> bool {
        self.holed && self.holes.contain(block * class.size()..(block + 1) * class.size())
    }
}

/// One of the bits that are set, of which there is one: the first from bit `at % 64` on, and around.
#[inline]
fn one_of(bits: u64, at: u32) -> u32 {
    (bits.rotate_right(at % 64).trailing_zeros() + at) % 64
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    #[test]
    fn every_block_is_claimed_once_and_knows_its_owner() {
        for class in SizeClass::all().skip(1) {
            // SAFETY: all zero bytes are a record that was never used.
            let mut span: Span = unsafe { core::mem::zeroed() };
            span.bits.fill(0x5555);
            span.set_up_hardened(class, class.random_span_units(), true, 4096);
            span.guarded = true;
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
