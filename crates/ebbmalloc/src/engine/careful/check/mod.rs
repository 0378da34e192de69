//! Implements check mode (`EBB_CHECK`): keeps a record of each block, a canary after its end, and
//! each freed block in quarantine for a while. It may be slow, since the hot paths never come here.
//!
//! All blocks are blocks of heaps: of the program's, or of one default heap for the rest. So the
//! hot path of `free` recognises none of them, and each call comes through `careful/mod.rs`. While
//! this code holds the table's lock, it takes no other lock and prints nothing.

mod report;

use crate::engine::tuning::{
    CANARY_BYTES_MAX, CANARY_BYTES_MIN, CHECK_QUARANTINE_BYTES, CHECK_QUARANTINED_BLOCK_BYTES_MAX,
    LEAKS_LISTED_MAX,
};
use crate::options::CheckChoice;
use crate::safety::tuning::STACK_CALLS_MAX;

use report::Fault;

use crate::backend::page_heap::Granted;
use crate::backend::region::UnitIndex;
use crate::backend::units::Units;
use crate::central::heap_record::HeapId;
use crate::engine::Engine;
use crate::engine::lookup::HeapBlock;
use crate::platform::os::{Os, copy};
use crate::safety::check_table::{BlockRecord, BlockState, CANARY, Event, FREED, Ref, damage};
use crate::size_class::SizeClass;

impl<O: Os> Engine<O> {
    /// Marks the start of the program. Blocks allocated before are the loader's, and are not listed
    /// if they are still held at exit.
    pub fn begin_check(&self) {
        self.check_table.lock().begin();
    }

    /// Sets check mode up: makes its table, and the default heap for all blocks of no heap of the
    /// program's. Returns the heap's unit; `None` while there is no memory for both.
    pub(crate) fn set_up_check(&self) -> Option<UnitIndex> {
        if !self.check_table.lock().set_up(&self.os) {
            return None;
        }
        let Granted { first, .. } = self.pages().alloc(Units::ONE, Units::ONE)?;
        Some(self.heaps.lock().add(&self.region, first, usize::MAX).unit())
    }

    /// Records the calling thread and its stack of calls.
    #[inline(always)]
    fn event(&self) -> Event {
        let mut calls = [0; STACK_CALLS_MAX];
        let depth = self.os.calls(&mut calls);
        self.check_table.lock().event(&self.os, &calls[..depth])
    }

    /// Allocates a block from this heap. Returns also whether it reads as zero; `None` without
    /// memory, or beyond the heap's limit. If need be, it empties the quarantine.
    ///
    /// Each frame between here and [`Engine::event`] costs the unwinder a quarter of a microsecond,
    /// so these functions are inlined.
    #[inline(always)]
    pub(crate) fn alloc_checked(
        &self,
        heap: UnitIndex,
        size: usize,
        align: usize,
        replaced: usize,
    ) -> Option<(*mut u8, bool)> {
        for is_retry in [false, true] {
            if is_retry {
                let padded = size.checked_add(CANARY_BYTES_MIN);
                if !padded.is_some_and(|padded| self.could_hold_in_heap(heap, padded, align)) {
                    break;
                }
                self.shrink_quarantine(0);
            }
            let granted = self.alloc_recorded(heap, size, align, replaced);
            if granted.is_some() {
                return granted;
            }
        }
        None
    }

    /// Allocates a block, fills its canaries and records it. Leaves the quarantine as it is.
    #[inline(always)]
    fn alloc_recorded(
        &self,
        heap: UnitIndex,
        size: usize,
        align: usize,
        replaced: usize,
    ) -> Option<(*mut u8, bool)> {
        let padded = size.checked_add(CANARY_BYTES_MIN)?;
        let (block, zeroed) = self.alloc_unchecked(heap, padded, align, replaced)?;
        let class = self.heap_block(block).and_then(|found| found.class);
        // Filled before the block is in the table: from then on, other threads check them.
        for (from, to) in self.canaries(block, size) {
            // SAFETY: no program has the block yet, and both ranges end at its usable size or
            // before.
            unsafe { block.add(from).write_bytes(CANARY, to - from) };
        }
        let by = self.event();
        let list = (heap, self.record_of(heap).checked());
        let new = (block, size, class.map_or(0, SizeClass::index));
        if !self.check_table.lock().insert(&self.os, new, list, by) {
            self.free_at_once(block);
            return None;
        }
        Some((block, zeroed))
    }

