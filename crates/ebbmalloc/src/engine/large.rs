//! Allocates, frees, resizes and moves large blocks: above 64 KiB, each a run of its own, except
//! medium blocks, which take whole OS pages.

use core::ops::Range;
use core::ptr;

use crate::backend::page_heap::Granted;
use crate::backend::page_map::MapEntry;
use crate::backend::region::UnitIndex;
use crate::backend::run::{Run, RunState, large_bytes};
use crate::backend::tuning::{MEDIUM_BYTES_MAX, PURGED_ZEROS_BYTES_MIN};
use crate::backend::units::{PageRange, UnitRange, Units, is_medium};
use crate::backend::zeroing::is_mostly_zeros;
use crate::engine::Engine;
use crate::engine::lookup::LargeBlock;
use crate::engine::tuning::MOVED_BLOCK_UNITS;
use crate::platform::os::{NotMoved, Os, Refusal, clear, clear_sparse, copy};
use crate::size_class::{SMALL_MAX, UNIT};

/// The outcome of a page move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Moved {
    /// The kernel refused, and nothing has moved.
    No,
    /// As `No`, and the target is not mapped any more.
    TargetLost,
    Yes,
    /// The pages moved, but the kernel did not unmap all of the source: its addresses are lost.
    Stuck,
}

/// The units that hold these bytes.
fn units_for(bytes: usize) -> u32 {
    bytes.div_ceil(UNIT) as u32
}

impl<O: Os> Engine<O> {
    /// Allocates the run of a large block that belongs to `heap`, 0 for none.
    #[inline(never)]
    pub(crate) fn large_run(&self, size: usize, align: usize, heap: UnitIndex) -> Option<Granted> {
        if size > isize::MAX as usize || !self.is_ready() {
            return None;
        }
        let (units, align) = (Units::for_bytes(size)?, Units::for_bytes(align)?);
        let mut pages = self.pages();
        let granted = pages.alloc(units, align)?;
        pages.note(granted.first, size, heap);
        pages.mark_large(granted.first, granted.zeroed);
        drop(pages);
        let entry = MapEntry::LARGE;
        self.region.set_entry(granted.first, if heap == 0 { entry } else { entry.of_heap() });
        self.count_large(self.counted_bytes(size, units, heap));
        Some(granted)
    }

    /// Allocates a large block of no heap; also returns whether it reads as zero.
    pub(crate) fn large(&self, size: usize, align: usize) -> Option<(*mut u8, bool)> {
        let page = self.os.page_size();
        if !is_medium(size, align, page) || !self.is_ready() {
            let Granted { first, zeroed } = self.large_run(size, align, 0)?;
            return Some((self.region.address(first), zeroed));
        }
        let (block, zeroed) = self.pages().alloc_medium(size)?;
        self.count_large(block.len() * page);
        Some((self.address_of(&block), zeroed))
    }

    /// The address at which a medium block begins.
    fn address_of(&self, block: &PageRange) -> *mut u8 {
        // SAFETY: the pages lie in the committed part of the region.
        unsafe { self.region.address(0).add(block.start * self.os.page_size()) }
    }

    /// Frees a large block of no heap, which begins at this address.
    pub(crate) fn free_large(&self, address: *mut u8, block: LargeBlock) {
        if !self.keep_near(address, &block) {
            let bytes = self.large_size(&block);
            if !self.return_large(block, false) {
                self.fault("double free", address, "free");
            }
            self.count_large_freed(bytes);
        }
    }

    /// Copies bytes of one block to another. Pages that were never touched stay so.
    ///
    /// # Safety
    /// Both are the caller's alone, have as many bytes, and do not overlap.
    pub unsafe fn copy(&self, from: *const u8, to: *mut u8, bytes: usize) {
        // SAFETY: the caller guarantees the same.
        unsafe { copy(from, to, bytes) }
    }

