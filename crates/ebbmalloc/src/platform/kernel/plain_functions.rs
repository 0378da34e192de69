//! The functions that copy and clear, by Rust's own.

use core::ffi::c_void;

/// # Safety
/// `bytes` bytes at `from` may be read, and as many at `to` written.
pub(super) unsafe fn memmove(to: *mut c_void, from: *const c_void, bytes: usize) {
    // SAFETY: the caller guarantees the same.
    unsafe { to.cast::<u8>().copy_from(from.cast(), bytes) }
}

/// # Safety
/// `bytes` bytes at `start` may be written.
pub(super) unsafe fn bzero(start: *mut c_void, bytes: usize) {
    // SAFETY: the caller guarantees the same.
    unsafe { start.cast::<u8>().write_bytes(0, bytes) }
}
