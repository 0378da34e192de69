//! A record of each block that is in use or in quarantine, and of some that are gone.
//!
//! Blocks that were freed stand in one queue, in order: those in quarantine leave it at its end, and what is
//! known of them is forgotten later still. Those that are not gone are in a list of their heap, too.

use crate::safety::tuning::GONE_RECORDS_FORGOTTEN;
use core::ptr;

use super::arena::{Arena, Buckets, Chained, Ref};
use crate::backend::chunks::Chunks;
use crate::backend::region::UnitIndex;
use crate::platform::os::Os;
use crate::platform::sync::{AtomicUsize, Ordering};
use crate::safety::tuning::{GONE_RECORDS_MAX, LEAK_SCAN_BYTES_MAX};
use crate::size_class::CLASSES;
use crate::telemetry::ledger::HeldBack;

/// Who did something, and where.
#[derive(Clone, Copy)]
pub(crate) struct Event {
    pub stack: Ref,
    pub thread: u32,
}

impl Event {
    const NONE: Self = Self { stack: Ref::NONE, thread: 0 };
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// The program has it.
    Live,
    /// The program has it, and the C library can still reach it, as the list at exit finds out.
    Reached,
    /// It was freed, and is filled with a pattern.
    Quarantined,
    /// It was freed, and is the allocator's to give out again.
    Gone,
    /// No block, but the head of a heap's list.
    List,
}

/// What is known of a block.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Record {
    pub block: *mut u8,
    /// Bytes that were asked for.
    pub size: usize,
    /// How many blocks were allocated before.
    pub number: u64,
    pub allocated: Event,
    pub freed: Event,
    pub heap: UnitIndex,
    pub state: State,
    /// Index of its size class, 0 for a large block.
    class: u8,
    /// The next of the same bucket.
    chain: Ref,
    /// The next in the queue, or among unused records, or of those that are reached.
    next: Ref,
    /// The next and the previous in the list of the heap, which is a ring.
    of_heap: [Ref; 2],
}

const _: () = assert!(size_of::<Record>() == 64);

impl Record {
    /// What it counts for in the quarantine: also small blocks are bounded in number.
    fn weight(&self) -> usize {
        self.size + size_of::<Self>()
    }

    pub fn is_live(&self) -> bool {
        matches!(self.state, State::Live | State::Reached)
    }
}

impl Chained for Record {
    fn hash(&self) -> u32 {
        hash(self.block)
    }

    fn chain(&mut self) -> &mut Ref {
        &mut self.chain
    }
}

