//! Ends the process by a signal.

use core::ffi::c_int;

use crate::platform::kernel::syscall::call;

/// Words of the kernel's `struct sigaction`.
const ACTION_WORDS: usize = 4;
/// Bytes of the kernel's type for a set of signals.
const SET_BYTES: usize = 8;

/// Ends the process by SIGABRT as abort(3) does, even if the program blocks, handles or ignores it.
pub(super) fn abort() -> ! {
    let none = core::ptr::null_mut::<u64>();
    let only = 1_u64 << (libc::SIGABRT - 1);
    // SAFETY: the kernel reads a set of signals. The process is meant to end.
    unsafe {
        let change = libc::SIG_UNBLOCK;
        let _ = call!(libc::SYS_rt_sigprocmask, change, &raw const only, none, SET_BYTES);
        raise(libc::SIGABRT);
        // The signal had a handler, which returned, or was ignored.
        reset(libc::SIGABRT);
        let _ = call!(libc::SYS_rt_sigprocmask, change, &raw const only, none, SET_BYTES);
        raise(libc::SIGABRT);
        loop {
            let _ = call!(libc::SYS_exit_group, 127);
        }
    }
}

/// Sends a signal to the calling thread: raise(3).
pub(super) fn raise(signal: c_int) {
    // SAFETY: the calls touch no memory. The caller wants the effect of the signal.
    unsafe {
        let (Ok(process), Ok(thread)) = (call!(libc::SYS_getpid), call!(libc::SYS_gettid)) else {
            return;
        };
        let _ = call!(libc::SYS_tgkill, process as c_int, thread as c_int, signal);
    }
}

/// Resets a signal to its default action: sigaction(2) with SIG_DFL.
pub(super) fn reset(signal: c_int) {
    let (default, none) = ([0_usize; ACTION_WORDS], core::ptr::null_mut::<usize>());
    // SAFETY: the kernel reads at most `ACTION_WORDS` words of the action.
    let _ = unsafe { call!(libc::SYS_rt_sigaction, signal, default.as_ptr(), none, SET_BYTES) };
}
