//! Ends the process by a signal, or with an exit code.

use core::ffi::c_int;

/// Ends the process by SIGABRT.
pub(super) fn abort() -> ! {
    // SAFETY: the process is meant to end.
    unsafe { libc::abort() }
}

/// Ends the process with an exit code.
pub(super) fn exit(code: c_int) -> ! {
    // SAFETY: the process is meant to end.
    unsafe { libc::_exit(code) }
}

/// Sends a signal to the calling thread.
pub(super) fn raise(signal: c_int) {
    // SAFETY: the caller wants the effect of the signal.
    unsafe { libc::raise(signal) };
}

/// Resets a signal to its default action.
pub(super) fn reset(signal: c_int) {
    // SAFETY: the default action needs no function.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}
