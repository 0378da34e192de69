//! Stacks of calls that were read of late. To unwind one takes microseconds; to see that one is the same as before, nanoseconds.
//!
//! Known of each are the words where return addresses lie. If the innermost one lies where it did and is what it was, then the function that
//! it returns to has its frame where it had it, and so on outwards: where the next one lies follows from the code. (Frames of a size
//! that is known at run time only, as of `alloca`, are the exception. Then the old word must still hold the old address for a stack to
//! be taken for another.) So each word that is read is one of the stack that there is.

use core::cell::UnsafeCell;

use crate::platform::sync::{AtomicU8, Ordering};

/// The most calls of a stack that is kept.
pub(super) const CALLS_MOST: usize = 32;
/// Stacks that begin at the same place are kept beside each other: so many places, so many stacks for each.
const PLACES: usize = 32;
const WAYS: usize = 4;

/// A stack, from the innermost call on.
#[derive(Clone, Copy)]
pub(super) struct Recent {
    /// Where the frame is that the innermost call returns to, as seen from there.
    pub place: usize,
    pub known: usize,
    /// Return addresses, and where they lie; of the first one it is not known.
    pub addresses: [usize; CALLS_MOST],
    pub words: [usize; CALLS_MOST],
}

impl Recent {
    pub const NONE: Self =
        Self { place: 0, known: 0, addresses: [0; CALLS_MOST], words: [0; CALLS_MOST] };

    /// Whether the stack is this one: begins at the same place, and is the same from there on.
    ///
    /// # Safety
    /// It is a stack that was read in this process, and the caller's begins at `place`.
    unsafe fn is_at(&self, place: usize) -> bool {
        let words = self.words.iter().zip(&self.addresses).take(self.known).skip(1);
        // SAFETY: as said above, in the caller's stack.
        let mut same = words.map(|(&word, &address)| unsafe { read(word) } == address);
        self.known > 1 && self.place == place && same.all(|same| same)
    }
}

/// What lies at an address.
///
/// # Safety
/// It may be read.
pub(super) unsafe fn read(word: usize) -> usize {
    // SAFETY: the caller's.
    unsafe { core::ptr::with_exposed_provenance::<usize>(word).read_volatile() }
}

struct Set {
    busy: AtomicU8,
    stacks: UnsafeCell<([Recent; WAYS], usize)>,
}

// SAFETY: `busy` says who has the rest.
unsafe impl Sync for Set {}

static SETS: [Set; PLACES] =
    [const { Set { busy: AtomicU8::new(0), stacks: UnsafeCell::new(([Recent::NONE; WAYS], 0)) } };
        PLACES];

/// Runs `work` on the stacks that begin at this place; not if another thread does, or one that a signal has interrupted.
fn with<R>(
    place: usize,
    work: impl FnOnce(&mut ([Recent; WAYS], usize)) -> Option<R>,
) -> Option<R> {
    let set = &SETS[(place >> 4).wrapping_mul(0x9e37_79b9) >> 16 & (PLACES - 1)];
    if set.busy.swap(1, Ordering::Acquire) != 0 {
        return None;
    }
    // SAFETY: nobody else has it until we say so.
    let done = work(unsafe { &mut *set.stacks.get() });
    set.busy.store(0, Ordering::Release);
    done
}

/// Writes the calls of the stack that begins at this place, if it was read before. How many.
///
/// # Safety
/// The caller's stack begins there.
pub(super) unsafe fn find(place: usize, out: &mut [usize]) -> Option<usize> {
    with(place, |(stacks, _)| {
        // SAFETY: the caller's.
        let found = stacks.iter().find(|stack| unsafe { stack.is_at(place) })?;
        let known = found.known.min(out.len());
        let calls = out.iter_mut().zip(&found.addresses).take(known);
        calls.for_each(|(call, address)| *call = address - 1);
        Some(known)
    })
}

/// Keeps a stack, in place of an older one.
pub(super) fn keep(stack: &Recent) {
    with(stack.place, |(stacks, next)| {
        stacks[*next] = *stack;
        *next = (*next + 1) % WAYS;
        Some(())
    });
}
