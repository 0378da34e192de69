//! Allocates, frees and resizes blocks of heaps, without checks, under the lock of their heap.
//!
//! Spans and large blocks of heaps lie among all others. The page map marks them as a heap's, so
//! calls on other blocks pay nothing for heaps.

use core::ptr;

use crate::backend::region::UnitIndex;
use crate::backend::span::Order;
use crate::backend::units::Units;
use crate::central::BadBlock;
use crate::central::heap_record::{Contents, record};
use crate::engine::Engine;
use crate::engine::lookup::HeapBlock;
use crate::platform::os::{Os, copy};
use crate::platform::sync::Guard;
use crate::size_class::{SizeClass, UNIT};

/// Why a heap cannot allocate a block.
pub(crate) enum AllocError {
    OutOfMemory,
    /// The block would exceed the heap's limit.
    OverLimit,
}

impl<O: Os> Engine<O> {
    /// Locks a heap, if its limit admits a block of `bytes` in place of one of `replaced` bytes.
    pub(crate) fn contents_for(
        &self,
        heap: UnitIndex,
        bytes: usize,
        replaced: usize,
    ) -> Result<Guard<'_, Contents>, AllocError> {
        let contents = self.lock_heap(heap);
        if contents.admits(bytes, replaced) { Ok(contents) } else { Err(AllocError::OverLimit) }
    }

    /// Allocates a block from the heap. Returns also whether it reads as zero; `None` without
    /// memory, or beyond the limit. The limit does not count the `replaced` bytes of a block that
    /// the caller frees next.
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
        let granted = alloc().or_else(|error| match error {
            // Free blocks in caches may be all that pins spans.
            AllocError::OutOfMemory if self.could_hold_in_heap(heap, size, align) => {
                self.flush_all();
                alloc()
            }
            _ => Err(error),
        });
        granted.ok()
    }

    /// Turns a failed allocation of `size` bytes in this heap into a null block, and sets `errno`.
    pub(crate) fn or_null(
        &self,
        granted: Option<(*mut u8, bool)>,
        heap: UnitIndex,
        size: usize,
    ) -> (*mut u8, bool) {
        granted.unwrap_or_else(|| {
            let is_unlimited = self.lock_heap(heap).limit == usize::MAX;
            if is_unlimited {
                self.refuse(size)
            } else {
                self.refuse_silently()
            }
            (ptr::null_mut(), false)
        })
    }

    /// Whether the heap could hold a block of this size and alignment if it had no other. If not,
    /// the caller need not empty caches for it.
    #[cold]
    pub(crate) fn could_hold_in_heap(&self, heap: UnitIndex, size: usize, align: usize) -> bool {
        let bytes = match SizeClass::of_aligned(size, align) {
            Some(class) => Some(class.size()),
            None if self.could_hold(size, align) => Units::for_bytes(size).map(Units::bytes),
            None => None,
        };
        bytes.is_some_and(|bytes| bytes <= self.lock_heap(heap).limit)
    }

    pub(crate) fn alloc_small_in(
        &self,
        heap: UnitIndex,
        class: SizeClass,
        replaced: usize,
    ) -> Result<(*mut u8, bool), AllocError> {
        let mut contents = self.contents_for(heap, class.size(), replaced)?;
        let mut block = [ptr::null_mut()];
        let spans = &mut contents.spans[class.index()];
        let claimed = spans.claim(&self.memory(), class, Order::Lowest, &mut block);
        if claimed.blocks == 0 {
            return Err(AllocError::OutOfMemory);
        }
        contents.used += class.size();
        self.count_alloc(class.size());
        drop(contents);
        if claimed.has_grown {
            self.start_scavenger_if_due();
        }
        Ok((block[0], false))
    }

    fn alloc_large_in(
        &self,
        heap: UnitIndex,
        size: usize,
        align: usize,
        replaced: usize,
    ) -> Result<(*mut u8, bool), AllocError> {
        let bytes = Units::for_bytes(size).ok_or(AllocError::OutOfMemory)?.bytes();
        let mut contents = self.contents_for(heap, bytes, replaced)?;
        let granted = self.large_run(size, align, heap).ok_or(AllocError::OutOfMemory)?;
        contents.link(&self.region, granted.first);
        contents.used += bytes;
        drop(contents);
        self.start_scavenger_if_due();
        Ok((self.region.address(granted.first), granted.zeroed))
    }

    /// Frees a block of any heap.
    #[inline(never)]
    pub(crate) fn free_unchecked(&self, block: HeapBlock, operation: &str) {
        if self.returned(self.return_to_heap(block), operation) {
            self.notify_scavenger();
        }
    }

    /// What [`Engine::return_to_heap`] returned. Aborts the program if that was an error. The
    /// caller holds no lock: the program's handler of SIGABRT may fork.
    pub(crate) fn returned(&self, result: Result<bool, BadBlock>, operation: &str) -> bool {
        self.abort_on_bad_block(result.map(|_| ()), operation);
        result == Ok(true)
    }

    /// Locks the heap that a block seemed to belong to. `None` if another thread has freed the
    /// block meanwhile, and perhaps allocated another one there.
    pub(crate) fn lock_owner(&self, block: &HeapBlock) -> Option<Guard<'_, Contents>> {
        let contents = record(&self.region, block.heap)?.contents().lock();
        self.is_still(block).then_some(contents)
    }

    /// Whether the block is still what was looked up. The caller holds the lock of its heap.
    fn is_still(&self, block: &HeapBlock) -> bool {
        self.heap_block(block.address) == Some(*block)
    }

    /// Frees a block of any heap, and does not notify the scavenger. Returns whether to do so: only
    /// for whole runs, since reading the clock takes longer than all the rest of this call. A round
    /// of the scavenger takes the locks of the list of heaps and of each heap.
    pub(crate) fn return_to_heap(&self, block: HeapBlock) -> Result<bool, BadBlock> {
        let mut contents = self.lock_owner(&block).ok_or(BadBlock::Twice(block.address))?;
        let mut frees_run = true;
        match block.class {
            Some(class) => {
                let spans = &mut contents.spans[class.index()];
                let spans_before = spans.counts.spans;
                spans.release(&self.memory(), class, &[block.address])?;
                frees_run = spans.counts.spans < spans_before;
                contents.used -= block.usable;
                self.count_free(class.size());
            }
            None => {
                contents.unlink(&self.region, block.first);
                contents.used -= block.usable;
                self.free_large_run(block.first, (block.usable / UNIT) as u32);
            }
        }
        Ok(frees_run)
    }

    /// Resizes a block of any heap. It stays in that heap.
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
                self.notify_scavenger();
                return resized;
            }
        }
        let granted = self.alloc_unchecked(block.heap, size, align, block.usable);
        let (new, _) = self.or_null(granted, block.heap, size);
        if !new.is_null() {
            // SAFETY: two distinct blocks. The old one has `usable` bytes, the new one `size`.
            unsafe { copy(block.address, new, block.usable.min(size)) };
            self.free_unchecked(block, operation);
        }
        new
    }

    /// Resizes a large block without copying. Returns null if that is not possible.
    fn resize_in_heap(&self, block: HeapBlock, size: usize, align: usize) -> *mut u8 {
        let units = (block.usable / UNIT) as u32;
        let Some(bytes) = Units::for_bytes(size).map(Units::bytes) else {
            return ptr::null_mut();
        };
        let Ok(mut contents) = self.contents_for(block.heap, bytes, block.usable) else {
            return ptr::null_mut();
        };
        // Another thread may have freed the block meanwhile: the free that follows tells.
        if !self.is_still(&block) {
            return ptr::null_mut();
        }
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
}
