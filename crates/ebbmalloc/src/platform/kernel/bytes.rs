//! Copying and clearing what programs ask for, by the C library, which knows the processor best; never with a lock
//! held. By names that nothing else here uses: `crates/cabi/src/bytes.rs` has others for the engine itself.

use core::ffi::c_void;

unsafe extern "C" {
    // The libc crate does not have it.
    fn bzero(start: *mut c_void, bytes: usize);
}

/// Copies from one block to another.
///
/// # Safety
/// The first may be read and the second written, so far.
#[inline]
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: the caller's.
    unsafe {
        // Miri has no such functions.
        if cfg!(miri) {
            from.copy_to(to, bytes);
        } else {
            libc::memmove(to.cast(), from.cast(), bytes);
        }
    }
}

/// Fills a block with zeros.
///
/// # Safety
/// It may be written, so far.
#[inline]
pub(crate) unsafe fn clear(start: *mut u8, bytes: usize) {
    // SAFETY: the caller's.
    unsafe {
        if cfg!(miri) {
            start.write_bytes(0, bytes);
        } else {
            bzero(start.cast(), bytes);
        }
    }
}
