//! What check mode knows (`EBB_CHECK`): a record of each block, and the stacks of calls that allocated and freed
//! them. It lies apart from all blocks, where a write past a block's end does not reach.

mod arena;
mod records;
mod stacks;

use core::ptr;

pub(crate) use arena::Ref;
pub(crate) use records::{Event, Record, State};
pub(crate) use stacks::Held;

use crate::backend::chunks::Chunks;
use crate::backend::region::UnitIndex;
use crate::platform::os::{CLibrary, Os};
use crate::platform::sync::AtomicUsize;
use crate::safety::tuning::STACK_CALLS_MAX;
use crate::telemetry::ledger::HeldBack;
use arena::Arena;
use records::Records;
use stacks::Stacks;

/// All of it.
pub(crate) struct CheckTable {
    arena: Arena,
    records: Records,
    stacks: Stacks,
    /// Blocks with lower numbers are none of the program's own.
    begin: u64,
}

// SAFETY: blocks that records name are only looked at under rules of `check`, the arena is the table's own.
unsafe impl Send for CheckTable {}

impl CheckTable {
    pub const fn new() -> Self {
        Self { arena: Arena::new(), records: Records::new(), stacks: Stacks::new(), begin: 0 }
    }

    /// Makes it ready; false if memory is short, and then it may be called again.
    pub fn set_up(&mut self, os: &impl Os) -> bool {
        self.records.set_up(os) && self.stacks.set_up(os)
    }

    /// What it consists of.
    pub fn chunks(&self) -> [&Chunks; 3] {
        [self.arena.chunks(), self.records.chunks(), self.stacks.chunks()]
    }

    /// What is in quarantine.
    pub fn held_back(&self) -> &HeldBack {
        &self.records.held_back
    }

    /// From here on blocks are the program's.
    pub fn begin(&mut self) {
        self.begin = self.records.allocated;
    }

    /// What this thread does there, by the calls in `calls`.
    pub fn event(&mut self, os: &impl Os, calls: &[usize]) -> Event {
        let stack = self.stacks.intern(&mut self.arena, os, calls);
        Event { stack, thread: os.thread_id() }
    }

    /// Notes a new block of this class, 0 for a large one, and of a heap, which has this unit, and this word for its list; false if memory is short.
    pub fn insert(
        &mut self,
        os: &impl Os,
        (block, size, class): (*mut u8, usize, usize),
        (heap, list): (UnitIndex, &AtomicUsize),
        by: Event,
    ) -> bool {
        self.records.insert(&mut self.arena, os, (block, size, class), (heap, list), by)
    }

    /// The newest block at this address, and what is known of it.
    pub fn find(&self, block: *mut u8) -> Option<(Ref, Record)> {
        let place = self.records.find(&self.arena, block)?;
        Some((place, Records::get(&self.arena, place)))
    }

    /// The newest block, in use or not, that this address lies in or right behind.
    pub fn around(&self, address: *mut u8) -> Option<Record> {
        let mut found: Option<Record> = None;
        self.records.find_map(&self.arena, |record| {
            let within = address.addr().wrapping_sub(record.block.addr()) <= record.size;
            if within && found.is_none_or(|found| found.number < record.number) {
                found = Some(*record);
            }
            None::<()>
        });
        found
    }

    /// Runs `work` on all records, until it returns something.
    pub fn find_map<R>(&self, work: impl FnMut(&Record) -> Option<R>) -> Option<R> {
        self.records.find_map(&self.arena, work)
    }

    /// A block that was live is in quarantine from now on, or gone at once.
    pub fn retire(&mut self, place: Ref, by: Event, state: State) {
        self.records.retire(&self.arena, place, by, state);
    }

    /// Runs `work` on the records of a heap's blocks, in use and in quarantine, until it returns something.
    pub fn find_map_of<R>(
        &self,
        list: &AtomicUsize,
        work: impl FnMut(&Record) -> Option<R>,
    ) -> Option<R> {
        self.records.find_map_of(&self.arena, list, work)
    }

    /// All blocks of this heap are gone, and it itself.
    pub fn retire_heap(&mut self, list: &AtomicUsize, by: Event) {
        self.records.retire_heap(&self.arena, list, by);
    }

    /// The block that is longest in quarantine, which leaves it, where that holds more than `most` bytes.
    pub fn leave(&mut self, most: usize) -> Option<Record> {
        let too_much = self.records.quarantined > most;
        if too_much { self.records.leave(&self.arena) } else { None }
    }

    /// Copies the calls of a stack, and says how many.
    pub fn calls(&self, stack: Ref, calls: &mut [usize; STACK_CALLS_MAX]) -> usize {
        let known = Stacks::calls(&self.arena, stack);
        calls[..known.len()].copy_from_slice(known);
        known.len()
    }

    /// Notes which blocks in use the C library can still reach: those that its data point to, and those that these do.
    /// `block_around`: where the block begins that an address lies in.
    pub fn reach(&mut self, library: &CLibrary, block_around: &impl Fn(usize) -> *mut u8) {
        let Self { arena, records, .. } = self;
        for &(start, bytes) in library.data() {
            // SAFETY: the C library's data.
            unsafe { records.reach(arena, start, bytes, block_around) };
        }
    }

    /// Counts blocks in use by the stacks that allocated them, for [`CheckTable::most_held`]. All of them, but for those that are the
    /// C library's.
    pub fn count_held(&mut self, library: &CLibrary) -> Held {
        let Self { arena, records, stacks, begin } = self;
        let mut all = Held { blocks: 0, bytes: 0 };
        let is_loaders = |stack: Ref| {
            let calls = Stacks::calls(arena, stack).iter();
            let first = calls.copied().find(|call| !library.own.contains(call));
            first.is_some_and(|call| library.loader.contains(&call))
        };
        records.find_map(arena, |record| {
            let held = record.state == State::Live && record.number >= *begin;
            if held && !is_loaders(record.allocated.stack) {
                stacks.hold(arena, record.allocated.stack, record.size);
                all.blocks += 1;
                all.bytes += record.size as u64;
            }
            None::<()>
        });
        all
    }

    /// The stack that holds the most bytes, of those that this has not returned yet.
    pub fn most_held(&mut self) -> Option<(Ref, Held)> {
        self.stacks.take_most(&self.arena)
    }
}

/// What blocks are filled with from their end on, and what when they are freed.
pub(crate) const CANARY: u8 = 0xca;
pub(crate) const FREED: u8 = 0xdf;

/// The first of the bytes from `start` up to `end` that is not `expected`, and what is there.
///
/// # Safety
/// They lie in a block; the program may be writing to it, which is for this to find.
pub(crate) unsafe fn damage(
    block: *mut u8,
    start: usize,
    end: usize,
    expected: u8,
) -> Option<(usize, u8)> {
    let is = |at: usize| {
        // SAFETY: the caller's. Volatile, as nothing keeps others from writing.
        let found = unsafe { ptr::read_volatile(block.add(at)) };
        (found != expected).then_some((at, found))
    };
    (start..end).find_map(is)
}
