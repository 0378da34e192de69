//! The loom models: the layers below the engine for one size class, whose interleavings
//! `crates/testkit/tests/loom.rs` explores. Compiled under `--cfg loom` only.

use core::ptr;
use std::vec;
use std::vec::Vec;

use crate::backend::page_heap::{Memory, PageHeap};
use crate::backend::region::{Region, UnitIndex};
pub use crate::backend::scavenger_state::Scavenger;
use crate::backend::span::Order;
use crate::backend::units::Units;
use crate::central::Central;
pub use crate::central::heap_record::HeapId;
use crate::central::heap_record::{Contents, Heaps, find, record};
use crate::frontend::near_cache::{NearBlock, NearCache};
use crate::frontend::owned_stack::OwnedStack;
use crate::frontend::slab::{Header, Slab};
use crate::frontend::thread_slabs::ThreadSlabs;
use crate::frontend::transfer_cache::Transfers;
use crate::frontend::{Front, Preferred, SharedSlots};
use crate::platform::os::Os;
pub use crate::platform::os::SequenceLock;
pub use crate::platform::sync::Lock;
use crate::size_class::{SizeClass, UNIT};
pub use crate::telemetry::live_bytes::{CounterShard, LiveBytes};
/// See `docs/tuning.md`.
pub const SHARD_SLACK_BYTES: u64 = crate::telemetry::tuning::SHARD_SLACK_BYTES;

mod profile;
pub use profile::{ProfileMistake, ProfileSwitch};
mod stacks;
pub use stacks::{CpuCache, Emptied, Mistake, ThreadCache};

/// A central free list over its own page heap, and locked caches: those of slot mode, or transfer
/// caches.
pub struct Layers<O> {
    os: O,
    class: SizeClass,
    region: Region,
    pages: Lock<PageHeap>,
    central: Central,
    caches: usize,
    preferred: Preferred,
}

// SAFETY: as for the engine: locks guard the tables that the pointers lead to.
unsafe impl<O: Os> Sync for Layers<O> {}
// SAFETY: as for the engine: nothing here belongs to one thread.
unsafe impl<O: Os + Send> Send for Layers<O> {}

impl<O: Os> Layers<O> {
    /// Layers for blocks of `size` bytes, with `caches` caches, whose stacks are set up.
    pub fn new(os: O, size: usize, caches: usize) -> Self {
        let class = SizeClass::of(size).expect("a small size");
        let region = Region::unset();
        assert!(region.set_up(&os, caches));
        for cache in 0..caches {
            // SAFETY: the region has a slab for each cache, and no thread uses it yet.
            unsafe {
                let slab = Slab::new(region.slabs().add(cache));
                slab.set_up_lock();
                OwnedStack::new(slab, class).set_header(Header::default().grown(class));
            }
        }
        let (pages, central, preferred) =
            (Lock::new(PageHeap::new()), Central::new(), Preferred::new());
        Self { os, class, region, pages, central, caches, preferred }
    }

