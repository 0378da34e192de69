//! Large blocks: above 64 KiB, each a run of its own. And what is left of the addresses that
//! programs pass in: those at which no block begins.

use core::ptr;

use crate::backend::page_heap::Granted;
use crate::backend::page_map::MapEntry;
use crate::backend::region::UnitIndex;
use crate::backend::units::{UnitRange, Units};
use crate::engine::Engine;
use crate::engine::tuning::MOVED_BLOCK_UNITS;
use crate::platform::os::{Os, clear};
use crate::size_class::UNIT;

/// What became of pages that were to move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Moved {
    /// Nothing, as the kernel refused.
    No,
    Yes,
    /// They have, but some of the addresses where they were are still mapped: nobody can use these.
    Stuck,
}

impl<O: Os> Engine<O> {
    /// A run of its own for a block, and whether it reads as zero; null if there is no room.
    pub(crate) fn alloc_large(&self, size: usize, align: usize) -> (*mut u8, bool) {
        match self.large_run(size, align, 0) {
            Some(granted) => (self.region.address(granted.first), granted.zeroed),
            None => (ptr::null_mut(), false),
        }
    }

    /// The same for a block of this heap, 0 for none, as a run.
    #[inline(never)]
    pub(crate) fn large_run(&self, size: usize, align: usize, heap: UnitIndex) -> Option<Granted> {
        if size > isize::MAX as usize || !self.is_ready() {
            return None;
        }
        let (units, align) = (Units::for_bytes(size)?, Units::for_bytes(align)?);
        let mut pages = self.pages.lock();
        let granted = pages.alloc(&self.region, &self.os, units, align)?;
        match granted.zeroed {
            true => pages.record_clean_block(&self.region, granted.first, size, heap),
            false => pages.note(&self.region, granted.first, size, heap),
        }
        drop(pages);
        let entry = MapEntry::LARGE;
        self.region.set_entry(granted.first, if heap == 0 { entry } else { entry.of_heap() });
        self.counters.add_large(units.get());
        if self.counting() {
            self.count_alloc(units.bytes());
        }
        Some(granted)
    }

    /// Notes that a large block, if it is one of no heap, was handed out as zeros.
    pub(crate) fn mark_zeroed(&self, block: *mut u8) {
        if let Some(offset) = self.region.committed_offset(block) {
            let first = (offset / UNIT) as UnitIndex;
            if self.region.entry(first as usize) == MapEntry::LARGE {
                self.pages.lock().mark_zeroed(&self.region, first);
            }
        }
    }

    /// How much of this memory to write zeros to, which begins at an OS page: [`Zeroing::to_write`](crate::backend::zeroing::Zeroing::to_write).
    ///
    /// # Safety
    /// The memory is the caller's, and committed.
    unsafe fn to_write(&self, start: *mut u8, bytes: usize) -> usize {
        let page = self.os.page_size();
        // SAFETY: the caller's.
        self.zeroing.to_write(bytes, page, |nth| unsafe { self.os.has_data(start.add(nth * page)) })
    }

    /// Has memory of a block read as zero. Long memory that nobody seems to have touched goes back to the kernel.
    ///
    /// # Safety
    /// The memory is the caller's, and committed.
    pub(crate) unsafe fn clear(&self, start: *mut u8, bytes: usize) {
        let page = self.os.page_size();
        let before = start.align_offset(page).min(bytes);
        let whole = (bytes - before) / page * page;
        // SAFETY: the caller's; whole pages of that memory are looked at, and given back.
        let gone = unsafe {
            let written = before + self.to_write(start.add(before), whole);
            let gone = before + whole - written;
            if gone == 0 || !self.os.purge(start.add(written), gone) {
                return clear(start, bytes);
            }
            clear(start, written);
            clear(start.add(before + whole), bytes - before - whole);
            gone
        };
        self.pages.lock().count_purge(gone / UNIT);
    }

    /// Whether there could be room for a large block of this size and alignment if there were no
    /// other. If not, nothing is given up for it.
    pub(crate) fn could_hold(&self, size: usize, align: usize) -> bool {
        let (Some(units), Some(align)) = (Units::for_bytes(size), Units::for_bytes(align)) else {
            return false;
        };
        self.is_ready() && self.pages.lock().could_hold(&self.region, units, align)
    }

    /// Frees a large block of no heap; an address that is none stops the program.
    pub(crate) fn free_large(&self, block: *mut u8, operation: &str) {
        let (first, units) = self.large_units(block, operation);
        self.free_large_run(first, units);
    }

    pub(crate) fn free_large_run(&self, first: UnitIndex, units: u32) {
        self.region.set_entry(first, MapEntry::LARGE_FREED);
        self.counters.remove_large(units);
        if self.counting() {
            self.count_free(units as usize * UNIT);
        }
        let mut pages = self.pages.lock();
        if !pages.is_marked_zeroed(&self.region, first) {
            return pages.free(&self.region, &self.os, first, units);
        }
        drop(pages);
        let untouched = self.untouched(first, units);
        let mut pages = self.pages.lock();
        match untouched {
            true => pages.free_untouched(&self.region, &self.os, first, units),
            false => pages.free(&self.region, &self.os, first, units),
        }
    }

