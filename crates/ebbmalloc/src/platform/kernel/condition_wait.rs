//! Sleeps and wakes on a word, by mutexes and condition variables of POSIX threads.
//!
//! Words share a few of these by their addresses. So a waker wakes all sleepers of a condition, and
//! those whose word it was not sleep on: waiting may end early, and callers look again.

use core::cell::UnsafeCell;
use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering};

use super::cancellation::without_cancellation;
use crate::platform::errno::keeping_errno;

/// Sleepers on words whose addresses fall together.
struct Bed {
    mutex: UnsafeCell<libc::pthread_mutex_t>,
    condition: UnsafeCell<libc::pthread_cond_t>,
}

// SAFETY: threads may use mutexes and condition variables at the same time.
unsafe impl Sync for Bed {}

impl Bed {
    const fn new() -> Self {
        Self {
            mutex: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER),
            condition: UnsafeCell::new(libc::PTHREAD_COND_INITIALIZER),
        }
    }

    /// Runs `work` with the mutex locked.
    fn locked(&self, work: impl FnOnce()) {
        // SAFETY: the mutex was initialised statically, and is never destroyed.
        let locked = || unsafe {
            libc::pthread_mutex_lock(self.mutex.get());
            work();
            libc::pthread_mutex_unlock(self.mutex.get());
        };
        keeping_errno(|| without_cancellation(locked));
    }
}

const BEDS: usize = 64;
static ALL: [Bed; BEDS] = [const { Bed::new() }; BEDS];

fn bed(word: &AtomicU32) -> &'static Bed {
    // Words of one cache line are of one lock.
    const LINE: usize = 64;
    &ALL[ptr::from_ref(word).addr() / LINE % BEDS]
}

/// Sleeps while `word` holds `expected`, for `ms` milliseconds if they are given; may return early.
///
/// The thread that changes the word wakes afterwards, with the mutex locked. So this sees the
/// change, or sleeps already.
#[cold]
pub(crate) fn futex_wait(word: &AtomicU32, expected: u32, ms: Option<u32>) {
    let bed = bed(word);
    bed.locked(|| {
        if word.load(Ordering::Relaxed) != expected {
            return;
        }
        let (condition, mutex) = (bed.condition.get(), bed.mutex.get());
        // SAFETY: both were initialised statically; this thread has locked the mutex.
        unsafe {
            match ms {
                Some(ms) => libc::pthread_cond_timedwait(condition, mutex, &in_ms(ms)),
                None => libc::pthread_cond_wait(condition, mutex),
            };
        }
    });
}

/// The time in `ms` milliseconds, at most a second, by the usual clock of condition variables. It
/// may be set back meanwhile.
fn in_ms(ms: u32) -> libc::timespec {
    let ms = ms.min(1000);
    const SECOND_NS: i64 = 1_000_000_000;
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call fills the struct.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &mut now) };
    let ns = now.tv_nsec + i64::from(ms % 1000) * 1_000_000;
    now.tv_sec += i64::from(ms / 1000) + ns / SECOND_NS;
    now.tv_nsec = ns % SECOND_NS;
    now
}

/// Wakes the thread that sleeps on `word`, and perhaps others.
#[cold]
#[inline(never)]
pub(crate) fn futex_wake(word: &AtomicU32) {
    let bed = bed(word);
    bed.locked(|| {
        // SAFETY: the condition was initialised statically, and is never destroyed.
        unsafe { libc::pthread_cond_broadcast(bed.condition.get()) };
    });
}

/// Makes all as new in the child of a fork: another thread of the parent may have held a mutex.
pub(crate) extern "C" fn reset_after_fork() {
    for bed in &ALL {
        // SAFETY: the child has one thread, which waits for nothing.
        unsafe {
            bed.mutex.get().write(libc::PTHREAD_MUTEX_INITIALIZER);
            bed.condition.get().write(libc::PTHREAD_COND_INITIALIZER);
        }
    }
}

/// Tells the processor that this is a waiting loop.
pub(crate) fn spin_hint() {
    core::hint::spin_loop();
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::{Duration, Instant};
    use std::vec::Vec;

    use super::*;

    #[test]
    fn sleepers_are_woken_and_do_not_oversleep() {
        static WORDS: [AtomicU32; 2] = [AtomicU32::new(0), AtomicU32::new(0)];
        let wait = |word: &AtomicU32| {
            while word.load(Ordering::Acquire) == 0 {
                futex_wait(word, 0, None);
            }
        };
        let sleepers: Vec<_> =
            (0..4).map(|nth| thread::spawn(move || wait(&WORDS[nth % 2]))).collect();
        for word in &WORDS {
            word.store(1, Ordering::Release);
            futex_wake(word);
        }
        sleepers.into_iter().for_each(|sleeper| sleeper.join().unwrap());
        let begun = Instant::now();
        futex_wait(&WORDS[0], 0, None);
        while begun.elapsed() < Duration::from_millis(20) {
            futex_wait(&WORDS[0], 1, Some(5));
        }
    }
}
