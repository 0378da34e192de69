//! Blocks of heaps where nothing more is done with them: allocates, frees and resizes them under the
//! lock of their heap. Their spans and large blocks lie among all others; the page map marks them as
//! a heap's, so that calls on other blocks pay nothing for heaps.

use crate::engine::lookup::HeapBlock;
use core::ptr;

use crate::backend::region::UnitIndex;
use crate::backend::span::Order;
use crate::backend::units::Units;
use crate::central::Growth;
use crate::central::heap_record::Contents;
use crate::engine::Engine;
use crate::platform::os::{Os, copy};
use crate::platform::sync::Guard;
use crate::size_class::{SizeClass, UNIT};

/// Why a heap gives no block.
pub(crate) enum Short {
    OfMemory,
    ByLimit,
}

impl<O: Os> Engine<O> {
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
            Short::OfMemory if self.could_hold_in_heap(heap, size, align) => {
                self.flush_all();
                alloc()
            }
            _ => Err(short),
        });
        granted.ok()
    }

    /// What an allocation is to the program: a null block, which the operating system below is told of, where there is none.
    pub(crate) fn or_null(&self, granted: Option<(*mut u8, bool)>) -> (*mut u8, bool) {
        granted.unwrap_or_else(|| {
            self.os.out_of_memory();
            (ptr::null_mut(), false)
        })
    }

    /// Whether the heap could have a block of this size and alignment if there were no other. If
    /// not, nothing is given up for it.
    #[cold]
    pub(crate) fn could_hold_in_heap(&self, heap: UnitIndex, size: usize, align: usize) -> bool {
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
            self.populate_new_span(claimed.growth, &block);
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
    ) -> Result<(*mut u8, bool), Short> {
        let bytes = Units::for_bytes(size).ok_or(Short::OfMemory)?.bytes();
        let mut contents = self.contents_for(heap, bytes, replaced)?;
        let granted = self.large_run(size, align, heap).ok_or(Short::OfMemory)?;
        contents.link(&self.region, granted.first);
        contents.used += bytes;
        drop(contents);
        self.start_scavenger_if_due();
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
                self.abort_on_bad_block(freed, operation);
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
            self.wake_scavenger();
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
                self.wake_scavenger();
                return resized;
            }
        }
        let new = self.or_null(self.alloc_unchecked(block.heap, size, align, block.usable)).0;
        if !new.is_null() {
            // SAFETY: both blocks are as large, and distinct.
            unsafe { copy(block.address, new, block.usable.min(size)) };
            self.free_unchecked(block, operation);
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
}
