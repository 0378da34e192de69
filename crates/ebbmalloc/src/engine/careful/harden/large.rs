//! Implements large blocks in harden mode.
//!
//! The part of a block's run after its last page is inaccessible: it is the block's guard. Once the
//! block is freed, the whole run is inaccessible until it leaves the quarantine. A block whose
//! guard could not be placed skips the quarantine: its run goes back to the page heap at once.

use super::report::Fault;
use crate::backend::guard_pages::Guards;
use crate::backend::page_map::MapEntry;
use crate::backend::region::UnitIndex;
use crate::backend::run::{Run, RunState};
use crate::backend::span::GuardKind;
use crate::backend::units::Units;
use crate::central::heap_record::Contents;
use crate::engine::Engine;
use crate::engine::heap_blocks::AllocError;
use crate::engine::large::Moved;
use crate::engine::lookup::HeapBlock;
use crate::engine::tuning::{HARDENED_PURGE_BYTES_MIN, MOVED_BLOCK_UNITS};
use crate::platform::os::Os;
use crate::safety::seal::{check_fill, fill};
use crate::size_class::UNIT;

/// The layout of a large block in its run, in bytes from the run's start.
struct Layout {
    /// End of the accessible pages, if the block is guarded.
    accessible_bytes: usize,
    /// The block's size plus one page for the guard.
    padded_bytes: usize,
    units: Units,
}

impl<O: Os> Engine<O> {
    /// The layout of a large block of this size; `None` if no run is long enough.
    fn layout_for(&self, size: usize) -> Option<Layout> {
        let page = self.os.page_size();
        let padded_bytes = size.checked_add(page)?;
        let units = Units::for_bytes(padded_bytes)?;
        // Cannot overflow: it is less than `padded_bytes`.
        Some(Layout { accessible_bytes: size.next_multiple_of(page), padded_bytes, units })
    }

    /// [`Layout::accessible_bytes`] of a block of this size.
    fn accessible_bytes(&self, size: usize) -> usize {
        self.layout_for(size).map_or(0, |layout| layout.accessible_bytes)
    }

    /// End of the fill after a block's end, which is checked when the block is freed or resized.
    /// Without a guard, the fill is a page longer.
    fn fill_end(&self, first: UnitIndex, size: usize) -> usize {
        // SAFETY: a large block in use begins at this unit, so its records are valid.
        let (guard, units) =
            unsafe { ((*self.region.span(first)).guard, (*self.region.run(first)).units) };
        let more = if guard == GuardKind::None { self.os.page_size() } else { 0 };
        (self.accessible_bytes(size) + more).min(units as usize * UNIT)
    }

    /// Allocates a large block from a heap. Returns also whether it reads as zero: always true.
    pub(super) fn alloc_large_hardened(
        &self,
        heap: UnitIndex,
        size: usize,
        align: usize,
        replaced: usize,
    ) -> Result<(*mut u8, bool), AllocError> {
        let Layout { accessible_bytes, padded_bytes, units } =
            self.layout_for(size).ok_or(AllocError::OutOfMemory)?;
        let run_bytes = units.bytes();
        let guard_bytes = run_bytes - accessible_bytes;
        let mut contents = self.contents_for(heap, run_bytes, replaced)?;
        let granted = self.large_run(padded_bytes, align, heap);
        let granted = granted.ok_or(AllocError::OutOfMemory)?;
        let (first, block) = (granted.first, self.region.address(granted.first));
        // SAFETY: the run was just granted, with its records. No program has the block yet.
        unsafe {
            let mut pages = self.pages();
            let guard = pages.guards.place(&self.os, block.add(accessible_bytes), guard_bytes);
            let guarded = guard != GuardKind::None;
            pages.note(first, size, heap);
            drop(pages);
            (*self.region.span(first)).guard = guard;
            if !granted.zeroed {
                self.clear_run(block, if guarded { accessible_bytes } else { run_bytes });
            } else if !guarded {
                // The kernel refused the guard, which leaves these contents unspecified.
                self.clear_run(block.add(accessible_bytes), guard_bytes);
            }
            fill(self.setup().secret, block, size, self.fill_end(first, size));
        }
        contents.link(&self.region, first);
        contents.used += run_bytes;
        drop(contents);
        self.start_scavenger_if_due();
        Ok((block, true))
    }

