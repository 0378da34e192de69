//! What programs ask of heaps: making and deleting them, and blocks from them. Heaps have no caches:
//! each call is under the lock of its heap. Their spans and large blocks lie among all others, and the
//! map says that they are a heap's; so `free` and its kind come here for their blocks, and pay
//! nothing for other blocks.

use core::ptr;

use crate::central::{ClassSpans, Growth};
use crate::engine::Engine;
use crate::central::heap_record::{Contents, HeapId, HeapRecord, find, of_block};
use crate::backend::page_map::MapEntry;
use crate::platform::os::{Os, copy};
use crate::backend::page_heap::Granted;
use crate::backend::region::UnitIndex;
use crate::size_class::{SizeClass, UNIT};
use crate::backend::span::Order;
use crate::platform::sync::Guard;
use crate::platform::message::Line;
use crate::backend::units::Units;

/// A block of a heap.
#[derive(Clone, Copy)]
pub(crate) struct HeapBlock {
    pub address: *mut u8,
    /// Where the heap's record lies.
    pub heap: UnitIndex,
    /// Where its span, or the large block itself, begins.
    pub first: UnitIndex,
    /// None for a large block.
    pub class: Option<SizeClass>,
    /// Bytes that may be used.
    pub usable: usize,
}

/// Why a heap gives no block.
pub(crate) enum Short {
    OfMemory,
    ByLimit,
}

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
        self.call_scavenger();
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

    /// The heap's block that begins at this address, if one does.
    pub(crate) fn heap_block(&self, address: *mut u8) -> Option<HeapBlock> {
        let region = &self.region;
        let offset = region.committed_offset(address)?;
        let entry = region.entry(offset / UNIT);
        if !entry.is_of_heap() {
            return None;
        }
        let class = entry.class();
        let within = match class {
            Some(class) => {
                let within = entry.within_span(offset);
                if !class.begins_at(within) {
                    return None;
                }
                within
            }
            None if offset.is_multiple_of(UNIT) => 0,
            None => return None,
        };
        let first = ((offset - within) / UNIT) as UnitIndex;
        let usable = class.map_or_else(|| self.units_of(first) as usize * UNIT, SizeClass::size);
        // SAFETY: committed; the record stays as it is while the block lives.
        let heap = unsafe { (*region.run(first)).heap() };
        Some(HeapBlock { address, heap, first, class, usable })
    }

    /// Length of the run of a large block.
    pub(crate) fn units_of(&self, first: UnitIndex) -> u32 {
        // SAFETY: the unit is committed; its record stays as it is while the block lives.
        unsafe { (*self.region.run(first)).units }
    }

    /// The record of a heap that lies at this unit, if one does: for whoever is not sure.
    pub(crate) fn heap_at(&self, unit: UnitIndex) -> Option<&HeapRecord> {
        let is_one = unit != 0
            && (unit as usize) < self.region.committed() / UNIT
            && self.region.entry(unit as usize) == MapEntry::HEAP;
        // SAFETY: a heap's record lies there.
        is_one.then(|| unsafe { of_block(&self.region, unit) })
    }

    /// Whether nobody is in the heap of which the record lies at this unit.
    pub(crate) fn is_free(&self, heap: UnitIndex) -> bool {
        // SAFETY: as for `contents_of`.
        unsafe { of_block(&self.region, heap) }.contents().is_free()
    }

    pub(crate) fn contents_of(&self, heap: UnitIndex) -> Guard<'_, Contents> {
        self.record_of(heap).contents().lock()
    }

    /// The record of a heap of which a block, or its name, was just seen to be valid; that nobody deletes the heap meanwhile is the
    /// duty of the program.
    pub(crate) fn record_of(&self, heap: UnitIndex) -> &HeapRecord {
        // SAFETY: as said.
        unsafe { of_block(&self.region, heap) }
    }

    /// The same where the heap's limit lets a block have so many bytes, in place of one of `replaced` bytes.
    pub(crate) fn contents_for(
        &self,
        heap: UnitIndex,
        bytes: usize,
        replaced: usize,
    ) -> Result<Guard<'_, Contents>, Short> {
        let contents = self.contents_of(heap);
        if contents.admits(bytes, replaced) { Ok(contents) } else { Err(Short::ByLimit) }
    }

    /// A block of the heap, and whether it reads as zero; `None` if memory is short. It is in place of one of
    /// `replaced` bytes, which is freed next and so is not for the limit to count.
    #[inline(never)]
    pub(crate) fn alloc_unchecked(
        &self,
        heap: UnitIndex,
        size: usize,
        align: usize,
        replaced: usize,
    ) -> Option<(*mut u8, bool)> {
        let class = SizeClass::of_aligned(size, align);
        let alloc = || match class {
            Some(class) => self.alloc_small_in(heap, class, replaced),
            None => self.alloc_large_in(heap, size, align, replaced),
        };
        let granted = alloc().or_else(|short| match short {
            // Free blocks in caches may be all that keeps memory from being free.
            Short::OfMemory if self.could_have(heap, size, align) => {
                self.flush_all();
                alloc()
            }
            _ => Err(short),
        });
        granted.ok()
    }

    /// Whether the heap could have a block of this size and alignment if there were no other. If
    /// not, nothing is given up for it.
    #[cold]
    pub(crate) fn could_have(&self, heap: UnitIndex, size: usize, align: usize) -> bool {
        let bytes = match SizeClass::of_aligned(size, align) {
            Some(class) => Some(class.size()),
            None if self.could_hold(size, align) => Units::for_bytes(size).map(Units::bytes),
            None => None,
        };
        bytes.is_some_and(|bytes| bytes <= self.contents_of(heap).limit)
    }

    fn alloc_small_in(
        &self,
        heap: UnitIndex,
        class: SizeClass,
        replaced: usize,
    ) -> Result<(*mut u8, bool), Short> {
        let mut contents = self.contents_for(heap, class.size(), replaced)?;
        let mut block = [ptr::null_mut()];
        let spans = &mut contents.spans[class.index()];
        let claimed =
            spans.claim(&self.region, &self.os, &self.pages, class, Order::Lowest, &mut block);
        if claimed.blocks == 0 {
            return Err(Short::OfMemory);
        }
        contents.used += class.size();
        if self.counting() {
            self.count_alloc(class.size());
        }
        drop(contents);
        if claimed.growth != Growth::None {
            self.get_at_once(claimed.growth, &block);
            self.want_scavenger();
        }
        Ok((block[0], false))
    }

    fn alloc_large_in(
        &self,
        heap: UnitIndex,
        size: usize,
        align: usize,
        replaced: usize,
    ) -> Result<(*mut u8, bool), Short> {
        let bytes = Units::for_bytes(size).ok_or(Short::OfMemory)?.bytes();
        let mut contents = self.contents_for(heap, bytes, replaced)?;
        let granted = self.large_run(size, align, heap).ok_or(Short::OfMemory)?;
        contents.link(&self.region, granted.first);
        contents.used += bytes;
        drop(contents);
        self.want_scavenger();
        Ok((self.region.address(granted.first), granted.zeroed))
    }

    /// Frees a block of a heap, whichever that is.
    #[inline(never)]
    pub(crate) fn free_unchecked(&self, block: HeapBlock, operation: &str) {
        let mut contents = self.contents_of(block.heap);
        let mut in_bulk = true; // Looking at the time takes longer than all the rest.
        match block.class {
            Some(class) => {
                let spans = &mut contents.spans[class.index()];
                let before = spans.counts.spans;
                let freed =
                    spans.release(&self.region, &self.os, &self.pages, class, &[block.address]);
                in_bulk = spans.counts.spans < before;
                self.insist(freed, operation);
                contents.used -= block.usable;
                if self.counting() {
                    self.count_free(class.size());
                }
            }
            None => {
                contents.unlink(&self.region, block.first);
                contents.used -= block.usable;
                self.free_large_run(block.first, (block.usable / UNIT) as u32);
            }
        }
        // A round takes the lock of each heap.
        drop(contents);
        if in_bulk {
            self.call_scavenger();
        }
    }

    /// Resizes a block of a heap, whichever that is; it stays that heap's.
    ///
    /// # Safety
    /// As for [`Engine::realloc`].
    pub(crate) unsafe fn realloc_unchecked(
        &self,
        block: HeapBlock,
        size: usize,
        align: usize,
        operation: &str,
    ) -> *mut u8 {
        let class = SizeClass::of_aligned(size, align);
        if class.is_some() && class == block.class {
            return block.address;
        }
        let aligned = block.address.addr().is_multiple_of(align);
        if class.is_none() && block.class.is_none() && aligned {
            let resized = self.resize_in_heap(block, size, align);
            if !resized.is_null() {
                self.call_scavenger();
                return resized;
            }
        }
        let new = self.alloc_in(block.heap, size, align, block.usable).0;
        if !new.is_null() {
            // SAFETY: both blocks are as large, and distinct.
            unsafe { copy(block.address, new, block.usable.min(size)) };
            self.free_in_heap(block, operation);
        }
        new
    }

    /// Resizes a large block without copying; null if that is not possible.
    fn resize_in_heap(&self, block: HeapBlock, size: usize, align: usize) -> *mut u8 {
        let units = (block.usable / UNIT) as u32;
        let Some(bytes) = Units::for_bytes(size).map(Units::bytes) else {
            return ptr::null_mut();
        };
        let Ok(mut contents) = self.contents_for(block.heap, bytes, block.usable) else {
            return ptr::null_mut();
        };
        let mut address = block.address;
        if !self.resize_large(block.first, units, size) {
            contents.unlink(&self.region, block.first);
            address = self.move_large((block.first, units), size, align);
            if address.is_null() {
                contents.link(&self.region, block.first);
                return address;
            }
            contents.link(&self.region, (self.region.offset(address) / UNIT) as UnitIndex);
        }
        contents.used = contents.used - block.usable + bytes;
        address
    }

    /// Runs `work` on the spans of which one of this class begins at a unit, by this entry of the map:
    /// those of the class, or of a heap. `None` if there is none any more. What it is by then, `work` has to see.
    pub(crate) fn with_spans_of<R>(
        &self,
        unit: UnitIndex,
        entry: MapEntry,
        class: SizeClass,
        work: impl FnOnce(&mut ClassSpans) -> R,
    ) -> Option<R> {
        if !entry.is_of_heap() {
            return Some(work(&mut self.centrals[class.index()].spans().lock()));
        }
        let work = |contents: &mut Contents| work(&mut contents.spans[class.index()]);
        self.heaps.lock().with_owner_of(&self.region, &self.pages, unit, work)
    }
}
