//! Sleeping and waking on a word: futex(2).

use core::ptr;
use core::sync::atomic::AtomicU32;

use super::syscall::call;

/// Sleeps while `word` holds `expected`; may return early.
#[cold]
pub(crate) fn futex_wait(word: &AtomicU32, expected: u32) {
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    let no_timeout = ptr::null::<libc::timespec>();
    // SAFETY: the word outlives the call; a null timeout waits without limit.
    let _ = unsafe { call!(libc::SYS_futex, word.as_ptr(), operation, expected, no_timeout) };
}

/// Wakes one thread that sleeps on `word`.
#[cold]
#[inline(never)]
pub(crate) fn futex_wake(word: &AtomicU32) {
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: waking reads nothing through the address.
    let _ = unsafe { call!(libc::SYS_futex, word.as_ptr(), operation, 1) };
}

/// Tells the processor that this is a waiting loop.
pub(crate) fn spin_hint() {
    core::hint::spin_loop();
}