    /// Makes whole pages read as zero.
    ///
    /// # Safety
    /// The pages are committed, and the caller owns them.
    unsafe fn clear_run(&self, start: *mut u8, bytes: usize) {
        // SAFETY: the caller owns these committed pages.
        unsafe {
            if bytes < HARDENED_PURGE_BYTES_MIN || !self.os.purge(start, bytes) {
                start.write_bytes(0, bytes);
            }
        }
    }

    /// The requested size of a large block, or the fault if a byte after its end was written.
    pub(super) fn open_large(&self, block: &HeapBlock) -> Result<usize, Fault> {
        // SAFETY: the block is in use, and its run is accessible up to the end of the fill.
        unsafe {
            let size = Run::asked_at(self.region.run(block.first));
            let end = self.fill_end(block.first, size);
            check_fill(self.setup().secret, block.address, size, end)?;
            Ok(size)
        }
    }

    /// Makes a freed large block inaccessible, and puts it in quarantine. If its pages have `moved`
    /// to another block, it is inaccessible already.
    pub(super) fn retire_large(
        &self,
        contents: &mut Contents,
        block: &HeapBlock,
        size: usize,
        moved: bool,
    ) {
        let (first, units) = (block.first, (block.usable / UNIT) as u32);
        self.remove_large(contents, block);
        let accessible_bytes = if moved { 0 } else { self.accessible_bytes(size) };
        // SAFETY: the program has freed the block, and its accessible pages are committed.
        let decommitted = unsafe {
            let guarded = (*self.region.span(first)).guard != GuardKind::None;
            guarded && (accessible_bytes == 0 || self.os.decommit(block.address, accessible_bytes))
        };
        if !decommitted {
            return self.return_run(first, accessible_bytes, false);
        }
        loop {
            let oldest = contents.quarantine.leaving_large(units, |first| self.units_of(first));
            if oldest == 0 {
                break;
            }
            self.return_quarantined(oldest);
        }
        contents.quarantine.push_large(first, units);
    }

    /// Removes a large block whose addresses cannot be used again. Its units count as foreign.
    fn lose_large(&self, contents: &mut Contents, block: &HeapBlock) {
        let (first, units) = (block.first, (block.usable / UNIT) as u32);
        self.remove_large(contents, block);
        self.count_large_freed(block.usable);
        self.pages().lose(first, units);
    }

    /// Takes a large block out of its heap. A second free of it is seen from now on.
    fn remove_large(&self, contents: &mut Contents, block: &HeapBlock) {
        contents.unlink(&self.region, block.first);
        contents.used -= block.usable;
        self.region.set_entry(block.first, MapEntry::LARGE_FREED);
    }

    /// Returns the runs of all large blocks in a heap's quarantine to the page heap.
    pub(super) fn release_large(&self, contents: &mut Contents) {
        loop {
            let oldest = contents.quarantine.pop_large(|first| self.units_of(first));
            if oldest == 0 {
                break;
            }
            self.return_quarantined(oldest);
        }
    }

    /// Returns the run of a large block that left the quarantine to the page heap.
    fn return_quarantined(&self, first: UnitIndex) {
        // SAFETY: the run was in quarantine, so it is in use, and its record did not change.
        let size = unsafe { Run::asked_at(self.region.run(first)) };
        self.return_run(first, self.accessible_bytes(size), true);
    }

