//! What lies at an address: a block of a size class, a large block, a block of a heap, or none.
//! Nothing here reports or stops; `misuse` does.

use crate::backend::page_map::MapEntry;
use crate::backend::region::UnitIndex;
use crate::backend::run::Run;
use crate::backend::run::large_bytes;
use crate::backend::span::Span;
use crate::central::ClassSpans;
use crate::central::heap_record::Contents;
use crate::central::heap_record::HeapRecord;
use crate::central::heap_record::of_block;
use crate::engine::Engine;
use crate::platform::os::Os;
use crate::platform::sync::Guard;
use crate::size_class::SizeClass;
use crate::size_class::UNIT;
use core::ptr;

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

impl<O: Os> Engine<O> {
    /// The class of the span in which a block begins at this address, if one does.
    #[inline(always)]
    pub(crate) fn class_at(&self, block: *mut u8) -> Option<SizeClass> {
        self.region.class_at_first(block).or_else(|| self.region.class_at_later(block))
    }

    /// Bytes that may be used of a block of this size, which is of this class, or large, and of no heap.
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

    /// The record of a heap of which a block, or its name, was just seen to be valid; that nobody deletes the heap meanwhile is the
    /// duty of the program.
    pub(crate) fn record_of(&self, heap: UnitIndex) -> &HeapRecord {
        // SAFETY: as said.
        unsafe { of_block(&self.region, heap) }
    }

    pub(crate) fn contents_of(&self, heap: UnitIndex) -> Guard<'_, Contents> {
        self.record_of(heap).contents().lock()
    }

    /// Whether nobody is in the heap of which the record lies at this unit.
    pub(crate) fn is_free(&self, heap: UnitIndex) -> bool {
        // SAFETY: as for `contents_of`.
        unsafe { of_block(&self.region, heap) }.contents().is_free()
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

    /// Bytes that may be used of the large block that begins here, which is no heap's.
    pub(crate) fn large_size(&self, first: UnitIndex) -> usize {
        // SAFETY: the unit is committed; what its record says of the size stays as it is while nobody resizes the block.
        unsafe { Run::usable(self.region.run(first), self.os.page_size()) }
    }

    /// The record of the span of this class that begins at a unit, if one does, as it is for a moment.
    pub(crate) fn copy_of_span(&self, unit: usize, class: SizeClass) -> Option<Span> {
        let copy = |spans: &mut ClassSpans| spans.copy(&self.region, class, unit as u32);
        self.with_spans_of(unit as u32, self.region.entry(unit), class, copy)?
    }

    /// Where the small block begins that an address lies in; any other address is that of a large one, or of none.
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
