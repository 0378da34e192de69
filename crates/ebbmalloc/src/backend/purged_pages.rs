//! Holes: OS pages of a span that are not resident, because nothing was ever stored there or
//! because they went back to the kernel while all their blocks were free. Nothing is ever written
//! into free blocks, so a hole costs nothing until one of its blocks is handed out.

use core::ops::Range;

use crate::size_class::{SPAN_UNITS_MAX, UNIT};

/// The smallest OS page that a hole can be.
const PAGE: usize = 4096;
const WORDS: usize = SPAN_UNITS_MAX * UNIT / PAGE / 64;

/// Pages of a span, one bit each: set where the page is known not to be resident.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct PurgedPages([u64; WORDS]);

impl PurgedPages {
    /// No page is missing.
    pub const NONE: Self = Self([0; WORDS]);

    /// True where no page is known to be missing.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|&word| word == 0)
    }

    /// Bytes of all pages that are missing.
    pub fn bytes(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum::<usize>() * PAGE
    }

    /// Bytes of the span will be used: the pages in which they lie come back. Bytes of those that were missing.
    pub fn fill(&mut self, bytes: Range<usize>) -> usize {
        let mut filled = 0;
        for page in bytes.start / PAGE..bytes.end.div_ceil(PAGE) {
            let (word, bit) = (&mut self.0[page / 64], page % 64);
            filled += (*word >> bit & 1) as usize * PAGE;
            *word &= !(1 << bit);
        }
        filled
    }

    /// The pages in which these bytes lie went back to the kernel.
    pub fn add(&mut self, bytes: Range<usize>) {
        for page in bytes.start / PAGE..bytes.end / PAGE {
            self.0[page / 64] |= 1 << (page % 64);
        }
    }

    /// Whether all pages in which these bytes lie are holes already.
    pub fn contain(&self, bytes: Range<usize>) -> bool {
        (bytes.start / PAGE..bytes.end.div_ceil(PAGE))
            .all(|page| self.0[page / 64] >> (page % 64) & 1 == 1)
    }

    /// Whether any page in which these bytes lie is a hole.
    pub fn meet(&self, bytes: Range<usize>) -> bool {
        (bytes.start / PAGE..bytes.end.div_ceil(PAGE))
            .any(|page| self.0[page / 64] >> (page % 64) & 1 == 1)
    }
}
