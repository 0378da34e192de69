//! A block of the allocator under test, which checks itself when it goes.

use std::hint::black_box;
use std::ptr::NonNull;

use fastrand::Rng;

/// Bytes a block has at least: a seal at each end.
pub const LEAST: usize = 2 * size_of::<Seal>();
const PAGE: usize = 4096;

type Seal = u64;

/// Owns its memory. Both ends hold a seal made of address and size, and a block that finds them changed
/// panics when it goes: the allocator has given the memory to two, or too little of it.
pub struct Block(NonNull<u8>);

// SAFETY: the memory belongs to the block alone, and malloc's may be freed by any thread.
unsafe impl Send for Block {}

impl Block {
    /// Writes both ends and each page, so that all of it is resident as in real use.
    #[inline]
    pub fn new(size: usize) -> Self {
        debug_assert!(size >= LEAST);
        // Hides where the pointer comes from: the compiler knows malloc and free, and may drop both.
        // SAFETY: malloc takes any size.
        let start: *mut u8 = black_box(unsafe { libc::malloc(size) }).cast();
        let start = NonNull::new(start).unwrap_or_else(|| panic!("no memory for {size} bytes"));
        let seal = seal(start, size);
        // SAFETY: inside the block.
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
        // SAFETY: `new` wrote it.
        unsafe { self.0.cast::<Seal>().read() as u32 as usize }
    }

    /// Reads and writes the start so many times; the seal is as before if all writes arrived.
    pub fn rewrite(&mut self, times: usize) {
        let start = self.0.cast::<Seal>();
        for _ in 0..times.next_multiple_of(2) {
            // SAFETY: inside the block.
            unsafe { start.write_volatile(!start.read_volatile()) };
        }
    }

    /// For a place that holds plain pointers.
    pub fn into_raw(self) -> *mut u8 {
        let start = self.0.as_ptr();
        std::mem::forget(self);
        start
    }

    /// # Safety
    /// `start` is null or of `into_raw`, and nobody else takes it.
    pub unsafe fn from_raw(start: *mut u8) -> Option<Self> {
        NonNull::new(start).map(Self)
    }
}

impl Drop for Block {
    #[inline]
    fn drop(&mut self) {
        let size = self.size();
        // SAFETY: the start; and if its seal is sound, `size` bytes are the block's.
        unsafe {
            let sound = self.0.cast::<Seal>().read() == seal(self.0, size)
                && self.0.add(size - size_of::<Seal>()).cast::<Seal>().read_unaligned()
                    == seal(self.0, size);
            assert!(sound, "{:p}, {size} bytes: overwritten by somebody else", self.0);
            libc::free(self.0.as_ptr().cast());
        }
    }
}

/// The size below, the address above.
#[inline]
fn seal(start: NonNull<u8>, size: usize) -> Seal {
    size as u64 | (start.addr().get() as u64).wrapping_mul(0x9e37_79b1) << 32
}

/// A random size from `least` up to `doublings` doublings of it; each doubling is as likely, so that
/// small blocks are many and large ones few.
#[inline]
pub fn any_size(rng: &mut Rng, least: usize, doublings: u32) -> usize {
    let base = least << rng.u32(..doublings);
    base + rng.usize(..base)
}

/// As programs have them: from 16 bytes to 1 KiB.
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
    #[should_panic = "overwritten by somebody else"]
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