    /// Clears the memory of a block: reads it, and writes the pages that hold data. What is long
    /// and seems to hold zeros is purged.
    ///
    /// # Safety
    /// The memory is committed and the caller's alone.
    pub unsafe fn clear(&self, start: *mut u8, bytes: usize) {
        let page = self.os.page_size();
        let before = start.align_offset(page).min(bytes);
        let whole = (bytes - before) / page * page;
        // SAFETY: the caller guarantees that the memory is committed and its own. Only whole pages
        // in it are probed and purged.
        unsafe {
            let pages = start.add(before);
            let has_data = |nth: usize| self.os.has_data(pages.add(nth * page));
            let is_purged = whole >= PURGED_ZEROS_BYTES_MIN
                && is_mostly_zeros(whole / page, self.os.now_ms(), has_data)
                && self.os.purge(pages, whole);
            if !is_purged {
                return clear_sparse(start, bytes);
            }
            clear(start, before);
            clear(pages.add(whole), bytes - before - whole);
        }
        self.pages().count_purge(self.units_around(start, bytes), whole);
    }

    /// Clears the first `bytes` bytes of a new block, unless there is none or it reads as zero.
    /// Returns the block.
    #[inline(never)]
    pub(crate) fn clear_new(&self, (block, zeroed): (*mut u8, bool), bytes: usize) -> *mut u8 {
        if !zeroed && !block.is_null() {
            // SAFETY: the block has at least `bytes` bytes, and is ours until we return it.
            unsafe {
                match bytes <= SMALL_MAX {
                    true => clear(block, bytes),
                    false => self.clear(block, bytes),
                }
            }
        }
        block
    }

    /// The units in which this memory lies; none if it is not the region's.
    fn units_around(&self, start: *mut u8, bytes: usize) -> Range<UnitIndex> {
        let Some(offset) = self.region.committed_offset(start) else { return 0..0 };
        (offset / UNIT) as UnitIndex..(offset + bytes).div_ceil(UNIT) as UnitIndex
    }

    /// Whether a large block of this size and alignment would fit if there were no other block. If
    /// not, emptying caches for it is in vain.
    pub(crate) fn could_hold(&self, size: usize, align: usize) -> bool {
        let (Some(units), Some(align)) = (Units::for_bytes(size), Units::for_bytes(align)) else {
            return false;
        };
        self.is_ready() && self.pages().could_hold(units, align)
    }

    /// Returns the run of a heap's large block to the page heap. Does not look at the block: the
    /// program may have changed its mapping, or the kernel not have copied it in a fork.
    pub(crate) fn free_large_run(&self, first: UnitIndex, units: u32) {
        self.count_large_freed(self.noted_bytes(first));
        self.region.set_entry(first, MapEntry::LARGE_FREED);
        self.pages().free(first, units);
    }

    /// Resizes a large block in place to hold `size` bytes; false if the units behind it are not
    /// free.
    #[inline(never)]
    pub(crate) fn resize_large(&self, first: UnitIndex, units: u32, size: usize) -> bool {
        let (Some(run), Some(needed)) = (UnitRange::of(first, units), Units::for_bytes(size))
        else {
            return false;
        };
        let before = self.noted_bytes(first);
        let mut pages = self.pages();
        pages.is_at_limit = false;
        let heap = pages.heap_of(first);
        if needed < run.length() {
            pages.shrink(run, needed);
        } else if needed > run.length() && !pages.extend(run, needed) {
            return false;
        }
        pages.note(first, size, heap);
        drop(pages);
        self.count_large_freed(before);
        self.count_large(self.noted_bytes(first));
        true
    }

    /// As [`Engine::resize_large`], for a medium block. Where it becomes long enough for moves of
    /// its pages, it becomes a run of its own.
    #[inline(never)]
    pub(crate) fn resize_medium(&self, block: PageRange, size: usize) -> bool {
        let page = self.os.page_size();
        let (first, before) = ((block.start * page / UNIT) as UnitIndex, block.len() * page);
        let Some(units) = Units::for_bytes(size) else {
            return false;
        };
        let mut pages = self.pages();
        pages.is_at_limit = false;
        if size <= SMALL_MAX {
            // A request with an alignment that no small block has.
            return false;
        } else if size <= MEDIUM_BYTES_MAX {
            if !pages.resize_medium(block, size) {
                return false;
            }
        } else {
            if !pages.extend_to_run(block, units) {
                return false;
            }
            pages.note(first, size, 0);
            self.region.set_entry(first, MapEntry::LARGE);
        }
        drop(pages);
        self.count_large_freed(before);
        self.count_large(large_bytes(size, page));
        true
    }

