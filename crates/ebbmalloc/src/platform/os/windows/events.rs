//! Keeps words of each thread, and is told when threads and the process begin and end.
//!
//! Both by what the compiler would do for a thread variable: a part of the section `.tls`, which
//! each thread gets a copy of, and an entry in the list of callbacks (TLS callbacks of the PE
//! format). Windows calls them for all threads but those that TerminateThread ends, and keeps the
//! copy of these. It frees the others after this callback, which is the last of its file.

use core::ffi::c_void;
use core::mem;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use super::super::thread_words::ThreadWords;
use crate::platform::arch::thread_variable;
use crate::platform::kernel::windows::GetCurrentThreadId;

/// What there is of each thread, all zero in a new one.
#[repr(C)]
pub(super) struct OwnBlock {
    pub words: ThreadWords,
    /// Whether the thread is watched.
    pub is_watched: AtomicBool,
}

/// The symbol of the block. It includes the version: a program may contain several versions of this
/// crate.
macro_rules! symbol {
    () => {
        concat!("__ebbmalloc_thread_", env!("CARGO_PKG_VERSION"))
    };
}

// In the section that compilers use: linkers sort by what follows the `$`, and the C runtime's end
// of all variables is at `.tls$ZZZ`.
core::arch::global_asm!(
    ".section .tls$, \"dw\"",
    concat!(".globl \"", symbol!(), "\""),
    ".balign 16",
    concat!("\"", symbol!(), "\":"),
    ".zero {size}",
    ".text",
    size = const size_of::<OwnBlock>(),
);

/// The calling thread's block.
#[inline(always)]
pub(super) fn own_block() -> *const OwnBlock {
    thread_variable!(concat!("\"", symbol!(), "\"")).cast()
}

/// The function that the end of a watched thread calls.
pub(super) static AT_THREAD_EXIT: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
/// The function that the end of the process calls; null for none.
pub(super) static AT_EXIT: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
/// The number of the first thread: the one that loaded this file. 0 before that.
pub(super) static FIRST: AtomicU32 = AtomicU32::new(0);
/// Whether another thread has begun since.
pub(super) static HAD_THREADS: AtomicBool = AtomicBool::new(false);

/// The last of the file's callbacks: Windows calls them in the order of these sections' names.
/// Those of the C runtime and of `std`, which run destructors, have lower ones.
#[used]
#[unsafe(link_section = ".CRT$XLY")]
static CALLBACK: extern "system" fn(*mut c_void, u32, *mut c_void) = notice;

extern "system" fn notice(_file: *mut c_void, event: u32, _: *mut c_void) {
    const PROCESS_DETACH: u32 = 0;
    const PROCESS_ATTACH: u32 = 1;
    const THREAD_ATTACH: u32 = 2;
    const THREAD_DETACH: u32 = 3;
    match event {
        // SAFETY: the call has no conditions.
        PROCESS_ATTACH => FIRST.store(unsafe { GetCurrentThreadId() }, Ordering::Relaxed),
        THREAD_ATTACH => HAD_THREADS.store(true, Ordering::Relaxed),
        // SAFETY: the block lives until this function returns.
        THREAD_DETACH if unsafe { (*own_block()).is_watched.load(Ordering::Relaxed) } => {
            let exit = AT_THREAD_EXIT.load(Ordering::Relaxed);
            // SAFETY: a function of this type was stored before any thread was watched.
            unsafe { mem::transmute::<*mut c_void, extern "C" fn(bool)>(exit)(true) }
        }
        PROCESS_DETACH => exiting(),
        _ => {}
    }
}

/// Calls the function at [`AT_EXIT`], if that is still to do.
pub(super) extern "C" fn exiting() {
    let exit = AT_EXIT.swap(ptr::null_mut(), Ordering::Relaxed);
    if !exit.is_null() {
        // SAFETY: a function of this type was stored.
        unsafe { mem::transmute::<*mut c_void, extern "C" fn()>(exit)() }
    }
}