    /// Returns the run of a large block to the page heap. A guarded run has its guard after
    /// `accessible_bytes`; if `decommitted`, the bytes before it were too.
    #[inline(never)]
    fn return_run(&self, first: UnitIndex, accessible_bytes: usize, decommitted: bool) {
        let (units, block) = (self.units_of(first), self.region.address(first));
        let bytes = units as usize * UNIT;
        self.count_large_freed(bytes);
        let mut pages = self.pages();
        // SAFETY: the block is freed, so the caller owns the run. If it is guarded, the guard
        // begins after `accessible_bytes`.
        unsafe {
            let guarded = (*self.region.span(first)).guard != GuardKind::None;
            if guarded && decommitted {
                pages.record_mapping(first..first + units, false);
            }
            if guarded && !pages.unguard((first, units), accessible_bytes, decommitted) {
                return;
            }
            match decommitted || self.os.purge(block, bytes) {
                true => {
                    pages.free_as(first, units, RunState::Clean, true);
                }
                false => pages.free(first, units),
            }
        }
    }

    /// Returns the run of a large block whose heap is being deleted to the page heap, unchecked.
    pub(crate) fn delete_large(&self, first: UnitIndex) {
        self.region.set_entry(first, MapEntry::LARGE_FREED);
        // SAFETY: a large block in use begins at this unit, so its record is valid.
        let size = unsafe { Run::asked_at(self.region.run(first)) };
        self.return_run(first, self.accessible_bytes(size), false);
    }

    /// Resizes a large block within its run, if it keeps all of its pages. The caller holds the
    /// lock of its heap.
    pub(super) fn resize_large_hardened(&self, block: &HeapBlock, old: usize, size: usize) -> bool {
        let (first, address) = (block.first, block.address);
        let Some(Layout { accessible_bytes: to, units, .. }) = self.layout_for(size) else {
            return false;
        };
        let (from, is_same_run) = (self.accessible_bytes(old), units.bytes() == block.usable);
        // SAFETY: the program owns the block, and waits for this call. Bytes from `from` on are its
        // guard, which is checked first.
        unsafe {
            let guard = (*self.region.span(first)).guard;
            if !is_same_run || to < from || guard == GuardKind::None {
                return false;
            }
            if to > from && Guards::lift(&self.os, guard, address.add(from), to - from).is_err() {
                return false;
            }
            address.add(old.min(size)).write_bytes(0, from.min(size).saturating_sub(old));
            self.pages().note(first, size, block.heap);
            fill(self.setup().secret, address, size, self.fill_end(first, size));
        }
        true
    }

    /// Moves the pages of a large block to a larger one, and frees the old one. `No` if that is not
    /// possible, or slower than copying. With `TargetLost`, which happens at a limit, the kernel
    /// has taken the new block, and the old one stays.
    pub(super) fn move_contents(
        &self,
        block: &HeapBlock,
        old: usize,
        new: *mut u8,
        size: usize,
    ) -> Moved {
        let bytes = self.accessible_bytes(old);
        let pays_off = size > old && bytes >= MOVED_BLOCK_UNITS as usize * UNIT;
        let first = (self.region.offset(new) / UNIT) as UnitIndex;
        let moved;
        // SAFETY: two distinct blocks in use. The program owns the old one, and waits for this
        // call; no program has the new one yet.
        unsafe {
            // Only a guarded block is wholly inaccessible once its pages have moved.
            let moves = pays_off && (*self.region.span(block.first)).guard != GuardKind::None;
            if !moves {
                return Moved::No;
            }
            moved = self.move_run((block.first, bytes), (first, self.accessible_bytes(size)));
            if moved == Moved::TargetLost {
                let usable = self.units_of(first) as usize * UNIT;
                let lost = HeapBlock { address: new, first, usable, ..*block };
                self.remove_large(&mut self.lock_heap(block.heap), &lost);
                self.return_run(first, self.accessible_bytes(size), true);
                return moved;
            }
            if moved == Moved::No {
                // The attempt lost the contents of the new block, and with them its fill.
                fill(self.setup().secret, new, size, self.fill_end(first, size));
                return moved;
            }
            new.add(old).write_bytes(0, bytes.min(size) - old);
            fill(self.setup().secret, new, size, self.fill_end(first, size));
        }
        let mut contents = self.lock_heap(block.heap);
        if moved == Moved::Stuck {
            self.lose_large(&mut contents, block);
        } else {
            self.retire_large(&mut contents, block, old, true);
        }
        moved
    }
}