    fn memory(&self) -> Memory<'_, O> {
        Memory { region: &self.region, os: &self.os, heap: &self.pages }
    }

    /// Claims up to `max` blocks from the central free list.
    pub fn claim(&self, max: usize) -> Vec<*mut u8> {
        let mut blocks = vec![ptr::null_mut(); max];
        let claimed = self.central.spans().lock().claim(
            &self.memory(),
            self.class,
            Order::Lowest,
            &mut blocks,
        );
        blocks.split_off(max - claimed.blocks)
    }

    /// Releases blocks to the central free list.
    pub fn release(&self, blocks: &[*mut u8]) {
        let released = self.central.spans().lock().release(&self.memory(), self.class, blocks);
        assert_eq!(released, Ok(()));
    }

    /// Panics unless all counts agree. Returns the number of spans, and of blocks claimed.
    pub fn check(&self) -> (usize, usize) {
        let ((free, _), counts) = {
            let spans = self.central.spans().lock();
            (spans.check(&self.region, self.class), spans.counts)
        };
        assert_eq!(free + counts.claimed, counts.blocks);
        let in_use = self.memory().lock().check();
        assert_eq!(in_use, counts.spans * self.class.span_units() as usize);
        (counts.spans, counts.claimed)
    }

    /// The front end of a thread with this token.
    fn front(&self, token: usize) -> Front<'_, O> {
        let (slabs, count) = (self.region.slabs(), self.caches);
        Front::Shared(SharedSlots { slabs, count, preferred: &self.preferred, token })
    }

    /// Takes a block from a cache; null if its stack is empty.
    pub fn pop(&self, token: usize) -> *mut u8 {
        self.front(token).pop(self.class)
    }

    /// Puts a block into a cache, as a batch if the cache has no mark for it. False if its stack is
    /// full.
    pub fn push(&self, token: usize, block: *mut u8) -> bool {
        let front = self.front(token);
        front.push(self.class, block) || front.push_batch(self.class, &[block]) == 1
    }

    /// The caches as transfer caches, for a thread with this token.
    fn transfers(&self, token: usize) -> Transfers {
        let (slabs, count) = (self.region.slabs(), self.caches);
        Transfers { slabs, count, waits: false, nearest: token }
    }

    /// Puts blocks into transfer caches. Returns how many it put there.
    pub fn leave(&self, token: usize, blocks: &[*mut u8]) -> usize {
        self.transfers(token).leave(self.class, blocks)
    }

    /// Takes up to `max` blocks from transfer caches.
    pub fn take_left(&self, token: usize, max: usize) -> Vec<*mut u8> {
        let mut blocks = vec![ptr::null_mut(); max];
        let taken = self.transfers(token).take(self.class, &mut blocks);
        blocks.split_off(max - taken)
    }

    /// Takes all blocks from all caches.
    pub fn drain(&self) -> Vec<*mut u8> {
        let mut blocks = vec![ptr::null_mut(); 64];
        let mut drained = Vec::new();
        for cache in 0..self.caches {
            // SAFETY: the region has a slab for each cache.
            let slab = unsafe { Slab::new(self.region.slabs().add(cache)) };
            let _guard = slab.lock().lock();
            // SAFETY: the slab's lock is held.
            let taken = unsafe { OwnedStack::new(slab, self.class) }.pop_batch(&mut blocks);
            drained.extend_from_slice(&blocks[..taken]);
        }
        drained
    }

    /// For mutants: unlocks the class, also if another thread holds its lock.
    pub fn break_class_lock(&self) {
        // SAFETY: none. The mutant shows that this is unsound.
        unsafe { self.central.spans().force_unlock() }
    }

    /// For mutants: unlocks a cache, also if another thread holds its lock.
    pub fn break_cache_lock(&self, cache: usize) {
        // SAFETY: none. The mutant shows that this is unsound.
        unsafe { Slab::new(self.region.slabs().add(cache)).lock().force_unlock() }
    }
}

/// A near cache for blocks of one length.
pub struct Near(NearCache);

impl Near {
    const BYTES: usize = 100 << 10;

    /// An empty one.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Self(NearCache::new())
    }

    /// Puts a block into the cache. Returns one that it has not, or null.
    pub fn put(&self, block: *mut u8) -> *mut u8 {
        let block = NearBlock { address: block.addr(), bytes: Self::BYTES };
        address_of(self.0.put(block, 1 << 20))
    }

    /// Takes the newest block; null if there is none.
    pub fn take(&self) -> *mut u8 {
        address_of(self.0.take(Self::BYTES, 1))
    }

    /// Takes the oldest block; null if there is none.
    pub fn shed(&self) -> *mut u8 {
        address_of(self.0.shed(0))
    }

    /// For mutants: unlocks the cache, also if another thread holds its lock.
    pub fn break_lock(&self) {
        // SAFETY: none. The mutant shows that this is unsound.
        unsafe { self.0.contents().force_unlock() }
    }
}

fn address_of(block: Option<NearBlock>) -> *mut u8 {
    block.map_or(ptr::null_mut(), |block| ptr::without_provenance_mut(block.address))
}

/// The slabs of thread mode.
pub struct Caches<O> {
    os: O,
    class: SizeClass,
    slabs: ThreadSlabs,
}

// SAFETY: as for the engine: the lock of the slabs guards their table.
unsafe impl<O: Os> Sync for Caches<O> {}
// SAFETY: as for the engine: nothing here belongs to one thread.
unsafe impl<O: Os + Send> Send for Caches<O> {}

/// A slab that a thread has taken.
pub struct Cache(Slab);

impl Cache {
    /// The address of the slab, which tells it from others.
    pub fn address(&self) -> *mut u8 {
        self.0.address()
    }
}

impl<O: Os> Caches<O> {
    /// Slabs of which only the stack for blocks of `size` bytes is used.
    pub fn new(os: O, size: usize) -> Self {
        let slabs = ThreadSlabs::new();
        assert_eq!(slabs.set_up(&os), Ok(()));
        Self { os, class: SizeClass::of(size).expect("a small size"), slabs }
    }

    /// Takes a slab for the calling thread.
    pub fn take(&self) -> Cache {
        Cache(self.slabs.take(&self.os, ptr::null()).expect("room for a cache"))
    }

    /// Takes the block in the slab, and puts this one there.
    pub fn replace(&self, cache: &Cache, block: *mut u8) -> *mut u8 {
        // SAFETY: the caller has taken the slab.
        let mut stack = unsafe { OwnedStack::new(cache.0, self.class) };
        let found = stack.pop();
        stack.grow(1);
        assert!(stack.push(block));
        found
    }

    /// Returns a slab, with the blocks in it.
    pub fn give(&self, cache: Cache) {
        // SAFETY: the caller had taken the slab, and gives up the only value that stands for it.
        unsafe { self.slabs.give(&self.os, cache.0) }
    }

