//! Copies and clears blocks for the program by the C library's functions, which know the processor
//! best; and measures strings without them.
//!
//! Never called with a lock held, as another library may have replaced these functions. For the
//! engine's own data, `crates/cabi/src/bytes.rs` defines `memcpy` and others; so these go by names
//! of their own.

#[cfg(unix)]
use core::ffi::c_char;
#[cfg(unix)]
use core::slice;

use super::c_functions::{bzero, memmove};
use crate::platform::tuning::SPARSE_COPY_BYTES_MIN;

/// The part that a sparse copy looks at: the smallest OS page.
const PART_BYTES: usize = 4096;

/// Copies `bytes` bytes from one block to another. Pages that were never touched stay so.
///
/// # Safety
/// `bytes` bytes at `from` may be read, and as many at `to` read and written. They do not overlap.
#[inline]
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: the caller guarantees the same.
    unsafe {
        match bytes < SPARSE_COPY_BYTES_MIN || cfg!(miri) {
            true => copy_all(from, to, bytes),
            false => copy_sparse(from, to, bytes),
        }
    }
}

/// # Safety
/// As for [`copy`].
unsafe fn copy_all(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: the caller guarantees that both ranges are accessible.
    unsafe {
        // Miri does not run the C library's functions.
        if cfg!(miri) {
            from.copy_to(to, bytes);
        } else {
            memmove(to.cast(), from.cast(), bytes);
        }
    }
}

/// Copies page by page of the second block, except where both hold zeros: a write would make the
/// page resident, and a read does not.
///
/// # Safety
/// As for [`copy`].
#[inline(never)]
unsafe fn copy_sparse(from: *const u8, to: *mut u8, bytes: usize) {
    let mut at = 0;
    while at < bytes {
        let part = (PART_BYTES - (to.addr() + at) % PART_BYTES).min(bytes - at);
        // SAFETY: the part lies in both blocks, which the caller guarantees are accessible.
        unsafe {
            let (from, to) = (from.add(at), to.add(at));
            if has_data(from, part) || has_data(to, part) {
                copy_all(from, to, part);
            }
        }
        at += part;
    }
}

/// Whether any of these bytes is not zero.
///
/// # Safety
/// `bytes` bytes at `start` may be read.
pub(crate) unsafe fn has_data(start: *const u8, bytes: usize) -> bool {
    /// Compilers look at many words of a part at once.
    const WORDS: usize = 32;
    const BYTES: usize = WORDS * size_of::<u64>();
    let parts = bytes / BYTES;
    // SAFETY: the parts and bytes lie in the range that the caller guarantees.
    unsafe {
        let part = |nth| start.cast::<[u64; WORDS]>().add(nth).read_unaligned();
        (0..parts).any(|nth| part(nth).into_iter().fold(0, |all, word| all | word) != 0)
            || (parts * BYTES..bytes).any(|nth| start.add(nth).read() != 0)
    }
}

/// The bytes of a C string. Not by the C library, whose function another library may have replaced.
///
/// # Safety
/// The string stays as it is while the result is used.
#[cfg(unix)]
pub(crate) unsafe fn string<'a>(start: *const c_char) -> &'a [u8] {
    let start = start.cast::<u8>();
    // SAFETY: the string ends at its zero byte. Volatile, as compilers make strlen of such loops.
    unsafe {
        let length = (0..).find(|&nth| start.add(nth).read_volatile() == 0).unwrap_or(0);
        slice::from_raw_parts(start, length)
    }
}

/// Fills `bytes` bytes of a block with zeros.
///
/// # Safety
/// `bytes` bytes at `start` may be written.
#[inline]
pub(crate) unsafe fn clear(start: *mut u8, bytes: usize) {
    // SAFETY: the caller guarantees that the range may be written.
    unsafe {
        if cfg!(miri) {
            start.write_bytes(0, bytes);
        } else {
            bzero(start.cast(), bytes);
        }
    }
}

/// As [`clear`], page by page, except where a page holds zeros: a write would make it resident, and
/// on Linux a read does not.
///
/// # Safety
/// `bytes` bytes at `start` may be read and written.
#[inline(never)]
pub(crate) unsafe fn clear_sparse(start: *mut u8, bytes: usize) {
    let mut at = 0;
    while at < bytes {
        let part = (PART_BYTES - (start.addr() + at) % PART_BYTES).min(bytes - at);
        // SAFETY: the part lies in the range that the caller guarantees.
        unsafe {
            let start = start.add(at);
            if has_data(start, part) {
                clear(start, part);
            }
        }
        at += part;
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    #[test]
    fn all_data_are_cleared_wherever_they_are() {
        let bytes = 5 * PART_BYTES;
        for at in [0, 1, 63, 64, 4095, 4096, 9000, bytes - 1] {
            for start in [0, 1, 100, 4096] {
                let mut block = std::vec![0; bytes + 1];
                (block[at], block[bytes]) = (1, 1);
                // SAFETY: the rest of the vector.
                unsafe { clear_sparse(block.as_mut_ptr().add(start), bytes - start) };
                assert_eq!(block[at], (at < start) as u8);
                assert_eq!(block[bytes], 1);
            }
        }
    }

    /// Copies between blocks at these offsets from a page, and compares all bytes.
    #[test]
    fn all_bytes_are_copied_whatever_was_there() {
        let pages = 20;
        for (from_offset, to_offset) in [(0, 0), (16, 0), (0, 16), (48, 4080), (5, 11)] {
            for pattern in 0..8_usize {
                let fill = |of: usize| -> Vec<u8> {
                    let byte = |nth: usize| match (nth / PART_BYTES + of) * pattern % 3 {
                        0 => 0,
                        1 => (nth % PART_BYTES == PART_BYTES - 1) as u8,
                        _ => nth as u8,
                    };
                    (0..(pages + 2) * PART_BYTES).map(byte).collect()
                };
                let (from, mut to) = (fill(1), fill(2));
                let mut expected = to.clone();
                for bytes in [SPARSE_COPY_BYTES_MIN, SPARSE_COPY_BYTES_MIN + 7, pages * PART_BYTES]
                {
                    expected[to_offset..to_offset + bytes]
                        .copy_from_slice(&from[from_offset..from_offset + bytes]);
                    // SAFETY: both vectors are that long, and distinct.
                    unsafe {
                        copy(from[from_offset..].as_ptr(), to[to_offset..].as_mut_ptr(), bytes);
                    }
                    assert!(to == expected, "{from_offset} {to_offset} {pattern} {bytes}");
                }
            }
        }
    }

    #[test]
    fn each_byte_is_data() {
        let mut bytes = [0_u8; 100];
        for nth in 0..100 {
            bytes[nth] = 1;
            // SAFETY: the vector is that long.
            assert!(unsafe { has_data(bytes.as_ptr(), 100) });
            assert!(!unsafe { has_data(bytes[nth + 1..].as_ptr(), 99 - nth) });
            bytes[nth] = 0;
        }
    }
}
