//! Seals: writes secret bytes behind a block's end, and checks later that they are intact.
//!
//! Only harden mode (`EBB_HARDEN`) has seals.
//!
//! The last eight bytes of a small block hold the requested size, masked with a key. The key
//! depends on the block's address and on a secret of the process. The bytes between the block's
//! end and these eight all have one value, the fill byte. It depends on the key, and is never an
//! ASCII character, 0 or 255. A large block has only fill bytes, up to the end of its last page.
//!
//! A seal only tells that something is wrong. No owner or address is read from it.

use crate::platform::random::fold;

/// Bytes of a seal at the end of a small block.
pub(crate) const SEAL: usize = size_of::<u64>();
/// A seal has the fill byte in its low bits, then the masked size, then bits that only this size
/// has.
const SIZE_SHIFT: u32 = 8;
const SIZE: u64 = 0x1_ffff << SIZE_SHIFT;
const BYTE: u64 = 0xff;
/// The fill byte has one of 64 values: these bits vary, and the highest bit is set.
const BYTE_BITS: u64 = 0x7e;
const BYTE_MIN: u64 = 0x80;

/// The secret of a process, from which the keys of seals are made.
#[derive(Clone, Copy)]
pub(crate) struct Secret(pub u64, pub u64);

impl Secret {
    pub const NONE: Self = Self(0, 0);

    /// The key for a block at this address. Its low byte is the fill byte.
    #[inline]
    fn key(self, block: *mut u8) -> u64 {
        let key = fold(block.addr() as u64 ^ self.0, self.1 | 1);
        key & !BYTE | key & BYTE_BITS | BYTE_MIN
    }
}

/// The seal of a block of `size` bytes that has this key.
#[inline]
fn sealed(key: u64, size: usize) -> u64 {
    let size = (size as u64) << SIZE_SHIFT;
    let own = fold(key ^ size.rotate_left(32), key | 1);
    own & !(SIZE | BYTE) | (key ^ size) & SIZE | key & BYTE
}

/// The overwritten part of a seal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Broken {
    /// The fill byte at this offset, and the block's size.
    Byte(usize, usize),
    /// The last eight bytes, which hold the size.
    Size,
}

/// Seals a block of `size` bytes in a place of `capacity` bytes.
///
/// # Safety
/// The block is the caller's and begins at a multiple of 16. `capacity` is a multiple of 16, and
/// `size` is at most `capacity - SEAL`.
#[inline]
pub(crate) unsafe fn seal(secret: Secret, block: *mut u8, size: usize, capacity: usize) {
    let key = secret.key(block);
    // SAFETY: the caller guarantees that all of `capacity` is its own, and alignment.
    unsafe {
        block.add(size).write_bytes(key as u8, capacity - SEAL - size);
        block.add(capacity - SEAL).cast::<u64>().write(sealed(key, size));
    }
}

/// Reads the size of a block from its seal. Does not check the fill bytes.
///
/// # Safety
/// The block has `capacity` bytes, a multiple of 16, and begins at a multiple of 16.
#[inline]
pub(crate) unsafe fn sealed_size(secret: Secret, block: *mut u8, capacity: usize) -> Option<usize> {
    // SAFETY: the caller guarantees that the block has `capacity` bytes, and alignment.
    let found = unsafe { block.add(capacity - SEAL).cast::<u64>().read() };
    let key = secret.key(block);
    let size = (((found ^ key) & SIZE) >> SIZE_SHIFT) as usize;
    (size <= capacity - SEAL && found == sealed(key, size)).then_some(size)
}

/// Returns the size of a block, if its seal and its fill bytes are intact.
///
/// # Safety
/// As for [`sealed_size`].
#[inline]
pub(crate) unsafe fn open(
    secret: Secret,
    block: *mut u8,
    capacity: usize,
) -> Result<usize, Broken> {
    // SAFETY: the caller guarantees what `sealed_size` needs, and the size is below `capacity`.
    unsafe {
        let size = sealed_size(secret, block, capacity).ok_or(Broken::Size)?;
        check_fill(secret, block, size, capacity - SEAL).map(|()| size)
    }
}