    /// For mutants: unlocks the slabs, also if another thread holds their lock.
    pub fn break_lock(&self) {
        // SAFETY: none. The mutant shows that this is unsound.
        unsafe { self.slabs.force_unlock() }
    }
}

/// User heaps that have spans of one class.
pub struct HeapLayers<O> {
    os: O,
    class: SizeClass,
    region: Region,
    pages: Lock<PageHeap>,
    heaps: Lock<Heaps>,
}

// SAFETY: as for the engine: locks guard the tables that the pointers lead to.
unsafe impl<O: Os> Sync for HeapLayers<O> {}
// SAFETY: as for the engine: nothing here belongs to one thread.
unsafe impl<O: Os + Send> Send for HeapLayers<O> {}

impl<O: Os> HeapLayers<O> {
    /// Layers without heaps. Heaps made later have blocks of `size` bytes.
    pub fn new(os: O, size: usize) -> Self {
        let class = SizeClass::of(size).expect("a small size");
        let region = Region::unset();
        assert!(region.set_up(&os, 0));
        Self {
            os,
            class,
            region,
            pages: Lock::new(PageHeap::new()),
            heaps: Lock::new(Heaps::new()),
        }
    }

    fn memory(&self) -> Memory<'_, O> {
        Memory { region: &self.region, os: &self.os, heap: &self.pages }
    }

    /// Makes a heap, as `Engine::new_heap`.
    pub fn make(&self) -> HeapId {
        let granted = self.memory().lock().alloc(Units::ONE, Units::ONE).expect("room");
        self.heaps.lock().add(&self.region, granted.first, usize::MAX)
    }

    /// Deletes a heap, as `Engine::delete_heap`.
    pub fn delete(&self, id: HeapId) {
        let mut heaps = self.heaps.lock();
        let heap = heaps.remove(&self.region, id).expect("a heap");
        let mut contents = heap.contents().lock();
        let spans = &mut contents.spans[self.class.index()];
        spans.retire_all(&self.memory());
        drop(contents);
        self.memory().lock().free(id.unit(), 1);
    }

    /// Claims a block from a heap.
    pub fn claim(&self, id: HeapId) -> *mut u8 {
        let mut block = [ptr::null_mut()];
        let mut contents = find(&self.region, id).expect("a heap").contents().lock();
        let spans = &mut contents.spans[self.class.index()];
        let claimed = spans.claim(&self.memory(), self.class, Order::Lowest, &mut block);
        assert_eq!(claimed.blocks, 1);
        block[0]
    }

    /// Releases a heap's block.
    pub fn release(&self, id: HeapId, block: *mut u8) {
        let mut contents = find(&self.region, id).expect("a heap").contents().lock();
        let spans = &mut contents.spans[self.class.index()];
        let released = spans.release(&self.memory(), self.class, &[block]);
        assert_eq!(released, Ok(()));
    }

    /// Purges free pages of the span that began at this block a moment ago, as
    /// `Engine::purge_free_pages`. The span may be gone by now.
    pub fn purge_free_pages(&self, block: *mut u8) {
        let unit = self.unit(block);
        let work = |contents: &mut Contents| self.purge_in(contents, unit);
        self.heaps.lock().with_owner_of(&self.memory(), unit, work);
    }

    /// For mutants: as [`HeapLayers::purge_free_pages`], but does not ask again whose the span is,
    /// once the heap is locked.
    pub fn dig_without_second_look(&self, block: *mut u8) {
        let (unit, _heaps) = (self.unit(block), self.heaps.lock());
        let found = self.memory().lock().heap_of(unit);
        if let Some(heap) = record(&self.region, found) {
            self.purge_in(&mut heap.contents().lock(), unit);
        }
    }

    fn purge_in(&self, contents: &mut Contents, unit: UnitIndex) {
        let spans = &mut contents.spans[self.class.index()];
        // In this order: loom switches threads at the lock, but not at the page map, which is not
        // made of its types.
        let owner = self.memory().lock().heap_of(unit);
        let is_there = spans.copy(&self.region, self.class, unit).is_some();
        assert!(!is_there || spans.is_of(owner), "digging in a span of another heap");
        spans.purge_free_pages(&self.memory(), self.class, unit, false);
    }

    fn unit(&self, block: *mut u8) -> UnitIndex {
        (self.region.offset(block) / UNIT) as UnitIndex
    }

    /// For mutants: restores the record of a run as it was before the run was freed.
    pub fn forget_that_it_was_freed(&self, id: HeapId, block: *mut u8) {
        self.memory().lock().note(self.unit(block), 0, id.unit());
    }

    /// For mutants: unlocks a heap, also if another thread holds its lock.
    pub fn break_heap_lock(&self, id: HeapId) {
        // SAFETY: none. The mutant shows that this is unsound.
        unsafe { find(&self.region, id).expect("a heap").contents().force_unlock() }
    }
}