fn hash(block: *mut u8) -> u32 {
    ((block.addr() as u64 >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
}

pub(crate) struct Records {
    buckets: Buckets,
    unused: Ref,
    /// The queue: its first record; the first that is not known to be gone; its last.
    first: Ref,
    oldest: Ref,
    last: Ref,
    /// Records before `oldest`.
    gone: usize,
    /// What the quarantine holds, in bytes.
    pub quarantined: usize,
    pub held_back: HeldBack,
    pub allocated: u64,
}

impl HeldBack {
    fn count(&mut self, record: &Record, more: bool) {
        let class = record.class as usize % CLASSES;
        let bytes = if class == 0 { record.size as u64 } else { 0 };
        let blocks = &mut self.blocks[class];
        (*blocks, self.large_bytes) = match more {
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

    /// Notes a new block of a heap, in the list that this word of the heap's names; false if memory is short.
    pub fn insert(
        &mut self,
        arena: &mut Arena,
        os: &impl Os,
        (block, size, class): (*mut u8, usize, usize),
        (heap, list): (UnitIndex, &AtomicUsize),
        allocated: Event,
    ) -> bool {
        let Some(list) = self.list(arena, os, heap, list) else {
            return false;
        };
        let Some(place) = self.place(arena, os) else {
            return false;
        };
        let head = self.buckets.head(hash(block));
        let (number, freed, state) = (self.allocated, Event::NONE, State::Live);
        self.allocated += 1;
        // SAFETY: the place is unused; heads are of chains of records, lists of records too.
        unsafe {
            let after = (*arena.at::<Record>(list)).of_heap[0];
            let (chain, next, of_heap) = (*head, Ref::NONE, [after, list]);
            arena.at::<Record>(place).write(Record {
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
            *head = place;
            (*arena.at::<Record>(list)).of_heap[0] = place;
            (*arena.at::<Record>(after)).of_heap[1] = place;
        }
        self.buckets.count_in::<Record>(arena, os);
        true
    }

    /// The head of a heap's list, which is made if there is none; `None` if memory is short.
    fn list(
        &mut self,
        arena: &mut Arena,
        os: &impl Os,
        heap: UnitIndex,
        list: &AtomicUsize,
    ) -> Option<Ref> {
        let known = Self::list_in(list);
        if !known.is_none() {
            return Some(known);
        }
        let place = self.place(arena, os)?;
        // SAFETY: the place is unused.
        unsafe {
            arena.at::<Record>(place).write(Record {
                block: ptr::null_mut(),
                size: 0,
                number: 0,
                allocated: Event::NONE,
                freed: Event::NONE,
                heap,
                state: State::List,
                class: 0,
                chain: Ref::NONE,
                next: Ref::NONE,
                of_heap: [place; 2],
            });
        }
        list.store(place.to_bits() as usize, Ordering::Relaxed);
        Some(place)
    }

    fn list_in(word: &AtomicUsize) -> Ref {
        Ref::from_bits(word.load(Ordering::Relaxed) as u32)
    }

    /// Where a record may be written: if need be, one that is gone makes room.
    fn place(&mut self, arena: &mut Arena, os: &impl Os) -> Option<Ref> {
        if self.unused.is_none() {
            if let Some(new) = arena.take(os, size_of::<Record>()) {
                return Some(new);
            }
            // Some more than one, lest memory be asked for each time.
            (0..GONE_RECORDS_FORGOTTEN).for_each(|_| self.forget_first(arena));
        }
        let place = self.unused;
        if place.is_none() {
            return None;
        }
        // SAFETY: an unused record lies there.
        self.unused = unsafe { (*arena.at::<Record>(place)).next };
        Some(place)
    }

    /// The newest record of a block at this address.
    pub fn find(&self, arena: &Arena, block: *mut u8) -> Option<Ref> {
        // SAFETY: chains are of records.
        let mut next = unsafe { *self.buckets.head(hash(block)) };
        while !next.is_none() {
            let record = Self::get(arena, next);
            if record.block.addr() == block.addr() {
                return Some(next);
            }
            next = record.chain;
        }
        None
    }

    /// What is noted there.
    pub fn get(arena: &Arena, place: Ref) -> Record {
        // SAFETY: a record lies there.
        unsafe { *arena.at::<Record>(place) }
    }

    /// Runs `work` on all records, until it returns something.
    pub fn find_map<R>(
        &self,
        arena: &Arena,
        mut work: impl FnMut(&Record) -> Option<R>,
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

    /// The same for those of a heap that are not gone.
    pub fn find_map_of<R>(
        &self,
        arena: &Arena,
        list: &AtomicUsize,
        mut work: impl FnMut(&Record) -> Option<R>,
    ) -> Option<R> {
        let list = Self::list_in(list);
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

    /// Puts a block that is live into the queue: into quarantine, or gone at once.
    pub fn retire(&mut self, arena: &Arena, place: Ref, freed: Event, state: State) {
        if state == State::Gone {
            Self::leave_heap(arena, place);
        }
        // SAFETY: records lie in both places, and nobody else has the arena.
        unsafe {
            let record = &mut *arena.at::<Record>(place);
            (record.freed, record.state, record.next) = (freed, state, Ref::NONE);
            if state == State::Quarantined {
                self.quarantined += record.weight();
                self.held_back.count(record, true);
            }
            match self.last.is_none() {
                true => self.first = place,
                false => (*arena.at::<Record>(self.last)).next = place,
            }
        }
        self.last = place;
        if self.oldest.is_none() {
            self.oldest = place;
        }
    }

    /// All blocks of this heap are gone, and so is its list.
    pub fn retire_heap(&mut self, arena: &Arena, word: &AtomicUsize, freed: Event) {
        let list = Self::list_in(word);
        if list.is_none() {
            return;
        }
        loop {
            let next = Self::get(arena, list).of_heap[0];
            if next == list {
                break;
            }
            match Self::get(arena, next).state {
                State::Quarantined => self.lose(arena, next),
                _ => self.retire(arena, next, freed, State::Gone),
            }
        }
        // SAFETY: the list is empty, and nobody's any more.
        unsafe { (*arena.at::<Record>(list)).next = self.unused };
        self.unused = list;
        word.store(0, Ordering::Relaxed);
    }

    /// Takes a block out of the list of its heap.
    fn leave_heap(arena: &Arena, place: Ref) {
        let [next, previous] = Self::get(arena, place).of_heap;
        // SAFETY: lists are of records.
        unsafe {
            (*arena.at::<Record>(next)).of_heap[1] = previous;
            (*arena.at::<Record>(previous)).of_heap[0] = next;
        }
    }

    /// Marks a block that is in quarantine as gone, where it stands.
    fn lose(&mut self, arena: &Arena, place: Ref) {
        Self::leave_heap(arena, place);
        // SAFETY: as above.
        let record = unsafe { &mut *arena.at::<Record>(place) };
        self.quarantined -= record.weight();
        self.held_back.count(record, false);
        record.state = State::Gone;
    }

    /// Marks the blocks in use that words in this part of memory point to, and those that words in these do.
    ///
    /// # Safety
    /// The part may be read, at multiples of a word.
    pub unsafe fn reach(
        &self,
        arena: &Arena,
        start: usize,
        bytes: usize,
        block_around: &impl Fn(usize) -> *mut u8,
    ) {
        // Those that are still to be looked at, linked.
        let mut found = Ref::NONE;
        let look = |start: usize, bytes: usize, found: &mut Ref| {
            let start = ptr::with_exposed_provenance::<usize>(start);
            for nth in 0..bytes / size_of::<usize>() {
                // SAFETY: the caller's, or in a block in use. Volatile, as others may write there.
                let word = unsafe { ptr::read_volatile(start.add(nth)) };
                let place = self.find(arena, block_around(word)).unwrap_or(Ref::NONE);
                if place.is_none() || Self::get(arena, place).state != State::Live {
                    continue;
                }
                // SAFETY: a record lies there.
                unsafe {
                    let record = &mut *arena.at::<Record>(place);
                    (record.state, record.next) = (State::Reached, *found);
                }
                *found = place;
            }
        };
        look(start, bytes, &mut found);
        while !found.is_none() {
            let Record { block, size, next, .. } = Self::get(arena, found);
            found = next;
            // Larger ones hold the program's data.
            look(block.expose_provenance(), size.min(LEAK_SCAN_BYTES_MAX), &mut found);
        }
    }

    /// The block that is longest in quarantine, which leaves it.
    pub fn leave(&mut self, arena: &Arena) -> Option<Record> {
        while !self.oldest.is_none() {
            let place = self.oldest;
            let record = Self::get(arena, place);
            if record.state == State::Quarantined {
                self.lose(arena, place);
            }
            self.oldest = record.next;
            self.gone += 1;
            if self.gone > GONE_RECORDS_MAX {
                self.forget_first(arena);
            }
            if record.state == State::Quarantined {
                return Some(record);
            }
        }
        None
    }

    /// Forgets the block that is longest gone.
    fn forget_first(&mut self, arena: &Arena) {
        if self.gone == 0 {
            return;
        }
        self.gone -= 1;
        let place = self.first;
        // SAFETY: as above; the record is in the chain of its bucket.
        unsafe {
            let record = &mut *arena.at::<Record>(place);
            self.first = record.next;
            if self.first.is_none() {
                self.last = Ref::NONE;
            }
            let mut link = self.buckets.head(hash(record.block));
            while *link != place {
                link = &raw mut (*arena.at::<Record>(*link)).chain;
            }
            *link = record.chain;
            record.next = self.unused;
        }
        self.unused = place;
        self.buckets.count_out();
    }
}
