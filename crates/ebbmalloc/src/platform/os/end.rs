//! Ending the process by a signal.

use core::ffi::c_int;

use crate::platform::kernel::syscall::call;

/// Words of the kernel's `struct sigaction`; and bytes of its set of signals.
const ACTION: usize = 4;
const SET_BYTES: usize = 8;

/// As abort(3): SIGABRT, whatever the program does about it.
pub(super) fn abort() -> ! {
    let none = core::ptr::null_mut::<u64>();
    let only = 1_u64 << (libc::SIGABRT - 1);
    // SAFETY: reads a set of signals; what happens to the program is wanted.
    unsafe {
        let change = libc::SIG_UNBLOCK;
        let _ = call!(libc::SYS_rt_sigprocmask, change, &raw const only, none, SET_BYTES);
        raise(libc::SIGABRT);
        // It had a handler, which returned, or was ignored.
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
    // SAFETY: these ask for numbers; what the signal does is wanted.
    unsafe {
        let (Ok(process), Ok(thread)) = (call!(libc::SYS_getpid), call!(libc::SYS_gettid)) else {
            return;
        };
        let _ = call!(libc::SYS_tgkill, process as c_int, thread as c_int, signal);
    }
}

/// Has a signal do what it does in a program that has asked for nothing: sigaction(2) with SIG_DFL.
pub(super) fn reset(signal: c_int) {
    let (default, none) = ([0_usize; ACTION], core::ptr::null_mut::<usize>());
    // SAFETY: the kernel reads the action, no more words of it than there are.
    let _ = unsafe { call!(libc::SYS_rt_sigaction, signal, default.as_ptr(), none, SET_BYTES) };
}
