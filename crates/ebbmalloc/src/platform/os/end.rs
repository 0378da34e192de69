//! Ends the process by a signal, or with an exit code.

use core::ffi::c_int;

use crate::platform::kernel::syscall::{SIGNAL_SET_BYTES, call, change_mask};

/// Words of the kernel's `struct sigaction`.
const ACTION_WORDS: usize = 4;

/// Ends the process by SIGABRT as abort(3) does, even if the program blocks, handles or ignores it.
pub(super) fn abort() -> ! {
    let only = 1 << (libc::SIGABRT - 1);
    change_mask(libc::SIG_UNBLOCK, only);
    raise(libc::SIGABRT);
    // The signal had a handler, which returned, or was ignored.
    reset(libc::SIGABRT);
    change_mask(libc::SIG_UNBLOCK, only);
    raise(libc::SIGABRT);
    exit(127)
}

/// Ends the process as _exit(2) does.
pub(super) fn exit(code: c_int) -> ! {
    loop {
        // SAFETY: the process is meant to end.
        let _ = unsafe { call!(libc::SYS_exit_group, code) };
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

/// Runs `work` while the calling thread blocks all signals but those kept. Of these, it blocks what
/// it did before.
pub(super) fn without_signals<R>(
    kept: impl IntoIterator<Item = c_int>,
    work: impl FnOnce() -> R,
) -> R {
    // Signal n is bit n - 1.
    let kept: u64 = kept.into_iter().fold(0, |set, signal| set | 1 << (signal - 1));
    let before = change_mask(libc::SIG_BLOCK, !kept);
    let result = work();
    change_mask(libc::SIG_SETMASK, before);
    result
}

/// Resets a signal to its default action: sigaction(2) with SIG_DFL.
pub(super) fn reset(signal: c_int) {
    let (default, none) = ([0_usize; ACTION_WORDS], core::ptr::null_mut::<usize>());
    // SAFETY: the kernel reads at most `ACTION_WORDS` words of the action.
    let _ =
        unsafe { call!(libc::SYS_rt_sigaction, signal, default.as_ptr(), none, SIGNAL_SET_BYTES) };
}