    /// The canaries of a block of this size, as ranges of offsets from its start: right after its
    /// end, and right before the next block.
    fn canaries(&self, block: *mut u8, size: usize) -> [(usize, usize); 2] {
        let usable = self.heap_block(block).map_or(size, |found| found.usable).max(size);
        let end = usable.min(size.saturating_add(CANARY_BYTES_MAX));
        [(size, end), (end.max(usable.saturating_sub(CANARY_BYTES_MAX)), usable)]
    }

    /// Frees a block, and puts it in quarantine unless it is too large. A `given` size is compared
    /// with the block's.
    #[inline(never)]
    pub(crate) fn free_checked(&self, block: *mut u8, given: Option<usize>, operation: &str) {
        let by = self.event();
        let mut table = self.check_table.lock();
        let found = table.find(block);
        let (reference, record) = match self.judge(found, given) {
            Ok(found) => found,
            Err((fault, record)) => {
                drop(table);
                self.report(fault, block, record, operation);
            }
        };
        if record.size <= CHECK_QUARANTINED_BLOCK_BYTES_MAX {
            // SAFETY: the program has freed the block, and it is in use until it leaves the
            // quarantine.
            unsafe { block.write_bytes(FREED, record.size) };
            table.retire(reference, by, BlockState::Quarantined);
            drop(table);
            self.shrink_quarantine(CHECK_QUARANTINE_BYTES);
        } else {
            table.retire(reference, by, BlockState::Gone);
            drop(table);
            self.free_at_once(block);
            self.shrink_quarantine(CHECK_QUARANTINE_BYTES);
        }
    }

    /// Checks a block that is about to be freed or resized, `given` its size if the caller passed
    /// one. Returns its record, or the fault.
    fn judge(
        &self,
        found: Option<(Ref, BlockRecord)>,
        given: Option<usize>,
    ) -> Result<(Ref, BlockRecord), (Fault, Option<BlockRecord>)> {
        let Some((reference, record)) = found else {
            // The map says that a block begins there. It was freed so long ago that its record is
            // gone.
            return Err((Fault::Freed, None));
        };
        let fault = match given {
            _ if !record.is_live() => Some(Fault::Freed),
            Some(given) if given != record.size => Some(Fault::Size(given)),
            _ => self.damage(&record),
        };
        fault.map_or(Ok((reference, record)), |fault| Err((fault, Some(record))))
    }

    /// The first damaged byte of a block: in its canaries, or in its contents if it is in
    /// quarantine.
    fn damage(&self, record: &BlockRecord) -> Option<Fault> {
        let &BlockRecord { block, size, state, .. } = record;
        if state == BlockState::Gone {
            return None;
        }
        for (from, to) in self.canaries(block, size) {
            // SAFETY: a block that is not gone is in use, and both ranges end at its usable size.
            if let Some((at, found)) = unsafe { damage(block, from, to, CANARY) } {
                return Some(Fault::Overflow(at, found));
            }
        }
        let freed_bytes = if state == BlockState::Quarantined { size } else { 0 };
        // SAFETY: as before; the block has `size` bytes.
        unsafe { damage(block, 0, freed_bytes, FREED) }.map(|(at, found)| Fault::Written(at, found))
    }

