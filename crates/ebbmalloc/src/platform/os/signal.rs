//! Calls a function on a signal that a user sends.

use core::ffi::{c_int, c_void};
use core::{mem, ptr};

use crate::platform::errno::keeping_errno;
use crate::platform::sync::{AtomicPtr, Ordering};

/// Signals that an instruction raises in its own thread, which alone can take them. SIGABRT need
/// not be among them, as abort(3) unblocks it.
pub(super) const OWN_SIGNALS: [c_int; 6] =
    [libc::SIGSYS, libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP];

/// The function; null before there is one.
static CALL: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Calls `call` in a handler of this signal, in place of its present action. The program may
/// replace the handler.
pub(super) fn watch(signal: c_int, call: extern "C" fn()) {
    CALL.store((call as *const c_void).cast_mut(), Ordering::Release);
    // SAFETY: all-zero bytes are a valid action, with an empty mask. The handler is never unloaded.
    keeping_errno(|| unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        action.sa_sigaction = on_signal as *const c_void as usize;
        action.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
        libc::sigaction(signal, &action, ptr::null_mut());
    });
}

extern "C" fn on_signal(_signal: c_int) {
    let call = CALL.load(Ordering::Acquire);
    // SAFETY: `watch` stored a function of this type before it installed the handler.
    unsafe { mem::transmute::<*mut c_void, extern "C" fn()>(call)() }
}
