//! Defines the heap profiles of `ebbmalloc.h` for C programs.

use core::ffi::{CStr, c_char, c_int};

use engine::internals::{ENGINE, PROFILE_MEAN_BYTES};

use crate::set_errno;

/// Switches the heap profile on: a block is sampled each `mean_bytes` bytes on average, 0 for 512
/// KiB. Returns 0, or -1 and sets ENOMEM.
#[unsafe(no_mangle)]
pub extern "C" fn ebb_profile_start(mean_bytes: usize) -> c_int {
    let mean_bytes = if mean_bytes == 0 { PROFILE_MEAN_BYTES } else { mean_bytes as u64 };
    if ENGINE.start_profile(mean_bytes) {
        return 0;
    }
    set_errno(libc::ENOMEM);
    -1
}

/// Switches the heap profile off. It can still be written.
#[unsafe(no_mangle)]
pub extern "C" fn ebb_profile_stop() {
    ENGINE.stop_profile();
}

/// Writes the heap profile to a file. Returns 0, or -1 and sets EIO, or EINVAL for a null path or
/// if there never was a profile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebb_profile_write(path: *const c_char) -> c_int {
    if path.is_null() || ENGINE.profile_header().is_none() {
        set_errno(libc::EINVAL);
        return -1;
    }
    // SAFETY: the caller passes a C string.
    if ENGINE.write_profile(unsafe { CStr::from_ptr(path) }) {
        return 0;
    }
    set_errno(libc::EIO);
    -1
}
