//! Seals: what stands behind the end of a block, that nobody may write and nobody can guess.
//!
//! The last eight bytes of a small block are the size that was asked for, under a key made of the address and a secret of the process.
//! Before them, from the block's end on, stands a byte that depends on the same: never one of a text, nor 0 or 255. A large block has
//! that byte alone, up to the end of its last page.
//!
//! A seal only tells that something is wrong: whose a block is, and where, nobody reads there.

use crate::platform::random::fold;

/// Bytes at the end of a small block that are its seal's alone.
pub(crate) const SEAL: usize = size_of::<u64>();
/// Where in it the size stands, under the key; in the bits above, what only this size has, and below, the byte behind the end.
const SIZE_SHIFT: u32 = 8;
const SIZE: u64 = 0x1_ffff << SIZE_SHIFT;
const BYTE: u64 = 0xff;
/// The byte behind the end: one of 64.
const BYTE_BITS: u64 = 0x7e;
const BYTE_LEAST: u64 = 0x80;

/// What seals are made with.
#[derive(Clone, Copy)]
pub(crate) struct Secret(pub u64, pub u64);

impl Secret {
    pub const NONE: Self = Self(0, 0);

    /// What blocks at this address are sealed with.
    #[inline]
    fn key(self, block: *mut u8) -> u64 {
        let key = fold(block.addr() as u64 ^ self.0, self.1 | 1);
        key & !BYTE | key & BYTE_BITS | BYTE_LEAST
    }
}

/// The seal of a block of this size, by its key.
#[inline]
fn sealed(key: u64, size: usize) -> u64 {
    let size = (size as u64) << SIZE_SHIFT;
    let own = fold(key ^ size.rotate_left(32), key | 1);
    own & !(SIZE | BYTE) | (key ^ size) & SIZE | key & BYTE
}

/// Where a seal was broken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Broken {
    /// This byte, behind the end of so many.
    Byte(usize, usize),
    /// The size itself.
    Size,
}

/// Seals a block of `size` bytes that has room for `room`.
///
/// # Safety
/// The block is the caller's, and `size` is at most `room - SEAL`; `room` is a multiple of 16.
#[inline]
pub(crate) unsafe fn seal(secret: Secret, block: *mut u8, size: usize, room: usize) {
    let key = secret.key(block);
    // SAFETY: the caller's.
    unsafe {
        block.add(size).write_bytes(key as u8, room - SEAL - size);
        block.add(room - SEAL).cast::<u64>().write(sealed(key, size));
    }
}

/// The size of a block by its seal, the bytes before which are not looked at.
///
/// # Safety
/// The block has room for `room` bytes, a multiple of 16.
#[inline]
pub(crate) unsafe fn sealed_size(secret: Secret, block: *mut u8, room: usize) -> Option<usize> {
    // SAFETY: the caller's.
    let found = unsafe { block.add(room - SEAL).cast::<u64>().read() };
    let key = secret.key(block);
    let size = (((found ^ key) & SIZE) >> SIZE_SHIFT) as usize;
    (size <= room - SEAL && found == sealed(key, size)).then_some(size)
}

/// The size of a block, if its seal is whole.
///
/// # Safety
/// As for [`sealed_size`].
#[inline]
pub(crate) unsafe fn open(secret: Secret, block: *mut u8, room: usize) -> Result<usize, Broken> {
    // SAFETY: the caller's.
    unsafe {
        let size = sealed_size(secret, block, room).ok_or(Broken::Size)?;
        check_fill(secret, block, size, room - SEAL).map(|()| size)
    }
}

/// Fills from `size` to `end`.
///
/// # Safety
/// The block is the caller's, and has so many bytes.
pub(crate) unsafe fn fill(secret: Secret, block: *mut u8, size: usize, end: usize) {
    // SAFETY: the caller's.
    unsafe { block.add(size).write_bytes(secret.key(block) as u8, end - size) }
}

/// Whether that still stands there.
///
/// # Safety
/// The block has `end` bytes.
#[inline]
pub(crate) unsafe fn check_fill(
    secret: Secret,
    block: *mut u8,
    size: usize,
    end: usize,
) -> Result<(), Broken> {
    let byte = secret.key(block) as u8;
    // SAFETY: the caller's.
    let behind = unsafe { core::slice::from_raw_parts(block.add(size), end - size) };
    match behind.iter().position(|&found| found != byte) {
        None => Ok(()),
        Some(at) => Err(Broken::Byte(size + at, size)),
    }
}

/// The first byte of so many, a multiple of 16, that is not zero.
///
/// # Safety
/// The block, which begins at a multiple of 16, has as many.
#[inline]
pub(crate) unsafe fn first_written(block: *mut u8, bytes: usize) -> Option<usize> {
    // SAFETY: the caller's.
    let words = unsafe { core::slice::from_raw_parts(block.cast::<[u64; 2]>(), bytes / 16) };
    // By pieces, which compilers turn into vector code.
    let is_zero = |words: &[[u64; 2]]| words.iter().fold(0, |all, [a, b]| all | a | b) == 0;
    let piece = words.chunks(16).position(|piece| !is_zero(piece))? * 16;
    // SAFETY: as above.
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
        for room in [32, 48, 512] {
            for size in [0, 1, 7, 8, 23, 24, 32, 39, 40, 300, 504] {
                if size > room - SEAL {
                    continue;
                }
                let mut memory = Block([0; 512]);
                let block = memory.0.as_mut_ptr();
                // SAFETY: as long as said.
                unsafe {
                    seal(SECRET, block, size, room);
                    assert_eq!(open(SECRET, block, room), Ok(size));
                    for at in size..room {
                        for byte in [0, 1, 0x41, 0x7f, 0xff, block.add(at).read() ^ 1] {
                            let old = block.add(at).replace(byte);
                            let broken = open(SECRET, block, room);
                            assert!(byte == old || broken.is_err(), "{byte} at {at} of {size}");
                            block.add(at).write(old);
                        }
                    }
                    assert_eq!(open(SECRET, block, room), Ok(size));
                }
            }
        }
    }

    #[test]
    fn every_byte_that_is_not_zero_is_found() {
        let mut memory = Block([0; 512]);
        for at in 0..512 {
            let block = memory.0.as_mut_ptr();
            // SAFETY: as long as said.
            unsafe {
                block.add(at).write(1);
                assert_eq!(first_written(block, 512), Some(at));
                assert_eq!(first_written(block, at / 16 * 16), None);
                block.add(at).write(0);
            }
        }
    }
}
