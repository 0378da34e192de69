//! What `crates/testkit/tests/loom.rs` explores: the layers below the engine, for one size class.
//! Exists under `--cfg loom` only.

use core::ptr;
use std::vec;
use std::vec::Vec;

use crate::cache::{Header, OwnedStack, Slab, lock_of, set_up_lock};
use crate::central::Central;
use crate::front::{Front, Preferred, Slots};
use crate::os::Os;
use crate::pages::Pages;
use crate::region::Region;
pub use crate::scavenger::Scavenger;
use crate::size_class::SizeClass;
pub use crate::sync::Lock;
use crate::thread_slabs::ThreadSlabs;

/// A central over its own page heap, and caches in slot mode.
pub struct Layers<O> {
    os: O,
    class: SizeClass,
    region: Region,
    pages: Lock<Pages>,
    central: Central,
    caches: usize,
    preferred: Preferred,
}

// SAFETY: as for the engine.
unsafe impl<O: Os> Sync for Layers<O> {}
// SAFETY: as for the engine.
unsafe impl<O: Os + Send> Send for Layers<O> {}

impl<O: Os> Layers<O> {
    /// Layers for blocks of `size` bytes, with so many caches, all of which have room.
    pub fn new(os: O, size: usize, caches: usize) -> Self {
        let class = SizeClass::of(size).expect("a small size");
        let region = Region::unset();
        assert!(region.set_up(&os, caches));
        for cache in 0..caches {
            // SAFETY: there are so many, and nobody uses them yet.
            unsafe {
                let slab = region.slabs().add(cache);
                set_up_lock(slab);
                OwnedStack::new(slab, class).set_header(Header::default().grown(class));
            }
        }
        let (pages, central, preferred) =
            (Lock::new(Pages::new()), Central::new(), Preferred::new());
        Self { os, class, region, pages, central, caches, preferred }
    }

    /// Claims up to `most` blocks from the central.
    pub fn claim(&self, most: usize) -> Vec<*mut u8> {
        let mut blocks = vec![ptr::null_mut(); most];
        let Self { central, region, os, pages, class, .. } = self;
        let claimed = central.claim(region, os, pages, *class, &mut blocks);
        blocks.split_off(most - claimed)
    }

    /// Gives blocks back to the central.
    pub fn release(&self, blocks: &[*mut u8]) {
        let Self { central, region, os, pages, class, .. } = self;
        assert_eq!(central.release(region, os, pages, *class, blocks), Ok(()));
    }

    /// Panics unless everything is booked well. Returns the spans, and the blocks claimed.
    pub fn check(&self) -> (usize, usize) {
        let (free, counts) = {
            let spans = self.central.spans().lock();
            (spans.check(&self.region), spans.counts)
        };
        assert_eq!(free + counts.claimed, counts.spans * self.class.span_blocks());
        let in_use = self.pages.lock().check(&self.region);
        assert_eq!(in_use, counts.spans * self.class.span_units() as usize);
        (counts.spans, counts.claimed)
    }

    /// The front end of a thread with this key.
    fn front(&self, key: usize) -> Slots<'_> {
        let (slabs, count) = (self.region.slabs(), self.caches);
        Slots { slabs, count, preferred: &self.preferred, key }
    }

    /// Takes a block from a cache; null if there is none.
    pub fn pop(&self, key: usize) -> *mut u8 {
        self.front(key).pop(self.class)
    }

    /// Puts a block into a cache; false if there is no room.
    pub fn push(&self, key: usize, block: *mut u8) -> bool {
        self.front(key).push(self.class, block)
    }

    /// Takes all blocks from all caches.
    pub fn drain(&self) -> Vec<*mut u8> {
        let mut blocks = vec![ptr::null_mut(); 64];
        let mut drained = Vec::new();
        for cache in 0..self.caches {
            // SAFETY: there are so many.
            let slab = unsafe { self.region.slabs().add(cache) };
            // SAFETY: as above.
            let _guard = unsafe { lock_of(slab) }.lock();
            // SAFETY: the lock is held.
            let taken = unsafe { OwnedStack::new(slab, self.class) }.pop_batch(&mut blocks);
            drained.extend_from_slice(&blocks[..taken]);
        }
        drained
    }

    /// For mutants: frees the lock of the class, whoever holds it.
    pub fn break_class_lock(&self) {
        // SAFETY: none; that it is unsound is what the mutant shows.
        unsafe { self.central.spans().force_unlock() }
    }

    /// For mutants: frees the lock of a cache, whoever holds it.
    pub fn break_cache_lock(&self, cache: usize) {
        // SAFETY: as above.
        unsafe { lock_of(self.region.slabs().add(cache)).force_unlock() }
    }
}

/// The caches of threads.
pub struct Caches<O> {
    os: O,
    class: SizeClass,
    slabs: ThreadSlabs,
}

// SAFETY: as for the engine.
unsafe impl<O: Os> Sync for Caches<O> {}
// SAFETY: as for the engine.
unsafe impl<O: Os + Send> Send for Caches<O> {}

/// A thread's cache.
pub struct Cache(*mut Slab);

impl Cache {
    /// Tells it from others.
    pub fn address(&self) -> *mut u8 {
        self.0.cast()
    }
}

impl<O: Os> Caches<O> {
    /// Caches of which a stack for blocks of `size` bytes is used.
    pub fn new(os: O, size: usize) -> Self {
        let slabs = ThreadSlabs::new();
        assert_eq!(slabs.set_up(&os), Ok(()));
        Self { os, class: SizeClass::of(size).expect("a small size"), slabs }
    }

    /// A cache for the calling thread.
    pub fn take(&self) -> Cache {
        Cache(self.slabs.take(&self.os).expect("room for a cache"))
    }

    /// The block in the cache, which then holds this one.
    pub fn replace(&self, cache: &Cache, block: *mut u8) -> *mut u8 {
        // SAFETY: the cache is the caller's.
        let mut stack = unsafe { OwnedStack::new(cache.0, self.class) };
        let found = stack.pop();
        stack.grow(1);
        assert!(stack.push(block));
        found
    }

    /// Gives a cache up, with what is in it.
    pub fn give(&self, cache: Cache) {
        // SAFETY: the cache is the caller's.
        unsafe { self.slabs.give(&self.os, cache.0) }
    }

    /// For mutants: frees the lock of all caches, whoever holds it.
    pub fn break_lock(&self) {
        // SAFETY: none; that it is unsound is what the mutant shows.
        unsafe { self.slabs.force_unlock() }
    }
}
