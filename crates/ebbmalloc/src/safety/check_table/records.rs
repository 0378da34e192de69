//! Records each block of check mode: while it is in use or in quarantine, and for a while after.
//!
//! A block is gone once its memory went back to the heap, for reuse. Records of freed blocks form
//! one queue, in the order of the frees. Blocks leave quarantine in this order, and their records
//! are dropped later still. Records of blocks that are not gone are also in a list of their heap.

use crate::safety::tuning::GONE_RECORDS_FORGOTTEN;
use core::ptr;

use crate::backend::arena::{Arena, Buckets, Chained, Ref, hash_of_address};
use crate::backend::chunks::Chunks;
use crate::backend::region::UnitIndex;
use crate::platform::os::Os;
use crate::platform::sync::{AtomicUsize, Ordering};
use crate::safety::tuning::{GONE_RECORDS_MAX, LEAK_SCAN_BYTES_MAX};
use crate::size_class::CLASSES;
use crate::telemetry::ledger::HeldBack;

/// A thread and a stack that allocated or freed a block.
#[derive(Clone, Copy)]
pub(crate) struct Event {
    pub stack: Ref,
    pub thread: u32,
}

impl Event {
    const NONE: Self = Self { stack: Ref::NONE, thread: 0 };
}

/// State of a block, or of a list's head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BlockState {
    /// The program holds the block.
    Live,
    /// The program holds the block, and the C library still has a pointer to it. Set at exit.
    Reached,
    /// The block was freed, and is filled with a pattern.
    Quarantined,
    /// The block was freed, and its memory may be in use again.
    Gone,
    /// Not a block, but the head of a heap's list.
    List,
}

/// The record of a block.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct BlockRecord {
    /// Null once the record is in no bucket any more.
    pub block: *mut u8,
    /// Bytes requested.
    pub size: usize,
    /// Number of blocks allocated before this one.
    pub number: u64,
    pub allocated: Event,
    pub freed: Event,
    pub heap: UnitIndex,
    pub state: BlockState,
    /// Index of the size class, 0 for a large block.
    class: u8,
    /// The next record of the same bucket.
    chain: Ref,
    /// The next record in the queue, among unused records, or among reached ones.
    next: Ref,
    /// The next and the previous record in the heap's list, which is a ring.
    of_heap: [Ref; 2],
}

const _: () = assert!(size_of::<BlockRecord>() == 64);

impl BlockRecord {
    /// Bytes that the block counts in quarantine. Its record is included, so that small blocks are
    /// limited in number too.
    fn quarantine_bytes(&self) -> usize {
        self.size + size_of::<Self>()
    }

    pub fn is_live(&self) -> bool {
        matches!(self.state, BlockState::Live | BlockState::Reached)
    }
}

impl Chained for BlockRecord {
    fn hash(&self) -> u32 {
        hash_of_address(self.block.addr())
    }

    fn chain(&mut self) -> &mut Ref {
        &mut self.chain
    }
}

/// All records, in a hash table by address.
pub(crate) struct Records {
    buckets: Buckets,
    /// Unused records, linked.
    unused: Ref,
    /// The queue's first record.
    first: Ref,
    /// The queue's first record of a block that is not gone.
    oldest: Ref,
    /// The queue's last record.
    last: Ref,
    /// Records in the queue before `oldest`, all of gone blocks.
    gone: usize,
    /// Records of gone blocks from `oldest` on.
    pub gone_behind: usize,
    /// Bytes in quarantine, by [`BlockRecord::quarantine_bytes`].
    pub quarantined: usize,
    pub held_back: HeldBack,
    /// Blocks allocated since the start.
    pub allocated: u64,
}

impl HeldBack {
    /// Adds a block, or takes one off.
    fn count(&mut self, record: &BlockRecord, add: bool) {
        let class = record.class as usize % CLASSES;
        let bytes = if class == 0 { record.size as u64 } else { 0 };
        let blocks = &mut self.blocks[class];
        (*blocks, self.large_bytes) = match add {
            true => (*blocks + 1, self.large_bytes + bytes),
            false => (*blocks - 1, self.large_bytes - bytes),
        };
    }
}

