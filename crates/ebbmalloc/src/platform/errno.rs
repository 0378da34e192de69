//! Keeps `errno`, which belongs to the program, and tells the kernel's errors from results.

use core::ffi::c_int;

#[cfg(target_os = "android")]
pub(crate) use libc::__errno as errno;
#[cfg(target_os = "linux")]
pub(crate) use libc::__errno_location as errno;
#[cfg(any(target_os = "macos", target_os = "freebsd"))]
pub(crate) use libc::__error as errno;

/// Runs `call` and restores `errno`: the program must not see the engine's own calls fail.
pub(crate) fn keeping_errno<R>(call: impl FnOnce() -> R) -> R {
    // SAFETY: the address of this thread's `errno` is valid while the thread lives.
    unsafe {
        let errno = errno();
        let saved = *errno;
        let result = call();
        *errno = saved;
        result
    }
}

/// Splits a system call's result: the highest 4,095 numbers are errors, negated.
#[allow(dead_code, reason = "not used where the C library tells errors apart")]
#[inline]
pub(crate) fn outcome(result: usize) -> Result<usize, c_int> {
    match result as isize {
        error @ -4095..=-1 => Err(-error as c_int),
        _ => Ok(result),
    }
}
