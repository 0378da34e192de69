//! The check table (`EBB_CHECK`): records each block, and the stacks that allocated and freed it.
//!
//! It lies apart from all blocks, where a write past a block's end does not reach it.

mod records;
mod stacks;

use core::ptr;

pub(crate) use crate::backend::arena::Ref;
pub(crate) use records::{BlockRecord, BlockState, Event};
pub(crate) use stacks::Held;

use crate::backend::arena::Arena;
use crate::backend::chunks::Chunks;
use crate::backend::region::UnitIndex;
use crate::platform::os::{CLibrary, Os};
use crate::platform::sync::AtomicUsize;
use crate::safety::tuning::{GONE_RECORDS_MAX, STACK_CALLS_MAX};
use crate::telemetry::ledger::HeldBack;
use records::Records;
use stacks::Stacks;

/// All state of check mode but its set-up.
pub(crate) struct CheckTable {
    arena: Arena,
    records: Records,
    stacks: Stacks,
    /// Blocks with lower numbers were allocated before the program began.
    begin: u64,
}

// SAFETY: the table's memory is its own. Its pointers to blocks are used by `reach`, and by
// `engine/careful/check`, under the lock of the table or for blocks that the calling
// thread owns.
unsafe impl Send for CheckTable {}

impl CheckTable {
    pub const fn new() -> Self {
        Self { arena: Arena::new(), records: Records::new(), stacks: Stacks::new(), begin: 0 }
    }

    /// Sets up the table. Returns false if memory is short; the caller may try again.
    pub fn set_up(&mut self, os: &impl Os) -> bool {
        self.records.set_up(os) && self.stacks.set_up(os)
    }

    /// The memory of the table.
    pub fn chunks(&self) -> [&Chunks; 3] {
        [self.arena.chunks(), self.records.chunks(), self.stacks.chunks()]
    }

    /// Counts of blocks in quarantine.
    pub fn held_back(&self) -> &HeldBack {
        &self.records.held_back
    }

    /// The program begins: all later blocks are its own.
    pub fn begin(&mut self) {
        self.begin = self.records.allocated;
    }

    /// Makes an event of this thread with the stack in `calls`.
    pub fn event(&mut self, os: &impl Os, calls: &[usize]) -> Event {
        let stack = self.stacks.intern(&mut self.arena, os, calls);
        Event { stack, thread: os.thread_id() }
    }

    /// Records a new block. Returns false if memory is short.
    ///
    /// `class` is the index of its size class, 0 for a large block. `heap` is the unit of its
    /// heap's record, and `list_word` that heap's word for its list of records.
    pub fn insert(
        &mut self,
        os: &impl Os,
        (block, size, class): (*mut u8, usize, usize),
        (heap, list_word): (UnitIndex, &AtomicUsize),
        by: Event,
    ) -> bool {
        self.records.insert(&mut self.arena, os, (block, size, class), (heap, list_word), by)
    }

    /// Finds the newest record of a block at this address.
    pub fn find(&self, block: *mut u8) -> Option<(Ref, BlockRecord)> {
        let found = self.records.find(&self.arena, block)?;
        Some((found, Records::get(&self.arena, found)))
    }

    /// Finds the newest block, in use or not, that this address lies in, or directly behind.
    pub fn around(&self, address: *mut u8) -> Option<BlockRecord> {
        let mut found: Option<BlockRecord> = None;
        self.records.find_map(&self.arena, |record| {
            let within = address.addr().wrapping_sub(record.block.addr()) <= record.size;
            if within && found.is_none_or(|found| found.number < record.number) {
                found = Some(*record);
            }
            None::<()>
        });
        found
    }

    /// Runs `work` on all records until it returns something.
    pub fn find_map<R>(&self, work: impl FnMut(&BlockRecord) -> Option<R>) -> Option<R> {
        self.records.find_map(&self.arena, work)
    }

    /// Marks a freed block as quarantined or gone.
    pub fn retire(&mut self, record: Ref, by: Event, state: BlockState) {
        self.records.retire(&self.arena, record, by, state);
    }

