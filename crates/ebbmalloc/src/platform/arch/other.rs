//! The parts for other processors that `mod.rs` lists, and for Miri and loom: by the C library, or
//! none.

use core::ffi::{c_int, c_void};

use crate::platform::errno::keeping_errno;

pub(crate) const IS_KNOWN: bool = false;

pub(crate) fn thread_pointer() -> usize {
    // SAFETY: pthread_self(3) has no conditions.
    unsafe { libc::pthread_self() as usize }
}

macro_rules! weak {
    ($name:literal) => {
        core::ptr::null::<u8>()
    };
}
pub(crate) use weak;

macro_rules! thread_variable {
    ($symbol:expr) => {{
        let _ = $symbol;
        core::ptr::null_mut::<u8>()
    }};
}
pub(crate) use thread_variable;

macro_rules! call {
    ($number:expr $(, $argument:expr)* $(,)?) => {
        $crate::platform::arch::by_libc(|| libc::syscall($number $(, $argument)*))
    };
}
pub(crate) use call;

/// Runs `call`, whose result of -1 means the error in `errno`. Restores `errno`.
pub(crate) fn by_libc(call: impl FnOnce() -> libc::c_long) -> Result<usize, c_int> {
    keeping_errno(|| match call() {
        // SAFETY: the address of this thread's `errno` is valid while the thread lives.
        -1 => Err(unsafe { *libc::__errno_location() }),
        result => Ok(result as usize),
    })
}

pub(crate) fn name_loader() {}

include!("without_context.rs");
