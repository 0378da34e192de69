//! Caches stacks of calls that were read recently: unwinding a stack takes microseconds,
//! recognizing it nanoseconds.
//!
//! A cached stack knows in which words its return addresses lie. If the innermost word still holds
//! its return address, the function that it returns to has its frame where it was. The code of
//! that function determines where the next word lies, and so on outwards. So every word that is
//! compared is part of the current stack.
//!
//! Frames whose size is known only at run time, as with `alloca`, are an exception. A stack with
//! such a frame is mistaken for a cached one only if the old word still holds the old address.

use core::cell::UnsafeCell;

use crate::platform::sync::{AtomicU8, Ordering};

/// The most calls of a cached stack.
pub(super) const CALLS_MAX: usize = 32;
/// The sets of the cache: the address of the innermost frame selects one.
const SETS: usize = 32;
/// The stacks in each set.
const WAYS: usize = 4;

/// A cached stack, from the innermost call on.
#[derive(Clone, Copy)]
pub(super) struct CachedStack {
    /// The address of the innermost frame.
    pub frame: usize,
    /// The number of calls.
    pub count: usize,
    /// The return addresses.
    pub addresses: [usize; CALLS_MAX],
    /// The addresses of the words that hold the return addresses. Not known for the first call.
    pub words: [usize; CALLS_MAX],
}

impl CachedStack {
    pub const EMPTY: Self =
        Self { frame: 0, count: 0, addresses: [0; CALLS_MAX], words: [0; CALLS_MAX] };

    /// Whether the caller's stack equals this one.
    ///
    /// # Safety
    /// This stack was read in this process, or is empty. `frame` is the innermost frame of the
    /// caller's.
    unsafe fn is_current(&self, frame: usize) -> bool {
        let words = self.words.iter().zip(&self.addresses).take(self.count).skip(1);
        // SAFETY: all words before this one were equal, so it lies in the caller's stack: see the
        // comment of this file.
        let mut equal = words.map(|(&word, &address)| unsafe { read_word(word) } == address);
        self.count > 1 && self.frame == frame && equal.all(|equal| equal)
    }
}

/// Reads the word at an address.
///
/// # Safety
/// The address is that of a readable word.
pub(super) unsafe fn read_word(word: usize) -> usize {
    // SAFETY: the caller guarantees that the word is readable.
    unsafe { core::ptr::with_exposed_provenance::<usize>(word).read_volatile() }
}

/// Some stacks, and the index of the one to replace next.
type Ways = ([CachedStack; WAYS], usize);

/// A set of the cache.
struct Set {
    /// Whether a thread uses the stacks.
    busy: AtomicU8,
    stacks: UnsafeCell<Ways>,
}

// SAFETY: only the thread that set `busy` uses the stacks.
unsafe impl Sync for Set {}

static CACHE: [Set; SETS] = [const {
    let stacks = UnsafeCell::new(([CachedStack::EMPTY; WAYS], 0));
    Set { busy: AtomicU8::new(0), stacks }
}; SETS];

/// Runs `work` on the set for this innermost frame. Returns `None` if the set is busy: another
/// thread uses it, or this thread did when a signal interrupted it.
fn with<R>(frame: usize, work: impl FnOnce(&mut Ways) -> Option<R>) -> Option<R> {
    let set = &CACHE[(frame >> 4).wrapping_mul(0x9e37_79b9) >> 16 & (SETS - 1)];
    if set.busy.swap(1, Ordering::Acquire) != 0 {
        return None;
    }
    // SAFETY: this thread set `busy`, so no other uses the stacks until it is cleared.
    let done = work(unsafe { &mut *set.stacks.get() });
    set.busy.store(0, Ordering::Release);
    done
}

/// Writes the calls of the caller's stack to `out`, if the stack is cached. Returns their number.
///
/// # Safety
/// `frame` is the innermost frame of the caller's stack.
pub(super) unsafe fn find(frame: usize, out: &mut [usize]) -> Option<usize> {
    with(frame, |(stacks, _)| {
        // SAFETY: all cached stacks were read in this process. The caller guarantees the frame.
        let found = stacks.iter().find(|stack| unsafe { stack.is_current(frame) })?;
        let count = found.count.min(out.len());
        let calls = out.iter_mut().zip(&found.addresses).take(count);
        calls.for_each(|(call, address)| *call = address - 1);
        Some(count)
    })
}

/// Caches a stack, which replaces the oldest one of its set.
pub(super) fn keep(stack: &CachedStack) {
    with(stack.frame, |(stacks, next)| {
        stacks[*next] = *stack;
        *next = (*next + 1) % WAYS;
        Some(())
    });
}