impl Records {
    pub const fn new() -> Self {
        Self {
            buckets: Buckets::new(),
            unused: Ref::NONE,
            first: Ref::NONE,
            oldest: Ref::NONE,
            last: Ref::NONE,
            gone: 0,
            gone_behind: 0,
            quarantined: 0,
            held_back: HeldBack::NONE,
            allocated: 0,
        }
    }

    pub fn set_up(&mut self, os: &impl Os) -> bool {
        self.buckets.set_up(os)
    }

    pub fn chunks(&self) -> &Chunks {
        self.buckets.chunks()
    }

    /// Records a new block of a heap. `list_word` is the heap's word for its list of records.
    /// Returns false if memory is short.
    pub fn insert(
        &mut self,
        arena: &mut Arena,
        os: &impl Os,
        (block, size, class): (*mut u8, usize, usize),
        (heap, list_word): (UnitIndex, &AtomicUsize),
        allocated: Event,
    ) -> bool {
        let Some(list) = self.list_or_new(arena, os, heap, list_word) else {
            return false;
        };
        let Some(new) = self.take_unused(arena, os) else {
            return false;
        };
        self.forget(arena, block, size);
        let head = self.buckets.head(hash_of_address(block.addr()));
        let (number, freed, state) = (self.allocated, Event::NONE, BlockState::Live);
        self.allocated += 1;
        // SAFETY: the new record is unused. Chains and lists consist of records.
        unsafe {
            let after = (*arena.at::<BlockRecord>(list)).of_heap[0];
            let (chain, next, of_heap) = (*head, Ref::NONE, [after, list]);
            arena.at::<BlockRecord>(new).write(BlockRecord {
                block,
                size,
                number,
                allocated,
                freed,
                heap,
                state,
                class: class as u8,
                chain,
                next,
                of_heap,
            });
            *head = new;
            (*arena.at::<BlockRecord>(list)).of_heap[0] = new;
            (*arena.at::<BlockRecord>(after)).of_heap[1] = new;
        }
        self.buckets.count_in::<BlockRecord>(arena, os);
        true
    }

    /// Takes the record of a gone block at this address out of its bucket, where a new block begins
    /// that is no shorter, and hides it. It stays in the queue.
    fn forget(&mut self, arena: &Arena, block: *mut u8, size: usize) {
        let mut link = self.buckets.head(hash_of_address(block.addr()));
        // SAFETY: chains consist of records; only the holder of the table's lock uses them.
        unsafe {
            while !(*link).is_none() {
                let record = &mut *arena.at::<BlockRecord>(*link);
                let is_hidden = record.block.addr() == block.addr() && record.size <= size;
                if is_hidden && record.state == BlockState::Gone {
                    *link = record.chain;
                    record.block = ptr::null_mut();
                    self.buckets.count_out();
                    return;
                }
                link = &raw mut record.chain;
            }
        }
    }

    /// Returns the head of a heap's list, which is made if there is none. Returns `None` if memory
    /// is short.
    fn list_or_new(
        &mut self,
        arena: &mut Arena,
        os: &impl Os,
        heap: UnitIndex,
        list_word: &AtomicUsize,
    ) -> Option<Ref> {
        let list = Self::list(list_word);
        if !list.is_none() {
            return Some(list);
        }
        let new = self.take_unused(arena, os)?;
        // SAFETY: the new record is unused.
        unsafe {
            arena.at::<BlockRecord>(new).write(BlockRecord {
                block: ptr::null_mut(),
                size: 0,
                number: 0,
                allocated: Event::NONE,
                freed: Event::NONE,
                heap,
                state: BlockState::List,
                class: 0,
                chain: Ref::NONE,
                next: Ref::NONE,
                of_heap: [new; 2],
            });
        }
        list_word.store(new.to_bits() as usize, Ordering::Relaxed);
        Some(new)
    }

    /// The head of a heap's list, or [`Ref::NONE`].
    fn list(list_word: &AtomicUsize) -> Ref {
        Ref::from_bits(list_word.load(Ordering::Relaxed) as u32)
    }

