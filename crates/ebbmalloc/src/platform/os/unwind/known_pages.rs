//! Remembers which pages of each thread's stack were found readable, so that the kernel is asked
//! once.
//!
//! A thread's own stack stays mapped while the thread lives. The pages of another stack, as of a
//! signal handler or a coroutine, may go. So they are used only while tables alone tell where
//! frames lie: a walk that had to follow a frame pointer asks the kernel again.

use core::ops::Range;

use super::sequence_lock::SequenceLock;
use crate::platform::arch::thread_pointer;

const SLOTS_BITS: u32 = 8;
/// 8 KiB. Threads that share a slot ask the kernel more often.
static SLOTS: [SequenceLock<3>; 1 << SLOTS_BITS] = [SequenceLock::ZERO; 1 << SLOTS_BITS];

/// The slot for the calling thread, and the number that tells it from other threads.
fn own_slot() -> (&'static SequenceLock<3>, u64) {
    let thread = thread_pointer() as u64;
    let hash = thread.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (&SLOTS[(hash >> (u64::BITS - SLOTS_BITS)) as usize], thread)
}

/// The pages of the calling thread's stack that were kept; none at first.
pub(super) fn find() -> Range<usize> {
    let (slot, thread) = own_slot();
    match slot.read() {
        Some([owner, start, end]) if owner == thread => start as usize..end as usize,
        _ => 0..0,
    }
}

/// Keeps pages of the calling thread's stack, in place of others.
pub(super) fn keep(pages: Range<usize>) {
    let (slot, thread) = own_slot();
    slot.write([thread, pages.start as u64, pages.end as u64]);
}

#[cfg(all(test, not(any(miri, loom))))]
mod tests {
    use super::*;

    #[test]
    fn each_thread_has_pages_of_its_own() {
        keep(4096..8192);
        std::thread::spawn(|| {
            assert_ne!(find(), 4096..8192);
            keep(0..4096);
            assert_eq!(find(), 0..4096);
        })
        .join()
        .unwrap();
        // The other thread may have had the same slot.
        assert!([4096..8192, 0..0].contains(&find()));
        keep(0..0);
    }
}
