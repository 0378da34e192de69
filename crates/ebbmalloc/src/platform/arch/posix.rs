//! The parts of `mod.rs`'s list that POSIX systems need, by their own library, or none.

use core::ffi::c_void;

/// The number of the calling thread (pthread_self(3)).
#[inline]
pub(crate) fn thread_pointer() -> usize {
    // SAFETY: the call has no conditions.
    unsafe { libc::pthread_self() as usize }
}

include!("without_context.rs");
