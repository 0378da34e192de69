//! Large blocks, hardened: from the end of a block's last page on its run is out of reach, and all of it once the block is
//! freed, until the run leaves the quarantine. Where no guard could be placed, the block goes back at once.

use super::report::Fault;
use crate::backend::page_map::MapEntry;
use crate::backend::region::UnitIndex;
use crate::backend::units::Units;
use crate::central::heap_record::Contents;
use crate::engine::Engine;
use crate::engine::large::Moved;
use crate::engine::tuning::HARDENED_PURGE_BYTES_MIN;
use crate::engine::tuning::MOVED_BLOCK_UNITS;
use crate::engine::{careful::heap_blocks::Short, lookup::HeapBlock};
use crate::platform::os::Os;
use crate::safety::seal::{check_fill, fill};
use crate::size_class::UNIT;

/// How a large block lies in its run, counted from the run's start.
struct Room {
    /// Bytes that are in reach, where the block is guarded: whole pages.
    reach: usize,
    /// The block's size and that of its guard.
    padded: usize,
    units: Units,
}

impl<O: Os> Engine<O> {
    /// How a large block of this size lies in its run; `None` where no run is so long.
    fn room_for(&self, size: usize) -> Option<Room> {
        let page = self.os.page_size();
        let padded = size.checked_add(page)?;
        let units = Units::for_bytes(padded)?;
        // Less than `padded`.
        Some(Room { reach: size.next_multiple_of(page), padded, units })
    }

    /// [`Room::reach`] of a block in use.
    fn reach(&self, size: usize) -> usize {
        self.room_for(size).map_or(0, |room| room.reach)
    }

    /// Where the bytes end that are looked at behind a block's end.
    fn fill_end(&self, first: UnitIndex, size: usize) -> usize {
        // SAFETY: a large block in use begins there.
        let (guarded, units) =
            unsafe { ((*self.region.span(first)).guarded, (*self.region.run(first)).units) };
        let more = if guarded { 0 } else { self.os.page_size() };
        (self.reach(size) + more).min(units as usize * UNIT)
    }

    /// A large block of a heap, and whether it reads as zero, which it does.
    pub(super) fn alloc_large_hardened(
        &self,
        heap: UnitIndex,
        size: usize,
        align: usize,
        replaced: usize,
    ) -> Result<(*mut u8, bool), Short> {
        let Room { reach, padded, units } = self.room_for(size).ok_or(Short::OfMemory)?;
        let room = units.bytes();
        let mut contents = self.contents_for(heap, room, replaced)?;
        let granted = self.large_run(padded, align, heap).ok_or(Short::OfMemory)?;
        let (first, block) = (granted.first, self.region.address(granted.first));
        // SAFETY: the run is ours yet, with its records.
        unsafe {
            let mut pages = self.pages.lock();
            let guarded = pages.guards.place(&self.os, block.add(reach), room - reach);
            pages.note(&self.region, first, size, heap);
            drop(pages);
            (*self.region.span(first)).guarded = guarded;
            if !granted.zeroed {
                self.clear_run(block, if guarded { reach } else { room });
            } else if !guarded {
                self.clear_run(block.add(reach), room - reach); // Unspecified, where the kernel refused.
            }
            fill(self.setup().secret, block, size, self.fill_end(first, size));
        }
        contents.link(&self.region, first);
        contents.used += room;
        drop(contents);
        self.start_scavenger_if_due();
        Ok((block, true))
    }

    /// Has whole pages read as zero.
    ///
    /// # Safety
    /// They are committed and the caller's.
    unsafe fn clear_run(&self, start: *mut u8, bytes: usize) {
        // SAFETY: the caller's.
        unsafe {
            if bytes < HARDENED_PURGE_BYTES_MIN || !self.os.purge(start, bytes) {
                start.write_bytes(0, bytes);
            }
        }
    }

    /// The size of a large block, if nothing was written behind it.
    pub(super) fn open_large(&self, block: &HeapBlock) -> Result<usize, Fault> {
        // SAFETY: the block is in use, and has as many bytes.
        unsafe {
            let size = (*self.region.run(block.first)).asked();
            let end = self.fill_end(block.first, size);
            check_fill(self.setup().secret, block.address, size, end)?;
            Ok(size)
        }
    }

    /// Puts a large block that was freed out of reach, where its pages have not `moved`, and in quarantine.
    pub(super) fn retire_large(
        &self,
        contents: &mut Contents,
        block: &HeapBlock,
        size: usize,
        moved: bool,
    ) {
        let (first, units) = (block.first, (block.usable / UNIT) as u32);
        contents.unlink(&self.region, first);
        contents.used -= block.usable;
        self.region.set_entry(first, MapEntry::LARGE_FREED);
        let reach = if moved { 0 } else { self.reach(size) };
        // SAFETY: the program has given it up.
        let hidden = unsafe {
            let guarded = (*self.region.span(first)).guarded;
            guarded && (reach == 0 || self.os.decommit(block.address, reach))
        };
        if !hidden {
            return self.give_back_large(first, reach, false);
        }
        loop {
            let oldest = contents.quarantine.leaving_large(units, |first| self.units_of(first));
            if oldest == 0 {
                break;
            }
            self.give_back_held(oldest);
        }
        contents.quarantine.push_large(first, units);
    }

