//! Check mode (`EBB_CHECK`): each block has a record, bytes behind its end that nobody may write, and a time in
//! quarantine once it is freed. Everything here may cost, as the hot paths never come here.
//!
//! All blocks are blocks of a heap then: of those that programs make, or of one that is made for the rest. So the hot path
//! of `free` finds none of its own, and each call comes to `heaps.rs`, which asks here. The lock of the table is held
//! for no call of the engine, nor while anything is reported.

mod report;

use crate::engine::tuning::LEAKS_LISTED_MAX;
use crate::engine::tuning::{
    CANARY_BYTES_MAX, CANARY_BYTES_MIN, CHECK_QUARANTINE_BYTES, CHECK_QUARANTINED_BLOCK_BYTES_MAX,
};
use crate::platform::options::CheckChoice;
use crate::safety::tuning::STACK_CALLS_MAX;
use core::ptr;

use report::Fault;

use crate::backend::page_heap::Granted;
use crate::backend::region::UnitIndex;
use crate::backend::units::Units;
use crate::central::heap_record::HeapId;
use crate::engine::Engine;
use crate::engine::lookup::HeapBlock;
use crate::platform::os::Os;
use crate::safety::check_table::{CANARY, Event, FREED, Record, Ref, State, damage};
use crate::size_class::SizeClass;

impl<O: Os> Engine<O> {
    /// The program is about to begin: blocks so far are the loader's, and not listed when they are still held at exit.
    pub fn begin_check(&self) {
        self.check_table.lock().begin();
    }

    /// What set-up does for check mode: the unit of the heap of all blocks that are no other heap's; `None` while
    /// there is no memory for checking.
    pub(crate) fn set_up_check(&self) -> Option<UnitIndex> {
        if !self.check_table.lock().set_up(&self.os) {
            return None;
        }
        let Granted { first, .. } =
            self.pages.lock().alloc(&self.region, &self.os, Units::ONE, Units::ONE)?;
        Some(self.heaps.lock().add(&self.region, first, usize::MAX).unit())
    }

    /// What this thread does, and by which calls.
    #[inline(always)]
    fn event(&self) -> Event {
        let mut calls = [0; STACK_CALLS_MAX];
        let known = self.os.calls(&mut calls);
        self.check_table.lock().event(&self.os, &calls[..known])
    }

    /// A block of this heap, and whether it reads as zero; `None` if memory is short. Each function more between here and
    /// [`Engine::event`] costs the unwinder a quarter of a microsecond, so they are inlined.
    #[inline(always)]
    pub(crate) fn alloc_checked(
        &self,
        heap: UnitIndex,
        size: usize,
        align: usize,
        replaced: usize,
    ) -> Option<(*mut u8, bool)> {
        for last in [false, true] {
            if last {
                let padded = size.checked_add(CANARY_BYTES_MIN);
                if !padded.is_some_and(|padded| self.could_hold_in_heap(heap, padded, align)) {
                    break;
                }
                self.leave_quarantine(0);
            }
            let granted = self.alloc_noted(heap, size, align, replaced);
            if granted.is_some() {
                return granted;
            }
        }
        None
    }

    /// The same, without giving up what is in quarantine.
    #[inline(always)]
    fn alloc_noted(
        &self,
        heap: UnitIndex,
        size: usize,
        align: usize,
        replaced: usize,
    ) -> Option<(*mut u8, bool)> {
        let padded = size.checked_add(CANARY_BYTES_MIN)?;
        let (block, zeroed) = self.alloc_unchecked(heap, padded, align, replaced)?;
        let class = self.heap_block(block).and_then(|found| found.class);
        // Before the block is in the table, where others look at it.
        for (from, to) in self.canaries(block, size) {
            // SAFETY: the block is ours yet, and has as many bytes.
            unsafe { block.add(from).write_bytes(CANARY, to - from) };
        }
        let by = self.event();
        let list = (heap, self.record_of(heap).checked());
        let noted = (block, size, class.map_or(0, SizeClass::index));
        if !self.check_table.lock().insert(&self.os, noted, list, by) {
            self.free_at_once(block);
            return None;
        }
        Some((block, zeroed))
    }

    /// What is looked at behind a block of this size, from where to where: its first bytes, and its last, which are in front of
    /// the next block.
    fn canaries(&self, block: *mut u8, size: usize) -> [(usize, usize); 2] {
        let usable = self.heap_block(block).map_or(size, |found| found.usable).max(size);
        let end = usable.min(size.saturating_add(CANARY_BYTES_MAX));
        [(size, end), (end.max(usable.saturating_sub(CANARY_BYTES_MAX)), usable)]
    }

    /// Frees a block, if with a size, then with this one.
    #[inline(never)]
    pub(crate) fn free_checked(&self, block: *mut u8, given: Option<usize>, operation: &str) {
        let by = self.event();
        let mut table = self.check_table.lock();
        let found = table.find(block);
        let (place, record) = match self.judge(found, given) {
            Ok(found) => found,
            Err((fault, record)) => {
                drop(table);
                self.report(fault, block, record, operation);
            }
        };
        if record.size <= CHECK_QUARANTINED_BLOCK_BYTES_MAX {
            // SAFETY: the program has given it up, and nobody else has it yet.
            unsafe { block.write_bytes(FREED, record.size) };
            table.retire(place, by, State::Quarantined);
            drop(table);
            self.leave_quarantine(CHECK_QUARANTINE_BYTES);
        } else {
            table.retire(place, by, State::Gone);
            drop(table);
            self.free_at_once(block);
        }
    }

