//! Sleeps and wakes on a word, and has the kernel compare a word with a value: futex(2).

use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::AtomicU32;

use super::clock;
use super::syscall::call;

/// Nanoseconds in a millisecond.
const MS_NS: i64 = 1_000_000;

/// Sleeps while `word` holds `expected`, for `ms` milliseconds if they are given; may return early.
#[cold]
pub(crate) fn futex_wait(word: &AtomicU32, expected: u32, ms: Option<u32>) {
    let _ = wait(word, expected, ms);
}

/// As [`futex_wait`]. Returns the kernel's answer.
fn wait(word: &AtomicU32, expected: u32, ms: Option<u32>) -> Result<usize, c_int> {
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    let time =
        |ms| libc::timespec { tv_sec: i64::from(ms / 1000), tv_nsec: i64::from(ms % 1000) * MS_NS };
    let time = ms.map(time);
    let timeout = time.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: the word and the time outlive the call. A null timeout waits without limit.
    unsafe { call!(libc::SYS_futex, word.as_ptr(), operation, expected, timeout) }
}

/// Sleeps for `ms` milliseconds, also if signals interrupt the sleep. By futex(2), which a filter
/// of system calls allows wherever threads may wait.
///
/// After a signal, the coarse clock tells how much is left, to a tick: it needs neither the
/// time-stamp counter nor a system call.
#[cold]
pub(crate) fn sleep_ms(ms: u32) {
    let now_ms = || {
        let now = clock::time(libc::CLOCK_MONOTONIC_COARSE);
        now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / MS_NS as u64
    };
    let (word, until_ms) = (AtomicU32::new(0), now_ms() + u64::from(ms));
    let mut left_ms = ms;
    while left_ms > 0 && wait(&word, 0, Some(left_ms)) == Err(libc::EINTR) {
        left_ms = (until_ms.saturating_sub(now_ms()) as u32).min(left_ms);
    }
}

/// Has the kernel read this word: whether it holds `value`, or an error, EFAULT if the word cannot
/// be read. Has no effect, as no thread waits on the word.
pub(crate) fn holds(word: *const u32, value: u32) -> Result<bool, c_int> {
    // If the word has this value, wakes none of its waiters, and moves none to another word.
    let (operation, none) = (libc::FUTEX_CMP_REQUEUE | libc::FUTEX_PRIVATE_FLAG, 0_usize);
    // SAFETY: the kernel only reads the word, and copes with any address.
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
    // SAFETY: waking accesses no memory.
    let _ = unsafe { call!(libc::SYS_futex, word.as_ptr(), operation, 1) };
}

/// Tells the processor that this is a waiting loop.
pub(crate) fn spin_hint() {
    core::hint::spin_loop();
}
