//! Heaps that programs make: makes, shares and deletes them, and serves calls on their blocks.
//! Heaps have no caches: each call holds the lock of its heap.

use crate::backend::page_heap::Granted;
use crate::backend::units::Units;
use crate::central::heap_record::HeapId;
use crate::central::heap_record::HeapRecord;
use crate::central::heap_record::find;
use crate::engine::Engine;
use crate::engine::lookup::HeapBlock;
use crate::platform::message::Line;
use crate::platform::os::Os;
use crate::size_class::SizeClass;

impl<O: Os> Engine<O> {
    /// A heap whose blocks may have `limit` bytes together; `None` if memory is short.
    pub fn new_heap(&self, limit: usize) -> Option<HeapId> {
        let mut granted = None;
        if self.ready() {
            let alloc = || {
                let units = Units::new(self.heap_units())?;
                self.pages.lock().alloc(&self.region, &self.os, units, Units::ONE)
            };
            granted = alloc().or_else(|| {
                self.flush_all();
                alloc()
            });
        }
        match granted {
            Some(Granted { first, zeroed }) if self.hardening() => {
                Some(self.add_hardened(first, zeroed, limit))
            }
            Some(Granted { first, .. }) => Some(self.heaps.lock().add(&self.region, first, limit)),
            None => {
                self.os.out_of_memory();
                None
            }
        }
    }

    /// Deletes a heap and all blocks in it. What is no heap, or none any more, stops the program.
    ///
    /// # Safety
    /// Nobody uses the heap's blocks any more.
    pub unsafe fn delete_heap(&self, id: HeapId, operation: &str) {
        if find(&self.region, id).is_some() {
            self.before_delete(id, operation);
        }
        let mut heaps = self.heaps.lock(); // To the end, so that neither a fork nor a round sees half a heap.
        let Some(heap) = heaps.remove(&self.region, id) else {
            drop(heaps);
            self.wrong_heap(id, operation);
        };
        let mut contents = heap.contents().lock();
        for class in SizeClass::all() {
            let spans = &mut contents.spans[class.index()];
            if self.counting() {
                self.count_free(spans.counts.claimed * class.size());
            }
            spans.retire_all(&self.region, &self.os, &self.pages);
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
        self.pages.lock().free(&self.region, &self.os, id.unit(), self.heap_units());
        drop(heaps);
        self.wake_scavenger();
    }

    /// Adds an owner to a heap.
    pub fn share_heap(&self, id: HeapId, operation: &str) {
        self.heap(id, operation).contents().lock().owners += 1;
    }

    /// Takes an owner off; true if that was the last, who is to delete the heap.
    pub fn unshare_heap(&self, id: HeapId, operation: &str) -> bool {
        let mut contents = self.heap(id, operation).contents().lock();
        contents.owners -= 1;
        contents.owners == 0
    }

    /// A block of a heap, as [`Engine::alloc_aligned`]: null also where the heap's limit forbids it.
    #[inline]
    pub fn heap_alloc(&self, id: HeapId, size: usize, align: usize, operation: &str) -> *mut u8 {
        self.heap(id, operation);
        self.alloc_in(id.unit(), size, align, 0).0
    }

    /// The same, and the first `size` bytes are zero.
    pub fn heap_alloc_zeroed(
        &self,
        id: HeapId,
        size: usize,
        align: usize,
        operation: &str,
    ) -> *mut u8 {
        self.heap(id, operation);
        let (block, zeroed) = self.alloc_in(id.unit(), size, align, 0);
        if !zeroed && !block.is_null() {
            // SAFETY: the block has `size` bytes and is ours until we return it.
            unsafe { self.clear(block, size) };
        }
        block
    }

    /// Frees a block of this heap; one that is not stops the program.
    ///
    /// # Safety
    /// Nobody uses the block any more.
    pub unsafe fn heap_free(&self, id: HeapId, block: *mut u8, operation: &str) {
        self.heap(id, operation);
        let found = self.block_of(id, block, operation);
        self.free_in_heap(found, operation);
    }

    /// Resizes a block of this heap; one that is not stops the program.
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
        // SAFETY: the caller's.
        unsafe { self.realloc_in_heap(found, size, align, operation) }
    }

    /// Bytes that the heap's blocks may use, all together.
    pub fn heap_used(&self, id: HeapId, operation: &str) -> usize {
        self.heap(id, operation).contents().lock().used
    }

    /// Stops the program if this is no heap, or none any more.
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
            true => "heap used after its delete",
            false => "no heap",
        };
        Line::print(&self.os, format_args!("{fault}: {:#x} passed to {operation}", id.to_bits()));
        self.os.abort()
    }

    fn block_of(&self, id: HeapId, block: *mut u8, operation: &str) -> HeapBlock {
        match self.heap_block(block) {
            Some(found) if found.heap == id.unit() => found,
            _ => self.fault("no block of this heap", block, operation),
        }
    }
}
