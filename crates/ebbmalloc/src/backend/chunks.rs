//! Growable metadata memory outside the region, in chunks: for arenas, and for their hash tables.
//!
//! Chunks grow with the memory, to about an eighth of it, so it stays close to what the process
//! needs. Where memory is short, a later attempt to grow may succeed.

use core::ptr;

use crate::platform::os::{Os, choose};

/// The granule of all sizes and positions in chunks, in bytes.
pub(crate) const GRAIN: usize = 16;
/// log2 of the number of chunks between two powers of two.
const STEPS_LOG: u32 = 3;
/// The first grain has the number 2^15. So the first chunk has 64 KiB, a multiple of any OS page.
const FIRST_LOG: u32 = 15;
pub(crate) const FIRST: usize = 1 << FIRST_LOG;
/// Enough chunks for all grain numbers of 32 bits.
const CHUNKS: usize = ((u32::BITS - FIRST_LOG) << STEPS_LOG) as usize;

/// Chunks of grains. Grains are numbered from [`FIRST`] on, and are zero at first.
#[repr(C)]
pub(crate) struct Chunks {
    starts: [*mut u8; CHUNKS],
    /// How many chunks there are. The first `count` elements of `starts` are set.
    count: usize,
}

// SAFETY: `Chunks` owns the memory that its pointers refer to.
unsafe impl Send for Chunks {}

/// Returns the number of the chunk that a grain lies in, and that chunk's first grain.
pub(crate) fn chunk_of(grain: usize) -> (usize, usize) {
    let log = grain.ilog2();
    let step = grain >> (log - STEPS_LOG);
    let nth = (((log - FIRST_LOG) as usize) << STEPS_LOG) + step - (1 << STEPS_LOG);
    (nth, step << (log - STEPS_LOG))
}

/// The number of the first grain of a chunk.
pub(crate) fn first_of(chunk: usize) -> usize {
    let (log, step) = (chunk >> STEPS_LOG, chunk & ((1 << STEPS_LOG) - 1));
    ((1 << STEPS_LOG) + step) << (log + (FIRST_LOG - STEPS_LOG) as usize)
}

impl Chunks {
    pub const fn new() -> Self {
        Self { starts: [ptr::null_mut(); CHUNKS], count: 0 }
    }

    /// The number after that of the last grain.
    pub fn end(&self) -> usize {
        first_of(self.count)
    }

    /// Adds a chunk. Returns false if memory is short; the caller may try again later.
    pub fn grow(&mut self, os: &impl Os) -> bool {
        if self.count == CHUNKS {
            return false;
        }
        let bytes = (first_of(self.count + 1) - first_of(self.count)) * GRAIN;
        let Some(start) = choose(os, bytes, bytes) else {
            return false;
        };
        self.starts[self.count] = start.as_ptr();
        self.count += 1;
        true
    }

    /// The address of a grain, which must be below [`Chunks::end`].
    pub fn at(&self, grain: usize) -> *mut u8 {
        let (chunk, first) = chunk_of(grain);
        debug_assert!(chunk < self.count);
        // SAFETY: the grain is below `end`, so it lies in this chunk.
        unsafe { self.starts[chunk].add((grain - first) * GRAIN) }
    }

    /// Reads the record of chunks of another process. Yields address and length in bytes of each
    /// chunk.
    pub fn ranges(bytes: &[u8; Self::BYTES]) -> impl Iterator<Item = (usize, usize)> {
        let (words, _) = bytes.as_chunks();
        let word = |nth: usize| usize::from_ne_bytes(words[nth]);
        let length = |chunk: usize| (first_of(chunk + 1) - first_of(chunk)) * GRAIN;
        (0..word(CHUNKS).min(CHUNKS)).map(move |chunk| (word(chunk), length(chunk)))
    }

    /// Size of this record in bytes.
    pub const BYTES: usize = size_of::<Self>();

    /// Address and length in bytes of each chunk.
    pub fn each(&self) -> impl Iterator<Item = (usize, usize)> {
        // SAFETY: the record is `BYTES` long, and consists of pointers and an integer without
        // padding.
        Self::ranges(unsafe { &*(&raw const *self).cast() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_follow_each_other_and_grow_by_an_eighth() {
        let mut end = FIRST;
        for chunk in 0..CHUNKS {
            let (first, next) = (first_of(chunk), first_of(chunk + 1));
            assert_eq!(first, end);
            assert_eq!(chunk_of(first), (chunk, first));
            assert_eq!(chunk_of(next - 1), (chunk, first));
            assert!(
                (next - first) * 8 <= first && ((next - first) * GRAIN).is_multiple_of(64 << 10)
            );
            end = next;
        }
        assert_eq!(end, 1 << 32);
    }
}