    /// Runs `work` on the records of a heap's blocks, in use and in quarantine, until it returns
    /// something.
    pub fn find_map_of<R>(
        &self,
        list_word: &AtomicUsize,
        work: impl FnMut(&BlockRecord) -> Option<R>,
    ) -> Option<R> {
        self.records.find_map_of(&self.arena, list_word, work)
    }

    /// Marks all blocks of a heap as gone: the heap is being deleted.
    pub fn retire_heap(&mut self, list_word: &AtomicUsize, by: Event) {
        self.records.retire_heap(&self.arena, list_word, by);
    }

    /// Takes the oldest block out of quarantine, if that holds more than `max_bytes`, or keeps too
    /// many records of gone blocks in the queue behind it.
    pub fn leave(&mut self, max_bytes: usize) -> Option<BlockRecord> {
        let records = &mut self.records;
        let too_much = records.quarantined > max_bytes || records.gone_behind > GONE_RECORDS_MAX;
        if too_much { records.leave(&self.arena) } else { None }
    }

    /// Copies the calls of a stack. Returns their number.
    pub fn calls(&self, stack: Ref, calls: &mut [usize; STACK_CALLS_MAX]) -> usize {
        let found = Stacks::calls(&self.arena, stack);
        calls[..found.len()].copy_from_slice(found);
        found.len()
    }

    /// Marks the blocks in use that the C library can still reach, directly from its data or
    /// through other blocks.
    ///
    /// `block_around` returns the start of the block that an address lies in.
    pub fn reach(&mut self, library: &CLibrary, block_around: &impl Fn(usize) -> *mut u8) {
        let Self { arena, records, .. } = self;
        for &(start, bytes) in library.data() {
            // SAFETY: these are the C library's data, which stay readable.
            unsafe { records.reach(arena, start, bytes, block_around) };
        }
    }

    /// Counts blocks in use for the stacks that allocated them, for [`CheckTable::most_held`].
    /// Returns the sum.
    ///
    /// Leaves out blocks of the loader, blocks that [`CheckTable::reach`] marked, and blocks from
    /// before the program began.
    pub fn count_held(&mut self, library: &CLibrary) -> Held {
        let Self { arena, records, stacks, begin } = self;
        let mut all = Held { blocks: 0, bytes: 0 };
        let is_loaders = |stack: Ref| {
            let calls = Stacks::calls(arena, stack).iter();
            let first = calls.copied().find(|call| !library.own.contains(call));
            first.is_some_and(|call| library.loader.contains(&call))
        };
        records.find_map(arena, |record| {
            let is_held = record.state == BlockState::Live && record.number >= *begin;
            if is_held && !is_loaders(record.allocated.stack) {
                stacks.hold(arena, record.allocated.stack, record.size);
                all.blocks += 1;
                all.bytes += record.size as u64;
            }
            None::<()>
        });
        all
    }

    /// Returns the stack that holds the most bytes, of those not returned yet.
    pub fn most_held(&mut self) -> Option<(Ref, Held)> {
        self.stacks.take_largest(&self.arena)
    }
}

/// Value of the bytes behind a block's end.
pub(crate) const CANARY: u8 = 0xca;
/// Value of all bytes of a freed block.
pub(crate) const FREED: u8 = 0xdf;

/// Finds the first byte from offset `start` up to `end` that is not `expected`. Returns its offset
/// and its value.
///
/// # Safety
/// The bytes lie in a block. The program may be writing to them, which this is to find.
pub(crate) unsafe fn damage(
    block: *mut u8,
    start: usize,
    end: usize,
    expected: u8,
) -> Option<(usize, u8)> {
    let wrong_byte = |at: usize| {
        // SAFETY: the caller guarantees that the byte is readable. The read is volatile, because
        // other threads may write there.
        let found = unsafe { ptr::read_volatile(block.add(at)) };
        (found != expected).then_some((at, found))
    };
    (start..end).find_map(wrong_byte)
}