    /// Checks and frees the oldest blocks in quarantine until it holds at most `max_bytes`.
    ///
    /// Another thread may delete the heap of such a block, which would free the block once more. So
    /// the list of heaps stays locked until the block is back in its heap.
    #[inline(never)]
    fn shrink_quarantine(&self, max_bytes: usize) {
        loop {
            let heaps = self.heaps.lock();
            let mut table = self.check_table.lock();
            let Some(record) = table.leave(max_bytes) else {
                return;
            };
            let fault = self.damage(&record);
            drop(table);
            if let Some(fault) = fault {
                drop(heaps);
                self.report(fault, record.block, Some(record), "a check of freed blocks");
            }
            let found = self.heap_block(record.block);
            let returned = found.map_or(Ok(false), |found| self.return_to_heap(found));
            drop(heaps);
            if self.returned(returned, "free") {
                self.notify_scavenger();
            }
        }
    }

    /// Returns a block to its heap. It has no record, or one that says it is gone.
    fn free_at_once(&self, block: *mut u8) {
        if let Some(found) = self.heap_block(block) {
            self.free_unchecked(found, "free");
        }
    }

    /// The requested size of a block. A fault, such as a freed block or a damaged canary, stops the
    /// program.
    pub(crate) fn size_checked(&self, block: *mut u8, operation: &str) -> usize {
        let found = self.check_table.lock().find(block);
        match self.judge(found, None) {
            Ok((_, record)) => record.size,
            Err((fault, record)) => self.report(fault, block, record, operation),
        }
    }

    /// Resizes a block. It always moves, so that uses of the old address are found.
    pub(crate) fn realloc_checked(
        &self,
        block: HeapBlock,
        size: usize,
        align: usize,
        operation: &str,
    ) -> *mut u8 {
        let old = self.size_checked(block.address, operation);
        let granted = self.alloc_checked(block.heap, size, align, block.usable);
        let (new, _) = self.or_null(granted, block.heap, size);
        if !new.is_null() {
            // SAFETY: two distinct blocks. The old one has `old` bytes, the new one `size`.
            unsafe { copy(block.address, new, old.min(size)) };
            self.free_checked(block.address, None, operation);
            // The limit did not count the old block. It counts now, in quarantine.
            let contents = self.lock_heap(block.heap);
            let exceeds_limit = contents.used > contents.limit;
            drop(contents);
            if exceeds_limit {
                self.shrink_quarantine(0);
            }
        }
        new
    }

    /// Checks all blocks of a heap that is about to be deleted, and retires their records.
    pub(crate) fn delete_checked(&self, id: HeapId, operation: &str) {
        let list = self.record_of(id.unit()).checked();
        let damaged = self.check_table.lock().find_map_of(list, self.find_damage());
        self.abort_on_damage(damaged, operation);
        let by = self.event();
        self.check_table.lock().retire_heap(list, by);
        self.shrink_quarantine(CHECK_QUARANTINE_BYTES);
    }

    /// Checks all blocks, in use or in quarantine. Damage stops the program.
    pub(crate) fn verify_all(&self, operation: &str) {
        let damaged = self.check_table.lock().find_map(self.find_damage());
        self.abort_on_damage(damaged, operation);
    }

    /// A function from a block's record to the block's damage, if it has some.
    fn find_damage(&self) -> impl Fn(&BlockRecord) -> Option<(Fault, BlockRecord)> {
        |record| self.damage(record).map(|fault| (fault, *record))
    }

    fn abort_on_damage(&self, damaged: Option<(Fault, BlockRecord)>, operation: &str) {
        if let Some((fault, record)) = damaged {
            self.report(fault, record.block, Some(record), operation);
        }
    }

    /// Checks all blocks when the process exits, and lists those that the program still holds.
    pub(crate) fn finish_check(&self) {
        self.verify_all("exit");
        if self.setup().options.check == CheckChoice::NoLeaks {
            return;
        }
        // Called under no lock of the engine, since it takes the loader's.
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
            let depth = table.calls(stack, &mut calls);
            drop(table);
            self.say(format_args!(
                "  {} bytes in {} blocks, allocated here:",
                held.bytes, held.blocks
            ));
            self.print_calls(&calls[..depth]);
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
