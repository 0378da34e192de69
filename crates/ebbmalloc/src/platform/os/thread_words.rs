//! The words that the engine keeps of each thread: what they are, not where they lie.

use core::ptr;
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU16, AtomicU32, Ordering};

/// A thread's words for the engine, all zero in a new thread.
///
/// Mostly the thread itself and its signal handlers use them, which needs an order of the
/// compiler's only. Other threads ask by [`OsThreads::may_be`].
///
/// [`OsThreads::may_be`]: super::interface::OsThreads::may_be
#[derive(Default, Debug)]
#[repr(C)]
pub struct ThreadWords {
    /// The state of the thread's own cache (`frontend/per_thread.rs`).
    pub(crate) state: AtomicU32,
    /// Whether the thread counts for the scavenger (`backend/scavenger_state.rs`). Only the thread
    /// itself uses this word and those of profiles.
    pub(crate) counted_as: AtomicU16,
    /// The last bits of the gate of the heap profile for which `profile_left` was drawn
    /// (`engine/profile`).
    pub(crate) profile_gate: AtomicU16,
    /// The slab of the thread's own cache; null if it has none.
    pub(crate) own: AtomicPtr<u8>,
    /// The kernel's number of the thread; 0 until the engine first asks for it.
    pub(crate) number: AtomicU32,
    /// Bytes that the thread may still allocate before a block is sampled for the heap profile.
    pub(crate) profile_left: AtomicI32,
}

impl ThreadWords {
    /// The words of a new thread.
    pub const fn new() -> Self {
        Self {
            state: AtomicU32::new(0),
            counted_as: AtomicU16::new(0),
            profile_gate: AtomicU16::new(0),
            own: AtomicPtr::new(ptr::null_mut()),
            number: AtomicU32::new(0),
            profile_left: AtomicI32::new(0),
        }
    }

    /// Whether the thread is in state `state`: [`OsThreads::may_be`] for words that are certainly
    /// mapped.
    ///
    /// [`OsThreads::may_be`]: super::interface::OsThreads::may_be
    pub fn is_in(&self, state: u32) -> bool {
        self.state.load(Ordering::Acquire) == state
    }
}
