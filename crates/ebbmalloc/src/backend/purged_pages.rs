//! Which OS pages of a span are not resident (*holes*): nothing was ever stored there, or they were
//! purged while all their blocks were free.
//!
//! The engine never writes to free blocks, so a hole costs nothing until one of its blocks is
//! handed out.

use core::ops::Range;

use crate::size_class::{SPAN_UNITS_MAX, UNIT};

/// The smallest OS page. A larger one takes several bits.
const PAGE: usize = 4096;
const WORDS: usize = SPAN_UNITS_MAX * UNIT / PAGE / 64;

/// A bitmap of a span's pages. A bit is set where the page is known not to be resident.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct PurgedPages([u64; WORDS]);

impl PurgedPages {
    /// No page is known to be a hole.
    pub const NONE: Self = Self([0; WORDS]);

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
