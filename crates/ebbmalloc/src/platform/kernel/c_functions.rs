//! Names the functions of the C library that copy and clear.

use core::ffi::c_void;

pub(super) use libc::memmove;

unsafe extern "C" {
    // Not in the libc crate.
    pub(super) fn bzero(start: *mut c_void, bytes: usize);
}
