//! The transfer cache: blocks of classes that flow (`flow.rs`), on their way from caches that only
//! free to caches that only allocate. They need not pass through the spans, where each would
//! be booked twice. It is a slab like a cache's, which no thread has.
//!
//! Protocol (model-checked in `crates/testkit/tests/loom.rs`): a class's stack is used only under
//! the class's lock here. The idea is tcmalloc's.

use crate::cache::{self, Header, OwnedStack, Slab};
use crate::size_class::{CLASSES, SizeClass};
use crate::sync::{Guard, Lock, const_fn};

/// A stack that may not grow asks again after so many times that it was full.
const DENIED: u8 = 64;

/// What is known of a class's stack.
struct Place {
    /// Blocks came or went since somebody last looked.
    used: bool,
    /// How often the stack must be full before it asks for room again.
    denied: u8,
}

/// A class's lock, on a cache line of its own.
#[repr(align(64))]
struct Class(Lock<Place>);

impl Class {
    const_fn! {
        fn new() -> Self {
            Self(Lock::new(Place { used: false, denied: 0 }))
        }
    }
}

/// The locks of the transfer cache.
pub(crate) struct Transfer([Class; CLASSES]);

/// The transfer cache, with its slab.
#[derive(Clone, Copy)]
pub(crate) struct Transfers<'a> {
    locks: &'a Transfer,
    slab: *mut Slab,
}

impl Transfer {
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self([const { Class::new() }; CLASSES])
    }

    #[cfg(loom)]
    pub fn new() -> Self {
        Self(core::array::from_fn(|_| Class::new()))
    }

    /// # Safety
    /// The slab is used by these locks only, and lives as long as they do.
    pub unsafe fn with(&self, slab: *mut Slab) -> Transfers<'_> {
        Transfers { locks: self, slab }
    }

    /// Takes every lock and keeps it: for `fork`.
    pub fn hold(&self) {
        self.0.iter().for_each(|class| class.0.hold());
    }

    /// Frees every lock.
    ///
    /// # Safety
    /// As for [`Lock::force_unlock`].
    pub unsafe fn force_unlock(&self) {
        // SAFETY: the caller's.
        self.0.iter().for_each(|class| unsafe { class.0.force_unlock() });
    }
}

impl Transfers<'_> {
    fn lock(&self, class: SizeClass) -> (Guard<'_, Place>, OwnedStack) {
        let guard = self.locks.0[class.index()].0.lock();
        // SAFETY: the stack is used only under this lock.
        (guard, unsafe { OwnedStack::new(self.slab, class) })
    }

    /// Blocks here; a glance.
    pub fn held(&self, class: SizeClass) -> usize {
        // SAFETY: it is a slab.
        unsafe { cache::held(self.slab, class) }
    }

    /// Puts blocks in, the newest of which is first; how many went. Where there is no room, `may_grow` is
    /// asked whether stacks may have so many bytes beyond what they begin with.
    pub fn put(
        &self,
        class: SizeClass,
        blocks: &[*mut u8],
        may_grow: impl FnOnce(usize) -> bool,
    ) -> usize {
        let (mut place, mut stack) = self.lock(class);
        place.used = true;
        let now = stack.header();
        let grown = now.grown(class);
        if now.is_new() {
            stack.set_header(grown);
        } else if now.held(class) + blocks.len() > now.room(class) && grown != now {
            place.denied = place.denied.saturating_sub(1);
            if place.denied == 0 {
                let more = (grown.room(class) - now.room(class)) * class.size();
                // SAFETY: it is a slab, of which only full places are used.
                if may_grow(unsafe { cache::extra_room(self.slab) } + more) {
                    stack.set_header(grown);
                } else {
                    place.denied = DENIED;
                }
            }
        }
        stack.push_batch(blocks)
    }

    /// Fills the *end* of `blocks`, the newest last; how many there were.
    pub fn take(&self, class: SizeClass, blocks: &mut [*mut u8]) -> usize {
        if self.held(class) == 0 {
            return 0;
        }
        let (mut place, mut stack) = self.lock(class);
        place.used = true;
        let taken = stack.pop_batch(blocks);
        drop(place);
        // What was put in last is the oldest of its batch.
        let empty = blocks.len() - taken;
        blocks.copy_within(..taken, empty);
        taken
    }

    /// Where nothing came or went since the last look, or in any case if `always`: takes some blocks; when the
    /// last is gone, the room goes as well. How many came.
    pub fn drain(&self, class: SizeClass, always: bool, blocks: &mut [*mut u8]) -> usize {
        let (mut place, mut stack) = self.lock(class);
        if place.used && !always {
            place.used = false;
            return 0;
        }
        let taken = stack.pop_batch(blocks);
        if stack.header().held(class) == 0 {
            *place = Place { used: false, denied: 0 };
            stack.set_header(Header::default());
        }
        taken
    }

    /// For mutants: frees a class's lock, whoever holds it.
    #[cfg(loom)]
    pub fn break_lock(&self, class: SizeClass) {
        // SAFETY: none; that it is unsound is what the mutant shows.
        unsafe { self.locks.0[class.index()].0.force_unlock() }
    }
}
