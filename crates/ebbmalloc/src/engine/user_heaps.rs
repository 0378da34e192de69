//! Makes, shares and deletes the heaps of programs, and serves calls on their blocks. Heaps have no
//! caches: each call holds the lock of its heap.

use crate::backend::page_heap::Granted;
use crate::backend::units::Units;
use crate::central::heap_record::{HeapId, HeapRecord, find};
use crate::engine::lookup::HeapBlock;
use crate::engine::{DefaultHeaps, Engine};
use crate::platform::message::Line;
use crate::platform::os::Os;
use crate::size_class::{SizeClass, UNIT};

impl<O: Os> Engine<O> {
    /// Makes a heap whose blocks may have `limit` bytes in all; `None` if memory is short.
    pub fn new_heap(&self, limit: usize) -> Option<HeapId> {
        let mut granted = None;
        if self.ready() {
            let alloc = || {
                let units = Units::new(self.heap_units())?;
                self.pages().alloc(units, Units::ONE)
            };
            granted = alloc().or_else(|| {
                self.flush_all();
                alloc()
            });
        }
        match granted {
            Some(Granted { first, zeroed, .. }) if self.hardening() => {
                Some(self.add_hardened(first, zeroed, limit))
            }
            Some(Granted { first, .. }) => Some(self.heaps.lock().add(&self.region, first, limit)),
            None => {
                self.refuse(self.heap_units() as usize * UNIT);
                None
            }
        }
    }

    /// Deletes a heap and all blocks in it. Aborts the program if the id is that of no heap, or of
    /// a deleted one.
    ///
    /// # Safety
    /// The program does not use the heap's blocks any more.
    pub unsafe fn delete_heap(&self, id: HeapId, operation: &str) {
        if find(&self.region, id).is_some() {
            self.before_delete(id, operation);
        }
        // Locked to the end, so that neither a fork nor a round of the scavenger meets half a heap.
        let mut heaps = self.heaps.lock();
        let Some(heap) = heaps.remove(&self.region, id) else {
            drop(heaps);
            self.wrong_heap(id, operation);
        };
        let mut contents = heap.contents().lock();
        for class in SizeClass::all() {
            let spans = &mut contents.spans[class.index()];
            self.count_free(spans.counts.claimed * class.size());
            spans.retire_all(&self.memory());
        }
        while contents.large != 0 {
            let first = contents.large;
            contents.unlink(&self.region, first);
            match self.hardening() {
                true => self.delete_large(first),
                false => self.free_large_run(first, self.units_of(first)),
            }
        }
        drop(contents);
        self.pages().free(id.unit(), self.heap_units());
        drop(heaps);
        self.notify_scavenger();
    }

    /// Adds an owner to a heap.
    pub fn share_heap(&self, id: HeapId, operation: &str) {
        self.heap(id, operation).contents().lock().owners += 1;
    }

    /// Removes an owner from a heap. True if it was the last: the caller then deletes the heap.
    pub fn unshare_heap(&self, id: HeapId, operation: &str) -> bool {
        let mut contents = self.heap(id, operation).contents().lock();
        contents.owners -= 1;
        contents.owners == 0
    }

    /// Allocates a block of a heap like [`Engine::alloc_aligned`]. Null also if the heap's limit
    /// forbids it.
    #[inline]
    pub fn heap_alloc(&self, id: HeapId, size: usize, align: usize, operation: &str) -> *mut u8 {
        self.heap(id, operation);
        self.alloc_in(id.unit(), size, align, 0).0
    }

    /// Allocates like [`Engine::heap_alloc`], and clears all usable bytes of the block.
    pub fn heap_alloc_zeroed(
        &self,
        id: HeapId,
        size: usize,
        align: usize,
        operation: &str,
    ) -> *mut u8 {
        self.heap(id, operation);
        let new = self.alloc_in(id.unit(), size, align, 0);
        let usable = || self.heap_block(new.0).map_or(size, |found| found.usable);
        self.clear_new(new, if self.knows_size_of(new.0) { size } else { usable() })
    }

    /// Frees a block of this heap. Aborts the program if it is none.
    ///
    /// # Safety
    /// The program does not use the block any more.
    pub unsafe fn heap_free(&self, id: HeapId, block: *mut u8, operation: &str) {
        self.heap(id, operation);
        let found = self.block_of(id, block, operation);
        self.free_in_heap(found, operation);
    }

    /// Resizes a block of this heap. Aborts the program if it is none.
    ///
    /// # Safety
    /// As for [`Engine::realloc`].
    pub unsafe fn heap_realloc(
        &self,
        id: HeapId,
        block: *mut u8,
        size: usize,
        align: usize,
        operation: &str,
    ) -> *mut u8 {
        self.heap(id, operation);
        let found = self.block_of(id, block, operation);
        // SAFETY: the caller guarantees what `Engine::realloc` demands.
        unsafe { self.realloc_in_heap(found, size, align, operation) }
    }

    /// The program's heap that owns a block of the program; `None` if no such heap does.
    pub fn heap_of(&self, block: *mut u8) -> Option<HeapId> {
        let heap = self.heap_block(block)?.heap;
        let DefaultHeaps { first, count, units } = self.setup().default_heaps;
        let is_default = (first..first + count * units).contains(&heap);
        let is_own = is_default || self.profile.is_heap(heap);
        (!is_own).then(|| self.record_of(heap).id())
    }

    /// Usable bytes of all blocks of the heap.
    pub fn heap_used(&self, id: HeapId, operation: &str) -> usize {
        self.heap(id, operation).contents().lock().used
    }

    /// Aborts the program if the id is that of no heap, or of a deleted one.
    pub fn check_heap(&self, id: HeapId, operation: &str) {
        self.heap(id, operation);
    }

    #[inline]
    fn heap(&self, id: HeapId, operation: &str) -> &HeapRecord {
        find(&self.region, id).unwrap_or_else(|| self.wrong_heap(id, operation))
    }

    #[cold]
    #[inline(never)]
    fn wrong_heap(&self, id: HeapId, operation: &str) -> ! {
        let fault = match self.heaps.lock().had(id) {
            true => "deleted heap",
            false => "invalid heap",
        };
        Line::print(&self.os, format_args!("{fault}: {:#x} passed to {operation}", id.to_bits()));
        self.os.abort()
    }

    fn block_of(&self, id: HeapId, block: *mut u8, operation: &str) -> HeapBlock {
        match self.heap_block(block) {
            Some(found) if found.heap == id.unit() => found,
            _ => self.fault("not a block of this heap", block, operation),
        }
    }
}