    /// What may be freed or resized, or what is wrong with that.
    fn judge(
        &self,
        found: Option<(Ref, Record)>,
        given: Option<usize>,
    ) -> Result<(Ref, Record), (Fault, Option<Record>)> {
        let Some((place, record)) = found else {
            // A block begins there by the map: it was freed so long ago that nothing else is known.
            return Err((Fault::Freed, None));
        };
        let fault = match given {
            _ if !record.is_live() => Some(Fault::Freed),
            Some(given) if given != record.size => Some(Fault::Size(given)),
            _ => self.damage(&record),
        };
        fault.map_or(Ok((place, record)), |fault| Err((fault, Some(record))))
    }

    /// What was written in a block where nobody may.
    fn damage(&self, record: &Record) -> Option<Fault> {
        let &Record { block, size, state, .. } = record;
        if state == State::Gone {
            return None;
        }
        for (from, to) in self.canaries(block, size) {
            // SAFETY: the block has as many bytes.
            if let Some((at, found)) = unsafe { damage(block, from, to, CANARY) } {
                return Some(Fault::Overflow(at, found));
            }
        }
        let freed = if state == State::Quarantined { size } else { 0 };
        // SAFETY: as above.
        unsafe { damage(block, 0, freed, FREED) }.map(|(at, found)| Fault::Written(at, found))
    }

    /// Lets blocks out of the quarantine until it holds no more than `most` bytes.
    #[inline(never)]
    fn leave_quarantine(&self, most: usize) {
        loop {
            let mut table = self.check_table.lock();
            let Some(record) = table.leave(most) else {
                return;
            };
            let fault = self.damage(&record);
            drop(table);
            if let Some(fault) = fault {
                self.report(fault, record.block, Some(record), "a look at freed blocks");
            }
            self.free_at_once(record.block);
        }
    }

    /// Frees a block for good, of which there is no record, or which is gone by that.
    fn free_at_once(&self, block: *mut u8) {
        if let Some(found) = self.heap_block(block) {
            self.free_unchecked(found, "free");
        }
    }

    /// Bytes of a block that were asked for. One that is not in use, or was written behind its end, stops the
    /// program.
    pub(crate) fn size_checked(&self, block: *mut u8, operation: &str) -> usize {
        let found = self.check_table.lock().find(block);
        match self.judge(found, None) {
            Ok((_, record)) => record.size,
            Err((fault, record)) => self.report(fault, block, record, operation),
        }
    }

    /// Resizes a block, which always moves: whoever still uses the old one is found.
    pub(crate) fn realloc_checked(
        &self,
        block: HeapBlock,
        size: usize,
        align: usize,
        operation: &str,
    ) -> *mut u8 {
        let old = self.size_checked(block.address, operation);
        let (new, _) = self.or_null(self.alloc_checked(block.heap, size, align, block.usable));
        if !new.is_null() {
            // SAFETY: both blocks are as large, and distinct.
            unsafe { ptr::copy_nonoverlapping(block.address, new, old.min(size)) };
            self.free_checked(block.address, None, operation);
            // The limit did not count the old block, which is in quarantine now.
            let contents = self.contents_of(block.heap);
            let beyond = contents.used > contents.limit;
            drop(contents);
            if beyond {
                self.leave_quarantine(0);
            }
        }
        new
    }

    /// Looks at all blocks of a heap that goes with all of them.
    pub(crate) fn delete_checked(&self, id: HeapId, operation: &str) {
        let list = self.record_of(id.unit()).checked();
        let damaged = self.check_table.lock().find_map_of(list, self.damaged());
        self.stop_if(damaged, operation);
        let by = self.event();
        self.check_table.lock().retire_heap(list, by);
    }

    /// Looks at all blocks, in use or in quarantine. Damage stops the program.
    pub(crate) fn verify_all(&self, operation: &str) {
        let damaged = self.check_table.lock().find_map(self.damaged());
        self.stop_if(damaged, operation);
    }

    /// What finds damage in blocks, one by one.
    fn damaged(&self) -> impl Fn(&Record) -> Option<(Fault, Record)> {
        |record| self.damage(record).map(|fault| (fault, *record))
    }

    fn stop_if(&self, damaged: Option<(Fault, Record)>, operation: &str) {
        if let Some((fault, record)) = damaged {
            self.report(fault, record.block, Some(record), operation);
        }
    }

    /// What check mode does when the process exits.
    pub(crate) fn finish_check(&self) {
        self.verify_all("exit");
        if self.setup().options.check == CheckChoice::NoLeaks {
            return;
        }
        // Under no lock of ours, as it takes the loader's.
        let library = self.os.c_library();
        let mut table = self.check_table.lock();
        table.reach(&library, &|address| self.block_around(address));
        let all = table.count_held(&library);
        drop(table);
        if all.blocks == 0 {
            return;
        }
        let (bytes, blocks) = (all.bytes, all.blocks);
        self.say(format_args!("still held at exit: {bytes} bytes in {blocks} blocks"));
        let mut rest = all;
        for _ in 0..LEAKS_LISTED_MAX {
            let mut table = self.check_table.lock();
            let Some((stack, held)) = table.most_held() else {
                return;
            };
            let mut calls = [0; STACK_CALLS_MAX];
            let known = table.calls(stack, &mut calls);
            drop(table);
            self.say(format_args!(
                "  {} bytes in {} blocks, allocated here:",
                held.bytes, held.blocks
            ));
            self.print_calls(&calls[..known]);
            rest.bytes -= held.bytes;
            rest.blocks -= held.blocks;
        }
        if rest.blocks > 0 {
            self.say(format_args!(
                "  and {} bytes in {} blocks elsewhere",
                rest.bytes, rest.blocks
            ));
        }
    }
}