    /// Moves the pages of a large block to a run that holds `size` bytes, without copying. Null if
    /// the block is too short for that to pay off, or if it is not possible.
    #[inline(never)]
    pub(crate) fn move_large(
        &self,
        (first, units): (UnitIndex, u32),
        size: usize,
        align: usize,
    ) -> *mut u8 {
        let (Some(run), Some(needed), Some(align)) =
            (UnitRange::of(first, units), Units::for_bytes(size), Units::for_bytes(align))
        else {
            return ptr::null_mut();
        };
        let length = run.length();
        if length.get() < MOVED_BLOCK_UNITS || needed <= length {
            return ptr::null_mut();
        }
        let (region, before) = (&self.region, self.noted_bytes(first));
        let mut pages = self.pages();
        let granted = pages.alloc_to_move(run, needed, align);
        let Some(Granted { first: target, .. }) = granted else {
            return ptr::null_mut();
        };
        let (heap, lent) = (pages.heap_of(first), pages.lent_to(run));
        pages.note(target, size, heap);
        // Still under the lock: pages move without it, and meanwhile no round may purge the tail
        // behind the block.
        let entry = region.entry(first as usize);
        region.set_entry(first, MapEntry::LARGE_FREED);
        drop(pages);
        let block = region.address(target);
        // SAFETY: both runs are in use. No other thread knows the new one, and the block is the
        // caller's.
        let moved = unsafe { self.move_run((first, length.bytes()), (target, needed.bytes())) };
        let mut pages = self.pages();
        pages.end_move(run);
        match moved {
            Moved::No => {
                region.set_entry(first, entry);
                pages.free_as(target, needed.get(), RunState::Clean, false);
                return ptr::null_mut();
            }
            Moved::TargetLost => {
                region.set_entry(first, entry);
                pages.free_as(target, needed.get(), RunState::Unmapped, false);
                return ptr::null_mut();
            }
            Moved::Yes => pages.free_as(first, units, RunState::Unmapped, false),
            Moved::Stuck => pages.lose(first, units),
        }
        region.set_entry(target, entry);
        if let Some(moved_to) = UnitRange::new(target, needed) {
            pages.move_lent(lent, moved_to);
        }
        drop(pages);
        self.count_large_freed(before);
        self.count_large(self.noted_bytes(target));
        block
    }

    /// Moves the pages of the first `bytes` bytes of a run to the beginning of another run.
    /// Afterwards the first `capacity_bytes` of that run may be used, and the source is unmapped.
    ///
    /// # Safety
    /// Both runs are in use, mapped in whole OS pages, and the caller's alone. `capacity_bytes` is
    /// at least `bytes`, and the second run is at least as long.
    pub(crate) unsafe fn move_run(
        &self,
        (first, bytes): (UnitIndex, usize),
        (target, capacity_bytes): (UnitIndex, usize),
    ) -> Moved {
        let end = first + units_for(bytes);
        let offset_bytes = |at: UnitIndex| (at - first) as usize * UNIT;
        // Before Linux 6.17, one call moves pages of one mapping only. The last mapping moves
        // first, since only this one grows. A kernel may refuse that when it has taken the target,
        // and near a limit it cannot give it back. The target of others it can give back: that
        // takes no more than it freed.
        let last = self.pages.lock().mappings.last(&self.region, first..end);
        let (to, before) = (target + (last - first), offset_bytes(last));
        // SAFETY: the caller guarantees the same for the whole runs.
        let outcome = unsafe {
            self.move_mapping((last, bytes - before), (to, capacity_bytes - before), true)
        };
        let mut is_stuck = match outcome {
            Moved::No => return Moved::No,
            Moved::TargetLost => {
                // SAFETY: the caller owns the target. If this fails too, the page heap gives these
                // addresses up when it finds them mapped.
                let _ =
                    before == 0 || unsafe { self.os.decommit(self.region.address(target), before) };
                return Moved::TargetLost;
            }
            outcome => outcome == Moved::Stuck,
        };
        let mut at = first;
        while at < last {
            let next = self.pages.lock().mappings.end(&self.region, at..last);
            let (to, length) = (target + (at - first), offset_bytes(next) - offset_bytes(at));
            // SAFETY: as before.
            let outcome = unsafe { self.move_mapping((at, length), (to, length), false) };
            is_stuck |= outcome == Moved::Stuck;
            at = next;
        }
        self.pages().record_mapping(first..end, false);
        if is_stuck { Moved::Stuck } else { Moved::Yes }
    }

