//! Looks up addresses: which small block, large block or block of a heap begins there, if any. It
//! reports no misuse and aborts no program; `misuse` does.

use crate::backend::page_map::MapEntry;
use crate::backend::region::UnitIndex;
use crate::backend::run::{Run, large_bytes};
use crate::backend::units::{PageRange, pages_for};
use crate::central::heap_record::{Contents, HeapRecord, of_block};
use crate::engine::Engine;
use crate::platform::os::Os;
use crate::platform::sync::Guard;
use crate::size_class::{SizeClass, UNIT};
use core::ptr;

/// A block of a heap.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct HeapBlock {
    pub address: *mut u8,
    /// The unit of the heap's record.
    pub heap: UnitIndex,
    /// The first unit of its span, or of the large block itself.
    pub first: UnitIndex,
    /// `None` for a large block.
    pub class: Option<SizeClass>,
    /// Bytes that the program may use.
    pub usable: usize,
}

/// Where a large block of no heap lies.
pub(crate) enum LargeBlock {
    /// In a run of its own: its first unit, and its length in units.
    Run(UnitIndex, u32),
    /// In these OS pages.
    Medium(PageRange),
}

impl<O: Os> Engine<O> {
    /// The size class of the small block that begins at this address, if one does and no heap owns
    /// it.
    #[inline(always)]
    pub(crate) fn class_at(&self, block: *mut u8) -> Option<SizeClass> {
        self.region.class_at_first(block).or_else(|| self.region.class_at_later(block))
    }

    /// Bytes that the program may use of a block of `size` requested bytes that no heap owns. The
    /// block is of this class, or large.
    pub(crate) fn usable_for(&self, size: usize, class: Option<SizeClass>) -> usize {
        class.map_or_else(|| large_bytes(size, self.os.page_size()), SizeClass::size)
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
        // SAFETY: the unit is committed, and its record does not change while the block lives.
        let heap = unsafe { Run::heap_at(region.run(first)) };
        Some(HeapBlock { address, heap, first, class, usable })
    }

    /// The large block that begins at this address, if one does and no heap owns it.
    pub(crate) fn large_block(&self, address: *mut u8) -> Option<LargeBlock> {
        let offset = self.region.committed_offset(address)?;
        self.large_block_of(offset, self.region.entry(offset / UNIT))
    }

    /// The large block at this offset, if this is the entry of its unit.
    pub(crate) fn large_block_of(&self, offset: usize, entry: MapEntry) -> Option<LargeBlock> {
        let (first, page) = ((offset / UNIT) as UnitIndex, self.os.page_size());
        if !entry.is_large() || entry.is_of_heap() || offset % UNIT != entry.begin(page) {
            return None;
        }
        if !entry.is_medium() {
            return Some(LargeBlock::Run(first, self.units_of(first)));
        }
        // SAFETY: the unit is committed, and only a resize of the block changes the size in its
        // record.
        let size = unsafe { Run::medium_asked_at(self.region.run(first)) };
        Some(LargeBlock::Medium(pages_for(offset / page, size, page)))
    }

    /// Length in units of the run of a large block.
    pub(crate) fn units_of(&self, first: UnitIndex) -> u32 {
        // SAFETY: the unit is committed, and its record does not change while the block lives.
        unsafe { (*self.region.run(first)).units }
    }

    /// The record of a heap. The caller has just found the heap's id, or a block of the heap, to be
    /// valid. The program must not delete the heap meanwhile.
    pub(crate) fn record_of(&self, heap: UnitIndex) -> &HeapRecord {
        // SAFETY: the caller found the heap valid, and the program does not delete it meanwhile.
        unsafe { of_block(&self.region, heap) }
    }

    /// Locks a heap, which is as for [`Engine::record_of`].
    pub(crate) fn lock_heap(&self, heap: UnitIndex) -> Guard<'_, Contents> {
        self.record_of(heap).contents().lock()
    }

    /// Bytes that the program may use of this large block.
    pub(crate) fn large_size(&self, block: &LargeBlock) -> usize {
        let page = self.os.page_size();
        match block {
            // SAFETY: the unit is committed, and only a resize of the block changes the size in its
            // record.
            LargeBlock::Run(first, _) => unsafe {
                large_bytes(Run::asked_at(self.region.run(*first)), page)
            },
            LargeBlock::Medium(pages) => pages.len() * page,
        }
    }

    /// The beginning of the small block that an address lies in. Any other address in the region is
    /// returned as it is, and null for one outside of it.
    pub(crate) fn block_around(&self, address: usize) -> *mut u8 {
        let pointer = ptr::without_provenance_mut(address);
        let Some(offset) = self.region.committed_offset(pointer) else {
            return ptr::null_mut();
        };
        let entry = self.region.entry(offset / UNIT);
        let Some(class) = entry.class() else {
            return pointer;
        };
        let within = entry.within_span(offset);
        pointer.wrapping_sub(within - class.block_at(within) * class.size())
    }
}
