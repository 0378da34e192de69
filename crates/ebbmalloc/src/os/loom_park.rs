//! Under loom a sleeping thread is one that lets the others run.

use loom::sync::atomic::AtomicU32;

pub(crate) fn futex_wait(_: &AtomicU32, _: u32) {
    loom::thread::yield_now();
}

pub(crate) fn futex_wake(_: &AtomicU32) {}

pub(crate) fn spin_hint() {
    loom::thread::yield_now();
}
