//! A record of each block that is in use or in quarantine, and of some that are gone.
//!
//! Blocks that were freed stand in one queue, in order: those in quarantine leave it at its end, and what is
//! known of them is forgotten later still.

use super::arena::{Arena, Buckets, Ref};
use crate::os::Os;
use crate::region::UnitIndex;

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
    /// It was freed, and is filled with a pattern.
    Quarantined,
    /// It was freed, and is the allocator's to give out again.
    Gone,
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
    /// The next of the same bucket.
    chain: Ref,
    /// The next in the queue, or among unused records.
    next: Ref,
}

impl Record {
    /// What it counts for in the quarantine: also small blocks are bounded in number.
    fn weight(&self) -> usize {
        self.size + size_of::<Self>()
    }
}

/// So many blocks that are gone are remembered.
const GONE_MOST: usize = 1 << 16;

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
    pub allocated: u64,
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
            allocated: 0,
        }
    }

    pub fn set_up(&mut self, arena: &mut Arena, os: &impl Os, buckets: usize) -> bool {
        self.buckets.set_up(arena, os, buckets)
    }

    /// Notes a new block; false if memory is short.
    pub fn insert(
        &mut self,
        arena: &mut Arena,
        os: &impl Os,
        block: *mut u8,
        size: usize,
        heap: UnitIndex,
        allocated: Event,
    ) -> bool {
        let Some(place) = self.place(arena, os) else {
            return false;
        };
        let head = self.head(arena, block);
        let (number, freed, state) = (self.allocated, Event::NONE, State::Live);
        self.allocated += 1;
        // SAFETY: the place is unused; heads are of chains of records.
        unsafe {
            let (chain, next) = (*head, Ref::NONE);
            let record = Record { block, size, number, allocated, freed, heap, state, chain, next };
            arena.at::<Record>(place).write(record);
            *head = place;
        }
        true
    }

    /// Where a record may be written: if need be, one that is gone makes room.
    fn place(&mut self, arena: &mut Arena, os: &impl Os) -> Option<Ref> {
        if self.unused.is_none() {
            if let Some(new) = arena.take(os, size_of::<Record>()) {
                return Some(new);
            }
            self.forget_first(arena);
        }
        let place = self.unused;
        if place.is_none() {
            return None;
        }
        // SAFETY: an unused record lies there.
        self.unused = unsafe { (*arena.at::<Record>(place)).next };
        Some(place)
    }

    fn head(&self, arena: &Arena, block: *mut u8) -> *mut Ref {
        self.buckets.head(arena, (block.addr() as u64 >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// The newest record of a block at this address.
    pub fn find(&self, arena: &Arena, block: *mut u8) -> Option<Ref> {
        // SAFETY: chains are of records.
        let mut next = unsafe { *self.head(arena, block) };
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
            let mut next = self.buckets.nth(arena, bucket);
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

    /// Puts a block that is live into the queue: into quarantine, or gone at once.
    pub fn retire(&mut self, arena: &Arena, place: Ref, freed: Event, state: State) {
        // SAFETY: records lie in both places, and nobody else has the arena.
        unsafe {
            let record = &mut *arena.at::<Record>(place);
            (record.freed, record.state, record.next) = (freed, state, Ref::NONE);
            if state == State::Quarantined {
                self.quarantined += record.weight();
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

    /// All blocks of this heap are gone.
    pub fn retire_heap(&mut self, arena: &Arena, heap: UnitIndex, freed: Event) {
        for bucket in 0..self.buckets.count() {
            let mut next = self.buckets.nth(arena, bucket);
            while !next.is_none() {
                let record = Self::get(arena, next);
                match record.state {
                    _ if record.heap != heap => {}
                    State::Live => self.retire(arena, next, freed, State::Gone),
                    State::Quarantined => self.lose(arena, next),
                    State::Gone => {}
                }
                next = record.chain;
            }
        }
    }

    /// Marks a block that is in quarantine as gone, where it stands.
    fn lose(&mut self, arena: &Arena, place: Ref) {
        // SAFETY: as above.
        let record = unsafe { &mut *arena.at::<Record>(place) };
        self.quarantined -= record.weight();
        record.state = State::Gone;
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
            if self.gone > GONE_MOST {
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
            let mut link = self.head(arena, record.block);
            while *link != place {
                link = &raw mut (*arena.at::<Record>(*link)).chain;
            }
            *link = record.chain;
            record.next = self.unused;
        }
        self.unused = place;
    }
}
