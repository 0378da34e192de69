//! Sleeping and waking on a word, and asking the kernel what it reads there: futex(2).

use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::AtomicU32;

use super::clock;
use super::syscall::call;

/// Sleeps while `word` holds `expected`; may return early.
#[cold]
pub(crate) fn futex_wait(word: &AtomicU32, expected: u32) {
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    let no_timeout = ptr::null::<libc::timespec>();
    // SAFETY: the word outlives the call; a null timeout waits without limit.
    let _ = unsafe { call!(libc::SYS_futex, word.as_ptr(), operation, expected, no_timeout) };
}

/// Sleeps for `ms` milliseconds, also if signals interrupt the sleep. Uses futex(2), which filters
/// of system calls allow where threads may wait.
#[cold]
pub(crate) fn sleep_ms(ms: u32) {
    const SECOND_NS: i64 = 1_000_000_000;
    let word = AtomicU32::new(0);
    // Until a time of this clock.
    let operation = libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG;
    let mut until = clock::time(libc::CLOCK_MONOTONIC);
    let ns = until.tv_nsec as i64 + ms as i64 * 1_000_000;
    until.tv_sec += (ns / SECOND_NS) as libc::time_t;
    until.tv_nsec = (ns % SECOND_NS) as _;
    // SAFETY: the word and the time outlive the call.
    let sleep = || unsafe {
        let (until, any, none) = (&raw const until, u32::MAX, 0_usize);
        call!(libc::SYS_futex, word.as_ptr(), operation, 0, until, none, any)
    };
    while sleep() == Err(libc::EINTR) {}
}

/// What the kernel says of this word, which it reads: whether it holds `value`, or else an error, EFAULT where
/// it cannot be read. Nobody waits for the word, so nothing happens there.
pub(crate) fn holds(word: *const u32, value: u32) -> Result<bool, c_int> {
    // Where the word has this value, wakes none of those that wait for it, and moves none to another.
    let (operation, none) = (libc::FUTEX_CMP_REQUEUE | libc::FUTEX_PRIVATE_FLAG, 0_usize);
    // SAFETY: nothing is written.
    match unsafe { call!(libc::SYS_futex, word, operation, none, none, word, value) } {
        Err(libc::EAGAIN) => Ok(false),
        Err(error) => Err(error),
        Ok(_) => Ok(true),
    }
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