    /// Takes an unused record. If memory is short, drops records of gone blocks for it.
    fn take_unused(&mut self, arena: &mut Arena, os: &impl Os) -> Option<Ref> {
        if self.unused.is_none() {
            if let Some(new) = arena.take(os, size_of::<BlockRecord>()) {
                return Some(new);
            }
            // Several at once, so that the next calls need not try to get memory again.
            (0..GONE_RECORDS_FORGOTTEN).for_each(|_| self.drop_first(arena));
        }
        let unused = self.unused;
        if unused.is_none() {
            return None;
        }
        // SAFETY: an unused record lies there.
        self.unused = unsafe { (*arena.at::<BlockRecord>(unused)).next };
        Some(unused)
    }

    /// The newest record of a block at this address.
    pub fn find(&self, arena: &Arena, block: *mut u8) -> Option<Ref> {
        // SAFETY: heads of chains are in the table's own memory.
        let mut next = unsafe { *self.buckets.head(hash_of_address(block.addr())) };
        while !next.is_none() {
            let record = Self::get(arena, next);
            if record.block.addr() == block.addr() {
                return Some(next);
            }
            next = record.chain;
        }
        None
    }

    /// Copies a record.
    pub fn get(arena: &Arena, record: Ref) -> BlockRecord {
        // SAFETY: a record lies there.
        unsafe { *arena.at::<BlockRecord>(record) }
    }

    /// Runs `work` on all records until it returns something.
    pub fn find_map<R>(
        &self,
        arena: &Arena,
        mut work: impl FnMut(&BlockRecord) -> Option<R>,
    ) -> Option<R> {
        (0..self.buckets.count()).find_map(|bucket| {
            let mut next = self.buckets.nth(bucket);
            while !next.is_none() {
                let record = Self::get(arena, next);
                if let Some(found) = work(&record) {
                    return Some(found);
                }
                next = record.chain;
            }
            None
        })
    }

    /// Runs `work` on the records of a heap's blocks, those that are not gone, until it returns
    /// something.
    pub fn find_map_of<R>(
        &self,
        arena: &Arena,
        list_word: &AtomicUsize,
        mut work: impl FnMut(&BlockRecord) -> Option<R>,
    ) -> Option<R> {
        let list = Self::list(list_word);
        if list.is_none() {
            return None;
        }
        let mut next = Self::get(arena, list).of_heap[0];
        while next != list {
            let record = Self::get(arena, next);
            if let Some(found) = work(&record) {
                return Some(found);
            }
            next = record.of_heap[0];
        }
        None
    }

    /// Puts the record of a live block into the queue, as quarantined or as gone.
    pub fn retire(&mut self, arena: &Arena, retired: Ref, freed: Event, state: BlockState) {
        if state == BlockState::Gone {
            Self::unlink(arena, retired);
            self.gone_behind += 1;
        }
        // SAFETY: both are records; only the holder of the table's lock uses them.
        unsafe {
            let record = &mut *arena.at::<BlockRecord>(retired);
            (record.freed, record.state, record.next) = (freed, state, Ref::NONE);
            if state == BlockState::Quarantined {
                self.quarantined += record.quarantine_bytes();
                self.held_back.count(record, true);
            }
            match self.last.is_none() {
                true => self.first = retired,
                false => (*arena.at::<BlockRecord>(self.last)).next = retired,
            }
        }
        self.last = retired;
        if self.oldest.is_none() {
            self.oldest = retired;
        }
        self.pass_gone(arena);
    }

    /// Marks all blocks of a heap as gone, and drops the heap's list.
    pub fn retire_heap(&mut self, arena: &Arena, list_word: &AtomicUsize, freed: Event) {
        let list = Self::list(list_word);
        if list.is_none() {
            return;
        }
        loop {
            let next = Self::get(arena, list).of_heap[0];
            if next == list {
                break;
            }
            match Self::get(arena, next).state {
                BlockState::Quarantined => self.mark_gone(arena, next),
                _ => self.retire(arena, next, freed, BlockState::Gone),
            }
        }
        // SAFETY: the list is empty, and its head is a record.
        unsafe { (*arena.at::<BlockRecord>(list)).next = self.unused };
        self.unused = list;
        list_word.store(0, Ordering::Relaxed);
        self.pass_gone(arena);
    }