    /// Whether nobody seems to have touched a run that was handed out as zeros; and then what is resident of it goes
    /// back to the kernel. Otherwise it would count as resident memory that is free.
    fn untouched(&self, first: UnitIndex, units: u32) -> bool {
        let (start, bytes) = (self.region.address(first), units as usize * UNIT);
        // SAFETY: a run in use whose block is given up.
        unsafe {
            // What lies behind the block's end may have gone before.
            self.to_write(start, self.large_size(first)) == 0 && self.os.purge(start, bytes)
        }
    }

    /// Resizes a large block in place to hold `size` bytes; false if it has no room to grow.
    #[inline(never)]
    pub(crate) fn resize_large(&self, first: UnitIndex, units: u32, size: usize) -> bool {
        let (Some(run), Some(wanted)) = (UnitRange::of(first, units), Units::for_bytes(size))
        else {
            return false;
        };
        let mut pages = self.pages.lock();
        let heap = pages.heap_of(&self.region, first);
        if wanted < run.length() {
            pages.shrink(&self.region, &self.os, run, wanted);
        } else if wanted > run.length() && !pages.extend(&self.region, &self.os, run, wanted) {
            return false;
        }
        pages.note(&self.region, first, size, heap);
        drop(pages);
        self.count_resized(run.length(), wanted);
        true
    }

    /// Moves a large block to where it can have `size` bytes, its pages and all, without copying. Null
    /// if the block is too small for that to pay off, or if it is not possible.
    #[inline(never)]
    pub(crate) fn move_large(
        &self,
        (first, units): (UnitIndex, u32),
        size: usize,
        align: usize,
    ) -> *mut u8 {
        let (Some(run), Some(wanted), Some(align)) =
            (UnitRange::of(first, units), Units::for_bytes(size), Units::for_bytes(align))
        else {
            return ptr::null_mut();
        };
        let length = run.length();
        if length.get() < MOVED_BLOCK_UNITS || wanted <= length {
            return ptr::null_mut();
        }
        let region = &self.region;
        let mut pages = self.pages.lock();
        let granted = pages.alloc_to_move(region, &self.os, run, wanted, align);
        let Some(Granted { first: target, .. }) = granted else {
            return ptr::null_mut();
        };
        let heap = pages.heap_of(region, first);
        pages.note(region, target, size, heap);
        drop(pages);
        let block = region.address(target);
        // SAFETY: two runs in use that nobody else knows or, as for the block, may use meanwhile.
        let moved = unsafe { self.move_run((first, length.bytes()), (target, wanted.bytes())) };
        if moved == Moved::No {
            self.pages.lock().free_untouched(region, &self.os, target, wanted.get());
            return ptr::null_mut();
        }
        region.set_entry(target, region.entry(first as usize));
        region.set_entry(first, MapEntry::LARGE_FREED);
        self.count_resized(length, wanted);
        let mut pages = self.pages.lock();
        match moved {
            Moved::Stuck => pages.lose(region, first, units),
            _ => pages.free_moved(region, &self.os, first, units),
        }
        drop(pages);
        block
    }

    /// Moves the pages of the first `bytes` bytes of a run to the beginning of another, whose first `room` bytes may be used
    /// then; the addresses where they were are mapped no more.
    ///
    /// # Safety
    /// Both are in use, mapped in whole OS pages, and the caller's; the second is as long at least.
    pub(crate) unsafe fn move_run(
        &self,
        (first, bytes): (UnitIndex, usize),
        (target, room): (UnitIndex, usize),
    ) -> Moved {
        let (region, os) = (&self.region, &self.os);
        let units = |bytes: usize| bytes.div_ceil(UNIT) as u32;
        let end = first + units(bytes);
        let (mut at, mut gone) = (first, true);
        // The kernel moves pages of one mapping only, before Linux 6.17.
        while at < end {
            let next = self.pages.lock().mapping_end(region, at..end);
            let done = (at - first) as usize * UNIT;
            let length = (bytes - done).min((next - at) as usize * UNIT);
            let more = if next == end { room - done } else { length };
            let to = target + (at - first);
            let (source, block) = (region.address(at), region.address(to));
            // SAFETY: the caller's.
            unsafe {
                if !os.move_pages(source, block, length, more) {
                    if at == first {
                        return Moved::No;
                    }
                    // There is no way back. What could not be moved is copied.
                    ptr::copy_nonoverlapping(source, block, bytes - done);
                    gone = os.purge(source, bytes - done) && os.decommit(source, bytes - done);
                    break;
                }
            }
            self.pages.lock().record_mapping(region, to..to + units(more), true);
            at = next;
        }
        self.pages.lock().record_mapping(region, first..end, false);
        if gone { Moved::Yes } else { Moved::Stuck }
    }

    fn count_resized(&self, from: Units, to: Units) {
        self.counters.remove_large(from.get());
        self.counters.add_large(to.get());
        if self.counting() {
            self.count_free(from.bytes());
            self.count_alloc(to.bytes());
        }
    }

    /// Returns what is behind the end of a large block to the kernel, if one begins here that is no heap's: [`crate::backend::page_heap::PageHeap::purge_tail`].
    pub(crate) fn purge_tail(&self, first: UnitIndex, only_quiet: bool) -> usize {
        let mut pages = self.pages.lock();
        // It may be gone by now.
        match self.region.entry(first as usize) {
            MapEntry::LARGE => pages.purge_tail(&self.region, &self.os, first, only_quiet),
            _ => 0,
        }
    }
}