    /// As [`Engine::move_run`], for runs of one mapping. What the kernel refuses to move is copied,
    /// unless nothing has moved and it `may_fail`.
    ///
    /// # Safety
    /// As for [`Engine::move_run`].
    unsafe fn move_mapping(
        &self,
        (first, bytes): (UnitIndex, usize),
        (target, capacity_bytes): (UnitIndex, usize),
        may_fail: bool,
    ) -> Moved {
        let (source, block) = (self.region.address(first), self.region.address(target));
        // SAFETY: the caller guarantees that both runs are mapped, its own, and long enough.
        let moved = unsafe { self.os.move_pages(source, block, bytes, capacity_bytes) };
        let (moved_bytes, moved_to_bytes) = match moved {
            Ok(()) => (bytes, capacity_bytes),
            Err(NotMoved { moved_bytes: 0, refusal }) if may_fail => {
                return match refusal {
                    Refusal::Addresses => Moved::TargetLost,
                    Refusal::Memory => Moved::No,
                };
            }
            Err(NotMoved { moved_bytes, refusal }) => {
                assert!(refusal != Refusal::Addresses, "the kernel took {bytes} bytes away");
                (moved_bytes, moved_bytes)
            }
        };
        if moved_bytes > 0 {
            let moved = target..target + units_for(moved_to_bytes);
            self.pages().record_mapping(moved, true);
        }
        let rest_bytes = bytes - moved_bytes;
        if rest_bytes == 0 {
            return Moved::Yes;
        }
        // SAFETY: as before. The source is unused once it is copied.
        unsafe {
            let rest = source.add(moved_bytes);
            copy(rest, block.add(moved_bytes), rest_bytes);
            if self.os.decommit(rest, rest_bytes) {
                return Moved::Yes;
            }
            // The pages go at least, if the kernel lets them.
            let _ = self.os.purge(rest, rest_bytes);
        }
        Moved::Stuck
    }

    /// Bytes that a large block in a run of its own counts as: those that the program may use.
    fn counted_bytes(&self, size: usize, units: Units, heap: UnitIndex) -> usize {
        if heap == 0 { large_bytes(size, self.os.page_size()) } else { units.bytes() }
    }

    /// As [`Engine::counted_bytes`], for the block whose run begins here. Its owner calls this.
    pub(crate) fn noted_bytes(&self, first: UnitIndex) -> usize {
        let run = self.region.run(first);
        // SAFETY: the block's run is in use, so its record is committed. Only its owner changes the
        // size, or gives the run back.
        let (size, heap) = unsafe { (Run::asked_at(run), Run::heap_at(run)) };
        Units::new(self.units_of(first)).map_or(0, |units| self.counted_bytes(size, units, heap))
    }

    /// Purges the pages behind the end of the large block that begins at this unit, if one does and
    /// no heap owns it: [`Pages::purge_tail`](crate::backend::page_heap::Pages::purge_tail). Or the
    /// free pages of a paged unit. Returns the bytes purged.
    pub(crate) fn purge_tail(&self, first: UnitIndex, only_quiet: bool) -> usize {
        let mut pages = self.pages();
        // The caller read the entry without the lock: the block may be freed by now.
        match self.region.entry(first as usize) {
            MapEntry::LARGE => pages.purge_tail(first, only_quiet),
            entry if entry.is_paged() => pages.purge_paged(first, only_quiet),
            _ => 0,
        }
    }
}
