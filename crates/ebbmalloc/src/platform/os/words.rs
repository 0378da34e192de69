//! Keeps words of each thread for the engine.
//!
//! Uses neither `std` nor Rust's thread-local variables, whose access costs a call in a shared
//! library.

use core::ptr;
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU16, AtomicU32, Ordering};

use crate::platform::arch::{IS_KNOWN, thread_variable};
use crate::platform::kernel::syscall::call;

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
    /// The kernel's number of the thread; 0 before the first [`number`].
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

/// The symbol of the words. It includes the version: a program may contain several versions of
/// this crate.
macro_rules! symbol {
    () => {
        concat!("__ebbmalloc_thread_", env!("CARGO_PKG_VERSION"))
    };
}

// The words, a thread variable. The loader sets it up, all zero.
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(any(miri, loom))))]
core::arch::global_asm!(
    ".pushsection .tbss.ebbmalloc, \"awT\", @nobits",
    concat!(".globl ", symbol!()),
    concat!(".hidden ", symbol!()),
    concat!(".type ", symbol!(), ", @object"),
    concat!(".size ", symbol!(), ", {size}"),
    ".balign 16",
    concat!(symbol!(), ":"),
    ".zero {size}",
    ".popsection",
    size = const size_of::<ThreadWords>(),
);

/// The address of the calling thread's words. Where threads have none of their own, all share some.
/// Nothing is stored in these, as threads cannot be watched.
#[inline(always)]
pub(super) fn words() -> *const ThreadWords {
    static NONE: ThreadWords = ThreadWords::new();
    if IS_KNOWN { thread_variable!(symbol!()).cast() } else { &raw const NONE }
}

/// The kernel's number of the calling thread; 0 if the kernel refuses to tell. Each thread makes
/// the system call once: a filter that it installs later may kill for gettid(2).
pub(super) fn number() -> u32 {
    // SAFETY: the words live as long as the thread.
    let cached = unsafe { &(*words()).number };
    let number = cached.load(Ordering::Relaxed);
    if number != 0 {
        return number;
    }
    // SAFETY: the call touches no memory.
    let number = unsafe { call!(libc::SYS_gettid) }.map_or(0, |number| number as u32);
    if IS_KNOWN {
        cached.store(number, Ordering::Relaxed);
    }
    number
}

#[cfg(all(test, not(any(miri, loom))))]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_a_thread_is_the_kernel_s() {
        // SAFETY: gettid(2) has no conditions.
        let kernel = || unsafe { libc::gettid() } as u32;
        let other = std::thread::spawn(move || assert_eq!([number(), number()], [kernel(); 2]));
        assert_eq!([number(), number()], [kernel(); 2]);
        other.join().unwrap();
    }
}
