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

/// Runs `work` while the calling thread blocks all signals but those kept. Of these, it blocks what
/// it did before.
pub(super) fn without_signals<R>(
    kept: impl IntoIterator<Item = c_int>,
    work: impl FnOnce() -> R,
) -> R {
    let (mut blocked, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: the calls fill the sets.
    unsafe {
        libc::sigfillset(blocked.as_mut_ptr());
        for signal in kept {
            libc::sigdelset(blocked.as_mut_ptr(), signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, blocked.as_ptr(), before.as_mut_ptr());
        let result = work();
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut());
        result
    }
}

/// Resets a signal to its default action.
pub(super) fn reset(signal: c_int) {
    // SAFETY: the default action needs no function.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}