/// Writes fill bytes from `size` to `end`.
///
/// # Safety
/// The block is the caller's, has `end` bytes, and `size` is at most `end`.
pub(crate) unsafe fn fill(secret: Secret, block: *mut u8, size: usize, end: usize) {
    // SAFETY: the caller guarantees that the block has `end` bytes.
    unsafe { block.add(size).write_bytes(secret.key(block) as u8, end - size) }
}

/// Checks that the bytes from `size` to `end` are fill bytes.
///
/// # Safety
/// The block has `end` bytes, and `size` is at most `end`.
#[inline]
pub(crate) unsafe fn check_fill(
    secret: Secret,
    block: *mut u8,
    size: usize,
    end: usize,
) -> Result<(), Broken> {
    let byte = secret.key(block) as u8;
    // SAFETY: the caller guarantees that the block has `end` bytes.
    let behind = unsafe { core::slice::from_raw_parts(block.add(size), end - size) };
    match behind.iter().position(|&found| found != byte) {
        None => Ok(()),
        Some(at) => Err(Broken::Byte(size + at, size)),
    }
}

/// Returns the offset of the first byte that is not zero, in the first `bytes` bytes of a block.
///
/// # Safety
/// The block has `bytes` bytes, a multiple of 16, and begins at a multiple of 16.
#[inline]
pub(crate) unsafe fn first_written(block: *mut u8, bytes: usize) -> Option<usize> {
    // SAFETY: the caller guarantees length and alignment.
    let words = unsafe { core::slice::from_raw_parts(block.cast::<[u64; 2]>(), bytes / 16) };
    // Compilers turn this into vector code.
    let is_zero = |words: &[[u64; 2]]| words.iter().fold(0, |all, [a, b]| all | a | b) == 0;
    let piece = words.chunks(16).position(|piece| !is_zero(piece))? * 16;
    // SAFETY: the caller guarantees the length.
    let bytes = unsafe { core::slice::from_raw_parts(block, bytes) };
    bytes.iter().skip(piece * 16).position(|&byte| byte != 0).map(|at| piece * 16 + at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(align(16))]
    struct Block([u8; 512]);
    const SECRET: Secret = Secret(0x1234_5678_9abc_def0, 0x0fed_cba9_8765_4321);

    #[test]
    fn every_byte_behind_the_end_is_watched() {
        for capacity in [32, 48, 512] {
            for size in [0, 1, 7, 8, 23, 24, 32, 39, 40, 300, 504] {
                if size > capacity - SEAL {
                    continue;
                }
                let mut memory = Block([0; 512]);
                let block = memory.0.as_mut_ptr();
                // SAFETY: `memory` has 512 bytes, at least `capacity`, and is aligned to 16.
                unsafe {
                    seal(SECRET, block, size, capacity);
                    assert_eq!(open(SECRET, block, capacity), Ok(size));
                    for at in size..capacity {
                        for byte in [0, 1, 0x41, 0x7f, 0xff, block.add(at).read() ^ 1] {
                            let old = block.add(at).replace(byte);
                            let broken = open(SECRET, block, capacity);
                            assert!(byte == old || broken.is_err(), "{byte} at {at} of {size}");
                            block.add(at).write(old);
                        }
                    }
                    assert_eq!(open(SECRET, block, capacity), Ok(size));
                }
            }
        }
    }

    #[test]
    fn every_byte_that_is_not_zero_is_found() {
        let mut memory = Block([0; 512]);
        for at in 0..512 {
            let block = memory.0.as_mut_ptr();
            // SAFETY: `memory` has 512 bytes and is aligned to 16.
            unsafe {
                block.add(at).write(1);
                assert_eq!(first_written(block, 512), Some(at));
                assert_eq!(first_written(block, at / 16 * 16), None);
                block.add(at).write(0);
            }
        }
    }
}
