//! Sleeping and waking on a word, and asking the kernel what it reads there: futex(2).

use core::ffi::c_int;
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

/// Sleeps for so many milliseconds. By this call, as a filter of system calls that lets threads wait allows it.
#[cold]
pub(super) fn sleep_ms(ms: u32) {
    let word = AtomicU32::new(0);
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    let time = libc::timespec { tv_sec: (ms / 1000) as _, tv_nsec: (ms % 1000 * 1_000_000) as _ };
    // SAFETY: the word and the time outlive the call.
    let _ = unsafe { call!(libc::SYS_futex, word.as_ptr(), operation, 0, &raw const time) };
}

/// What the kernel says of this word, which it reads: whether it holds `value`, or else an error, EFAULT where
/// it cannot be read. Nobody waits for the word, so nothing happens there.
pub(super) fn holds(word: *const u32, value: u32) -> Result<bool, c_int> {
    // Where the word has this value, wakes none of those that wait for it, and moves none to another.
    let (operation, none) = (libc::FUTEX_CMP_REQUEUE | libc::FUTEX_PRIVATE_FLAG, 0_usize);
    // SAFETY: nothing is written.
    match unsafe { call!(libc::SYS_futex, word, operation, none, none, word, value) } {
        Err(libc::EAGAIN) => Ok(false),
        Err(error) => Err(error),
        Ok(_) => Ok(true),
    }
}

/// The kernel's number of the calling thread; 0 if it does not say. As a futex with priority inheritance that is free gets the
/// number of who takes it, by this call too, which is allowed where threads wait.
#[cold]
pub(super) fn number_of_thread() -> u32 {
    let word = AtomicU32::new(0);
    let operation = libc::FUTEX_TRYLOCK_PI | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: nobody else knows the word, so the kernel keeps nothing of it: user space alone gives it back.
    match unsafe { call!(libc::SYS_futex, word.as_ptr(), operation) } {
        Ok(_) => word.into_inner(),
        Err(_) => 0,
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