    /// Forgets a large block whose addresses cannot be used any more.
    fn lose_large(&self, contents: &mut Contents, block: &HeapBlock) {
        let (first, units) = (block.first, (block.usable / UNIT) as u32);
        contents.unlink(&self.region, first);
        contents.used -= block.usable;
        self.region.set_entry(first, MapEntry::LARGE_FREED);
        self.counters.remove_large(units);
        if self.counting() {
            self.count_free(block.usable);
        }
        self.pages.lock().lose(&self.region, first, units);
    }

    /// Gives all large blocks back that a heap holds back.
    pub(super) fn release_large(&self, contents: &mut Contents) {
        loop {
            let oldest = contents.quarantine.pop_large(|first| self.units_of(first));
            if oldest == 0 {
                break;
            }
            self.give_back_held(oldest);
        }
    }

    /// Gives a large block back that was held back.
    fn give_back_held(&self, first: UnitIndex) {
        // SAFETY: nobody else has the run, whose record stays as it was.
        let size = unsafe { (*self.region.run(first)).asked() };
        self.give_back_large(first, self.reach(size), true);
    }

    /// Gives the run of a large block back to the page heap, which is guarded from so many bytes on, if it is; they are `hidden` too
    /// while it is held back.
    #[inline(never)]
    fn give_back_large(&self, first: UnitIndex, reach: usize, hidden: bool) {
        let (units, block) = (self.units_of(first), self.region.address(first));
        let bytes = units as usize * UNIT;
        self.counters.remove_large(units);
        if self.counting() {
            self.count_free(bytes);
        }
        let mut pages = self.pages.lock();
        // SAFETY: nobody's any more, and out of reach from there on if it is guarded.
        unsafe {
            let guarded = (*self.region.span(first)).guarded;
            if guarded && hidden {
                pages.record_mapping(&self.region, first..first + units, false);
            }
            let run = (first, units);
            if guarded && !pages.guards.remove(&self.region, &self.os, run, reach, hidden) {
                self.region.set_entry(first, MapEntry::NONE);
                return;
            }
            match hidden || self.os.purge(block, bytes) {
                true => pages.free_clean(&self.region, &self.os, first, units),
                false => pages.free(&self.region, &self.os, first, units),
            }
        }
    }

    /// Gives a large block back, whatever is in it: the end of its heap.
    pub(crate) fn delete_large(&self, first: UnitIndex) {
        self.region.set_entry(first, MapEntry::LARGE_FREED);
        // SAFETY: a large block in use begins there.
        let size = unsafe { (*self.region.run(first)).asked() };
        self.give_back_large(first, self.reach(size), false);
    }

    /// Resizes a large block within its run, if it does not have less pages then. Its heap is locked.
    pub(super) fn resize_large_hardened(&self, block: &HeapBlock, old: usize, size: usize) -> bool {
        let (first, address) = (block.first, block.address);
        let Some(Room { reach: to, units, .. }) = self.room_for(size) else {
            return false;
        };
        let (from, same) = (self.reach(old), units.bytes() == block.usable);
        // SAFETY: the block is the program's, which waits, and out of reach from there on if it is guarded.
        unsafe {
            if !same || to < from || !(*self.region.span(first)).guarded {
                return false;
            }
            if to > from && !self.os.show(address.add(from), to - from) {
                return false;
            }
            address.add(old.min(size)).write_bytes(0, from.min(size).saturating_sub(old));
            self.pages.lock().note(&self.region, first, size, block.heap);
            fill(self.setup().secret, address, size, self.fill_end(first, size));
        }
        true
    }

    /// Moves the pages of a large block to another that is larger, and frees it. False if that is not possible, or not worth
    /// it.
    pub(super) fn move_contents(
        &self,
        block: &HeapBlock,
        old: usize,
        new: *mut u8,
        size: usize,
    ) -> bool {
        let bytes = self.reach(old);
        let worth = size > old && bytes >= MOVED_BLOCK_UNITS as usize * UNIT;
        let first = (self.region.offset(new) / UNIT) as UnitIndex;
        let moved;
        // SAFETY: two blocks in use, one of them ours yet and the other the program's, which waits.
        unsafe {
            // All of a block that is guarded is out of reach once its pages are gone.
            let worth = worth && (*self.region.span(block.first)).guarded;
            if !worth {
                return false;
            }
            moved = self.move_run((block.first, bytes), (first, self.reach(size)));
            if moved == Moved::No {
                // What was there is lost.
                fill(self.setup().secret, new, size, self.fill_end(first, size));
                return false;
            }
            new.add(old).write_bytes(0, bytes.min(size) - old);
            fill(self.setup().secret, new, size, self.fill_end(first, size));
        }
        let mut contents = self.contents_of(block.heap);
        if moved == Moved::Stuck {
            self.lose_large(&mut contents, block);
        } else {
            self.retire_large(&mut contents, block, old, true);
        }
        true
    }
}
