//! Memory apart from all blocks that grows in chunks, each an eighth of what was taken before, so a process has about as much of it as
//! it uses. Where memory is short for a while, the next try may succeed.

use core::ptr;

use crate::platform::os::{Os, choose};

/// What everything in chunks is a multiple of, in bytes.
pub(crate) const GRAIN: usize = 16;
/// Chunks that numbers between two powers of two are divided into.
const STEPS_LOG: u32 = 3;
/// The first grain has the number of two to this power: so the first chunk has 64 KiB, a multiple of any page.
const FIRST_LOG: u32 = 15;
pub(crate) const FIRST: usize = 1 << FIRST_LOG;
/// As many as numbers of 32 bits reach.
const CHUNKS: usize = ((u32::BITS - FIRST_LOG) << STEPS_LOG) as usize;

/// Grains in chunks, numbered from [`FIRST`] on. They are zero at first.
#[repr(C)]
pub(crate) struct Chunks {
    starts: [*mut u8; CHUNKS],
    /// How many chunks there are: the first ones.
    count: usize,
}

// SAFETY: the memory is the chunks' alone.
unsafe impl Send for Chunks {}

/// The number of the chunk that a grain is in, and of the chunk's first grain.
pub(crate) fn chunk_of(grain: usize) -> (usize, usize) {
    let log = grain.ilog2();
    let step = grain >> (log - STEPS_LOG);
    let nth = (((log - FIRST_LOG) as usize) << STEPS_LOG) + step - (1 << STEPS_LOG);
    (nth, step << (log - STEPS_LOG))
}

/// The first grain of a chunk.
pub(crate) fn first_of(chunk: usize) -> usize {
    let (log, step) = (chunk >> STEPS_LOG, chunk & ((1 << STEPS_LOG) - 1));
    ((1 << STEPS_LOG) + step) << (log + (FIRST_LOG - STEPS_LOG) as usize)
}

impl Chunks {
    pub const fn new() -> Self {
        Self { starts: [ptr::null_mut(); CHUNKS], count: 0 }
    }

    /// The number behind that of the last grain.
    pub fn end(&self) -> usize {
        first_of(self.count)
    }

    /// Takes another chunk. False if memory is short; it may be called again.
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

    /// The address of a grain that there is.
    pub fn at(&self, grain: usize) -> *mut u8 {
        let (chunk, first) = chunk_of(grain);
        debug_assert!(chunk < self.count);
        // SAFETY: in the chunk.
        unsafe { self.starts[chunk].add((grain - first) * GRAIN) }
    }

    /// Understands what lies where there are chunks in another process: address and length of each of them.
    pub fn ranges(bytes: &[u8; Self::BYTES]) -> impl Iterator<Item = (usize, usize)> {
        let (words, _) = bytes.as_chunks();
        let word = |nth: usize| usize::from_ne_bytes(words[nth]);
        let length = |chunk: usize| (first_of(chunk + 1) - first_of(chunk)) * GRAIN;
        (0..word(CHUNKS).min(CHUNKS)).map(move |chunk| (word(chunk), length(chunk)))
    }

    /// Bytes of this record.
    pub const BYTES: usize = size_of::<Self>();

    /// Address and length of each chunk.
    pub fn each(&self) -> impl Iterator<Item = (usize, usize)> {
        // SAFETY: any record consists of bytes.
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
