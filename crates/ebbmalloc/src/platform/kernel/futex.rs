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
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    let time =
        |ms| libc::timespec { tv_sec: i64::from(ms / 1000), tv_nsec: i64::from(ms % 1000) * MS_NS };
    let time = ms.map(time);
    let timeout = time.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: the word and the time outlive the call. A null timeout waits without limit.
    let _ = unsafe { call!(libc::SYS_futex, word.as_ptr(), operation, expected, timeout) };
}

/// Sleeps for `ms` milliseconds, also if signals interrupt the sleep. By futex(2), which a filter
/// of system calls allows wherever threads may wait.
#[cold]
pub(crate) fn sleep_ms(ms: u32) {
    const SECOND_NS: i64 = 1_000_000_000;
    let word = AtomicU32::new(0);
    // FUTEX_WAIT_BITSET takes an absolute time, of CLOCK_MONOTONIC.
    let operation = libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG;
    let mut until = clock::time(libc::CLOCK_MONOTONIC);
    let ns = until.tv_nsec + i64::from(ms) * MS_NS;
    until.tv_sec += ns / SECOND_NS;
    until.tv_nsec = ns % SECOND_NS;
    // SAFETY: the word and the time outlive the call.
    let sleep = || unsafe {
        let (until, any, none) = (&raw const until, u32::MAX, 0_usize);
        call!(libc::SYS_futex, word.as_ptr(), operation, 0, until, none, any)
    };
    while sleep() == Err(libc::EINTR) {}
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
