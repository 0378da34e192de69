//! The parts of `mod.rs`'s list that POSIX systems need, by their own library, or none.

use core::ffi::c_void;

/// The number of the calling thread (pthread_self(3)).
#[inline]
pub(crate) fn thread_pointer() -> usize {
    // SAFETY: the call has no conditions.
    unsafe { libc::pthread_self() as usize }
}

/// # Safety
/// Any context will do.
pub(crate) unsafe fn instruction(_: *const c_void) -> usize {
    0
}

/// Calls `function` with these arguments, on the same stack.
///
/// # Safety
/// The call has no conditions.
pub(crate) unsafe fn call_on(
    _top: *mut u8,
    function: extern "C" fn(usize, usize),
    first: usize,
    second: usize,
) {
    function(first, second);
}