    /// Takes a record out of the list of its heap.
    fn unlink(arena: &Arena, record: Ref) {
        let [next, previous] = Self::get(arena, record).of_heap;
        // SAFETY: lists consist of records.
        unsafe {
            (*arena.at::<BlockRecord>(next)).of_heap[1] = previous;
            (*arena.at::<BlockRecord>(previous)).of_heap[0] = next;
        }
    }

    /// Marks a block in quarantine as gone. Its record stays in the queue.
    fn mark_gone(&mut self, arena: &Arena, gone: Ref) {
        Self::unlink(arena, gone);
        // SAFETY: a record lies there; only the holder of the table's lock uses it.
        let record = unsafe { &mut *arena.at::<BlockRecord>(gone) };
        self.quarantined -= record.quarantine_bytes();
        self.held_back.count(record, false);
        record.state = BlockState::Gone;
        self.gone_behind += 1;
    }

    /// Marks live blocks as reached: those that words in this memory point to, and those that
    /// words in reached blocks point to.
    ///
    /// # Safety
    /// The memory is readable, and begins at a multiple of a word.
    pub unsafe fn reach(
        &self,
        arena: &Arena,
        start: usize,
        bytes: usize,
        block_around: &impl Fn(usize) -> *mut u8,
    ) {
        // Reached blocks that are still to be scanned, linked.
        let mut pending = Ref::NONE;
        let scan = |start: usize, bytes: usize, pending: &mut Ref| {
            let start = ptr::with_exposed_provenance::<usize>(start);
            for nth in 0..bytes / size_of::<usize>() {
                // SAFETY: the word is in memory that the caller vouches for, or in a block in use.
                // The read is volatile, because other threads may write there.
                let word = unsafe { ptr::read_volatile(start.add(nth)) };
                let found = self.find(arena, block_around(word)).unwrap_or(Ref::NONE);
                if found.is_none() || Self::get(arena, found).state != BlockState::Live {
                    continue;
                }
                // SAFETY: a record lies there; only the holder of the table's lock uses it.
                unsafe {
                    let record = &mut *arena.at::<BlockRecord>(found);
                    (record.state, record.next) = (BlockState::Reached, *pending);
                }
                *pending = found;
            }
        };
        scan(start, bytes, &mut pending);
        while !pending.is_none() {
            let BlockRecord { block, size, next, .. } = Self::get(arena, pending);
            pending = next;
            // Larger blocks hold data of the program, so their rest is not scanned.
            scan(block.expose_provenance(), size.min(LEAK_SCAN_BYTES_MAX), &mut pending);
        }
    }

    /// Takes the oldest block out of quarantine.
    pub fn leave(&mut self, arena: &Arena) -> Option<BlockRecord> {
        let oldest = self.oldest;
        if oldest.is_none() {
            return None;
        }
        // It is in quarantine: `pass_gone` was called after each change.
        let record = Self::get(arena, oldest);
        self.mark_gone(arena, oldest);
        self.pass_gone(arena);
        Some(record)
    }

    /// Moves `oldest` behind the records of gone blocks, and drops the oldest ones of those.
    fn pass_gone(&mut self, arena: &Arena) {
        while !self.oldest.is_none() {
            let record = Self::get(arena, self.oldest);
            if record.state != BlockState::Gone {
                break;
            }
            self.oldest = record.next;
            self.gone_behind -= 1;
            self.gone += 1;
            if self.gone > GONE_RECORDS_MAX {
                self.drop_first(arena);
            }
        }
    }

    /// Drops the record of the block that is gone longest.
    fn drop_first(&mut self, arena: &Arena) {
        if self.gone == 0 {
            return;
        }
        self.gone -= 1;
        let first = self.first;
        // SAFETY: a record lies there, and is in the chain of its bucket unless its block is null.
        // Chains consist of records.
        unsafe {
            let record = &mut *arena.at::<BlockRecord>(first);
            self.first = record.next;
            if self.first.is_none() {
                self.last = Ref::NONE;
            }
            if !record.block.is_null() {
                let mut link = self.buckets.head(hash_of_address(record.block.addr()));
                while *link != first {
                    link = &raw mut (*arena.at::<BlockRecord>(*link)).chain;
                }
                *link = record.chain;
                self.buckets.count_out();
            }
            record.next = self.unused;
        }
        self.unused = first;
    }
}
