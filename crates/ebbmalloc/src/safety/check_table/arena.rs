//! Memory for what check mode knows, and chains of it.

use crate::backend::chunks::{Chunks, FIRST, GRAIN, chunk_of, first_of};
use crate::platform::os::Os;

/// A place in the arena, in grains; 0 is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ref(u32);

impl Ref {
    pub const NONE: Self = Self(0);

    pub fn is_none(self) -> bool {
        self == Self::NONE
    }

    /// For what notes one elsewhere.
    pub fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    pub fn to_bits(self) -> u32 {
        self.0
    }
}

/// Memory that is handed out from the bottom up, zero.
pub(crate) struct Arena {
    chunks: Chunks,
    /// Grains that were handed out, or left at the end of a chunk.
    taken: usize,
}

impl Arena {
    pub const fn new() -> Self {
        Self { chunks: Chunks::new(), taken: 0 }
    }

    /// Memory for so many bytes, a page at most, zero; `None` if memory is short.
    pub fn take(&mut self, os: &impl Os, bytes: usize) -> Option<Ref> {
        let grains = bytes.div_ceil(GRAIN);
        let mut start = FIRST + self.taken;
        let chunk_end = first_of(chunk_of(start).0 + 1);
        if start + grains > chunk_end {
            start = chunk_end;
        }
        if start + grains > self.chunks.end() && !self.chunks.grow(os) {
            return None;
        }
        self.taken = start + grains - FIRST;
        u32::try_from(start).ok().map(Ref)
    }

    /// Where something lies that was taken.
    pub fn at<T>(&self, place: Ref) -> *mut T {
        debug_assert!(!place.is_none() && align_of::<T>() <= GRAIN);
        self.chunks.at(place.0 as usize).cast()
    }

    pub fn chunks(&self) -> &Chunks {
        &self.chunks
    }
}

/// What a chain consists of.
pub(crate) trait Chained {
    fn hash(&self) -> u32;
    /// The next of its chain.
    fn chain(&mut self) -> &mut Ref;
}

/// Heads of chains, by hash: about as many as there are things in chains. When there are more things, the oldest bucket that was
/// not split since the last doubling is split in two (linear hashing), so no call takes long.
pub(crate) struct Buckets {
    chunks: Chunks,
    count: usize,
    /// How many things are in chains; and how many there are to be before more chains are asked for, where memory was short.
    things: usize,
    ask_at: usize,
}

const PER_GRAIN: usize = GRAIN / size_of::<Ref>();

impl Buckets {
    pub const fn new() -> Self {
        Self { chunks: Chunks::new(), count: 0, things: 0, ask_at: 0 }
    }

    /// Makes the first ones. False if memory is short; it may be called again.
    pub fn set_up(&mut self, os: &impl Os) -> bool {
        if self.count == 0 && self.chunks.grow(os) {
            self.count = (self.chunks.end() - FIRST) * PER_GRAIN;
        }
        self.count != 0
    }

    fn at(&self, nth: usize) -> *mut Ref {
        debug_assert!(nth < self.count);
        // SAFETY: in the grain.
        unsafe { self.chunks.at(FIRST + nth / PER_GRAIN).cast::<Ref>().add(nth % PER_GRAIN) }
    }

    /// The head of the chain for this hash.
    pub fn head(&self, hash: u32) -> *mut Ref {
        let half = 1 << self.count.ilog2();
        let nth = hash as usize & (2 * half - 1);
        self.at(if nth < self.count { nth } else { nth & (half - 1) })
    }

    pub fn count(&self) -> usize {
        self.count
    }

    /// The head of a chain, by its number.
    pub fn nth(&self, nth: usize) -> Ref {
        // SAFETY: there are as many; zero bytes are none.
        unsafe { *self.at(nth) }
    }

    /// Notes that something came into a chain: there may be more chains then, of which all consist of `T`.
    pub fn count_in<T: Chained>(&mut self, arena: &Arena, os: &impl Os) {
        self.things += 1;
        if self.things <= self.count {
            return;
        }
        let there = (self.chunks.end() - FIRST) * PER_GRAIN > self.count;
        if there || self.things >= self.ask_at && self.chunks.grow(os) {
            self.split::<T>(arena);
        } else if self.things >= self.ask_at {
            self.ask_at = self.things + self.things / 8;
        }
    }

    /// Notes that something left its chain.
    pub fn count_out(&mut self) {
        self.things -= 1;
    }

    fn split<T: Chained>(&mut self, arena: &Arena) {
        let (new, half) = (self.count, 1 << self.count.ilog2());
        self.count += 1;
        let (mut from, mut to) = (self.at(new - half), self.at(new));
        // SAFETY: chains are of this type, and nobody else has them.
        unsafe {
            let mut next = *from;
            while !next.is_none() {
                let thing = &mut *arena.at::<T>(next);
                let link = match thing.hash() as usize & (2 * half - 1) == new {
                    true => &mut to,
                    false => &mut from,
                };
                **link = next;
                *link = thing.chain();
                next = **link;
            }
            (*from, *to) = (Ref::NONE, Ref::NONE);
        }
    }

    pub fn chunks(&self) -> &Chunks {
        &self.chunks
    }
}
