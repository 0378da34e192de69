//! Sleeps and wakes on a word, by WaitOnAddress.

use core::sync::atomic::AtomicU32;

use super::windows::{
    INFINITE, RtlDllShutdownInProgress, THIS_PROCESS, TerminateProcess, WaitOnAddress,
    WakeByAddressSingle, keeping_error,
};

/// Sleeps while `word` holds `expected`, for `ms` milliseconds if they are given; may return early.
///
/// As a process exits, Windows ends all its threads but one, wherever they are. What one of them
/// has locked stays so. So a wait without a time ends the process then, as waits for locks of
/// Windows' own do, and with the same exit code.
#[cold]
pub(crate) fn futex_wait(word: &AtomicU32, expected: u32, ms: Option<u32>) {
    const STATUS_THREAD_IS_TERMINATING: u32 = 0xc000_004b;
    keeping_error(|| {
        // SAFETY: both words outlive the call, and have its size.
        unsafe {
            if ms.is_none() && RtlDllShutdownInProgress() != 0 {
                TerminateProcess(THIS_PROCESS, STATUS_THREAD_IS_TERMINATING);
            }
            let (size, ms) = (size_of::<u32>(), ms.unwrap_or(INFINITE));
            WaitOnAddress(word.as_ptr().cast(), (&raw const expected).cast(), size, ms);
        }
    });
}

/// Wakes one thread that sleeps on `word`.
#[cold]
#[inline(never)]
pub(crate) fn futex_wake(word: &AtomicU32) {
    // SAFETY: waking accesses no memory.
    keeping_error(|| unsafe { WakeByAddressSingle(word.as_ptr().cast()) });
}

/// Tells the processor that this is a waiting loop.
pub(crate) fn spin_hint() {
    core::hint::spin_loop();
}
