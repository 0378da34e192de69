//! Copies and clears blocks for the program by the C library's functions, which know the processor
//! best; and measures strings without them.
//!
//! Never called with a lock held, as another library may have replaced these functions. For the
//! engine's own data, `crates/cabi/src/bytes.rs` defines `memcpy` and others; so these go by names
//! of their own.

use core::ffi::{c_char, c_void};
use core::slice;

unsafe extern "C" {
    // Not in the libc crate.
    fn bzero(start: *mut c_void, bytes: usize);
}

/// Copies `bytes` bytes from one block to another.
///
/// # Safety
/// `bytes` bytes at `from` may be read, and as many at `to` written.
#[inline]
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: the caller guarantees that both ranges are accessible; they may overlap.
    unsafe {
        // Miri does not run the C library's functions.
        if cfg!(miri) {
            from.copy_to(to, bytes);
        } else {
            libc::memmove(to.cast(), from.cast(), bytes);
        }
    }
}

/// The bytes of a C string. Not by the C library, whose function another library may have replaced.
///
/// # Safety
/// The string stays as it is while the result is used.
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
