//! Defines a block of the allocator under test that checks itself when it is freed.

use std::hint::black_box;
use std::ptr::NonNull;

use fastrand::Rng;

/// Minimum size of a block in bytes: a seal at each end.
pub const LEAST: usize = 2 * size_of::<Seal>();
const PAGE: usize = 4096;

type Seal = u64;

/// A block of memory. Both ends hold a seal made of address and size. If one has changed when the
/// block is freed, it panics: the memory belongs to two blocks, or is too short.
pub struct Block(NonNull<u8>);

// SAFETY: the memory belongs to the block alone, and any thread may free malloc's memory.
unsafe impl Send for Block {}

impl Block {
    /// Writes both ends and each page, so that all of it is resident as in real use.
    #[inline]
    pub fn new(size: usize) -> Self {
        debug_assert!(size >= LEAST);
        // Hides the pointer's origin: the compiler knows malloc and free, and may drop both.
        // SAFETY: malloc takes any size.
        let start: *mut u8 = black_box(unsafe { libc::malloc(size) }).cast();
        let start = NonNull::new(start).unwrap_or_else(|| panic!("no memory for {size} bytes"));
        let seal = seal(start, size);
        // SAFETY: all writes are inside the block.
        unsafe {
            start.cast().write(seal);
            for offset in (PAGE..size - size_of::<Seal>()).step_by(PAGE) {
                start.add(offset).write_volatile(1);
            }
            start.add(size - size_of::<Seal>()).cast().write_unaligned(seal);
        }
        Self(start)
    }

    #[inline]
    pub fn size(&self) -> usize {
        // SAFETY: `new` wrote the seal there.
        unsafe { self.0.cast::<Seal>().read() as u32 as usize }
    }

    /// Reads and writes the start `times` times; the seal is unchanged if all writes arrived.
    pub fn rewrite(&mut self, times: usize) {
        let start = self.0.cast::<Seal>();
        for _ in 0..times.next_multiple_of(2) {
            // SAFETY: inside the block.
            unsafe { start.write_volatile(!start.read_volatile()) };
        }
    }

    /// Writes all of it.
    pub fn fill(&mut self) {
        let seals = size_of::<Seal>();
        // SAFETY: between the seals, inside the block.
        unsafe { self.0.add(seals).write_bytes(1, self.size() - 2 * seals) };
    }

    /// Gives the block up for a raw pointer, which `from_raw` takes back.
    pub fn into_raw(self) -> *mut u8 {
        let start = self.0.as_ptr();
        std::mem::forget(self);
        start
    }

    /// # Safety
    /// `start` is null or from `into_raw`, and no other call takes it.
    pub unsafe fn from_raw(start: *mut u8) -> Option<Self> {
        NonNull::new(start).map(Self)
    }
}

impl Drop for Block {
    #[inline]
    fn drop(&mut self) {
        let size = self.size();
        // SAFETY: the start is the block's; if its seal is intact, so are `size` bytes.
        unsafe {
            let sound = self.0.cast::<Seal>().read() == seal(self.0, size)
                && self.0.add(size - size_of::<Seal>()).cast::<Seal>().read_unaligned()
                    == seal(self.0, size);
            assert!(sound, "{:p}, {size} bytes: overwritten by another owner", self.0);
            libc::free(self.0.as_ptr().cast());
        }
    }
}

/// Combines the size in the lower half and the hashed address in the upper.
#[inline]
fn seal(start: NonNull<u8>, size: usize) -> Seal {
    size as u64 | (start.addr().get() as u64).wrapping_mul(0x9e37_79b1) << 32
}

/// Returns a random size from `least` up to `doublings` doublings of it. Each doubling is as
/// likely, so that small blocks are many and large ones few.
#[inline]
pub fn any_size(rng: &mut Rng, least: usize, doublings: u32) -> usize {
    let base = least << rng.u32(..doublings);
    base + rng.usize(..base)
}

/// Returns a size that is usual in programs: from 16 bytes to 1 KiB.
#[inline]
pub fn small_size(rng: &mut Rng) -> usize {
    any_size(rng, LEAST, 6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sound_blocks_go() {
        for size in [16, 17, 4096, 4104, 100_000] {
            assert_eq!(Block::new(size).size(), size);
        }
    }

    #[test]
    #[should_panic = "overwritten by another owner"]
    fn an_overwritten_end_is_found() {
        let block = Block::new(100);
        // SAFETY: inside the block.
        unsafe { *block.0.as_ptr().add(99) ^= 1 };
    }

    #[test]
    fn sizes_stay_in_their_range() {
        let mut rng = Rng::with_seed(1);
        let sizes: Vec<_> = (0..100_000).map(|_| small_size(&mut rng)).collect();
        assert_eq!(sizes.iter().min(), Some(&16));
        assert_eq!(sizes.iter().max(), Some(&1023));
    }
}
