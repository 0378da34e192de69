//! Sleeps and wakes on a word under loom.
//!
//! As with futex(2), a sleeper checks the word and goes to sleep in one step. So a lost wake-up is
//! a deadlock, which loom reports.

use loom::sync::atomic::{AtomicU32, Ordering};
use loom::sync::{Condvar, Mutex};

loom::lazy_static! {
    static ref SLEEPERS: (Mutex<()>, Condvar) = (Mutex::new(()), Condvar::new());
}

pub(crate) fn futex_wait(word: &AtomicU32, expected: u32, _: Option<u32>) {
    let sleepers = SLEEPERS.0.lock().unwrap();
    if word.load(Ordering::Relaxed) == expected {
        drop(SLEEPERS.1.wait(sleepers));
    }
}

pub(crate) fn futex_wake(_: &AtomicU32) {
    // Wakes all, as they may sleep on different words. A sleeper checks its word again anyway.
    let _sleepers = SLEEPERS.0.lock().unwrap();
    SLEEPERS.1.notify_all();
}

pub(crate) fn spin_hint() {
    loom::thread::yield_now();
}
