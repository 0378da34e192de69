//! Ends the process by a signal, or with an exit code.

use core::ffi::c_int;
use core::mem::MaybeUninit;
use core::ptr;

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

/// Runs `work` while the calling thread takes no signal.
pub(super) fn without_signals(work: impl FnOnce()) {
    let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: the calls fill the sets.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr());
        work();
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut());
    }
}

/// Resets a signal to its default action.
pub(super) fn reset(signal: c_int) {
    // SAFETY: the default action needs no function.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}
