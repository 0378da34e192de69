//! Keeps `errno`, which belongs to the program.

/// Runs `call` and restores `errno`: the program must not see the engine's own calls fail.
pub(crate) fn keeping_errno<R>(call: impl FnOnce() -> R) -> R {
    // SAFETY: the address of this thread's `errno` is valid while the thread lives.
    unsafe {
        let errno = libc::__errno_location();
        let saved = *errno;
        let result = call();
        *errno = saved;
        result
    }
}
