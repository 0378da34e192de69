//! Memory for what check mode knows, apart from all blocks. It is taken in chunks, each an eighth of what was taken before, so a
//! process has about as much of it as it uses; where memory is short for a while, the next try may succeed.

use core::ptr;

use crate::os::Os;

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

/// What everything in the arena is a multiple of, in bytes.
const GRAIN: usize = 16;
/// Chunks that numbers between two powers of two are divided into.
const STEPS_LOG: u32 = 3;
/// The first grain has the number of two to this power: so the first chunk has 64 KiB, a multiple of any page.
const FIRST_LOG: u32 = 15;
const FIRST: usize = 1 << FIRST_LOG;
/// As many as numbers of 32 bits reach.
const CHUNKS: usize = ((u32::BITS - FIRST_LOG) << STEPS_LOG) as usize;

/// Grains in chunks, numbered from [`FIRST`] on. They are zero at first.
pub(crate) struct Chunks {
    starts: [*mut u8; CHUNKS],
    /// How many chunks there are: the first ones.
    count: usize,
    /// The next chunk, where it was reserved but could not be committed.
    reserved: *mut u8,
}

// SAFETY: the memory is the chunks' alone.
unsafe impl Send for Chunks {}

/// The number of the chunk that a grain is in, and of the chunk's first grain.
fn chunk_of(grain: usize) -> (usize, usize) {
    let log = grain.ilog2();
    let step = grain >> (log - STEPS_LOG);
    let nth = (((log - FIRST_LOG) as usize) << STEPS_LOG) + step - (1 << STEPS_LOG);
    (nth, step << (log - STEPS_LOG))
}

/// The first grain of a chunk.
fn first_of(chunk: usize) -> usize {
    let (log, step) = (chunk >> STEPS_LOG, chunk & ((1 << STEPS_LOG) - 1));
    ((1 << STEPS_LOG) + step) << (log + (FIRST_LOG - STEPS_LOG) as usize)
}

impl Chunks {
    pub const fn new() -> Self {
        Self { starts: [ptr::null_mut(); CHUNKS], count: 0, reserved: ptr::null_mut() }
    }

    /// The number behind that of the last grain.
    fn end(&self) -> usize {
        first_of(self.count)
    }

    /// Takes another chunk. False if memory is short; it may be called again.
    fn grow(&mut self, os: &impl Os) -> bool {
        if self.count == CHUNKS {
            return false;
        }
        let bytes = (first_of(self.count + 1) - first_of(self.count)) * GRAIN;
        if self.reserved.is_null() {
            match os.reserve(bytes, os.page_size()) {
                Some(start) => self.reserved = start.as_ptr(),
                None => return false,
            }
        }
        // SAFETY: reserved, and nothing lies there yet.
        if !unsafe { os.commit(self.reserved, bytes) } {
            return false;
        }
        self.starts[self.count] = core::mem::replace(&mut self.reserved, ptr::null_mut());
        self.count += 1;
        true
    }

    /// The address of a grain that there is.
    fn at(&self, grain: usize) -> *mut u8 {
        let (chunk, first) = chunk_of(grain);
        debug_assert!(chunk < self.count);
        // SAFETY: in the chunk.
        unsafe { self.starts[chunk].add((grain - first) * GRAIN) }
    }

    /// Address and length of each chunk.
    pub fn each(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let bytes = |chunk: usize| (first_of(chunk + 1) - first_of(chunk)) * GRAIN;
        self.starts[..self.count].iter().enumerate().map(move |(nth, at)| (at.addr(), bytes(nth)))
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

    /// Address and length of what it consists of.
    pub fn each_chunk(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.chunks.each()
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
    /// How many things are in chains.
    things: usize,
}

const PER_GRAIN: usize = GRAIN / size_of::<Ref>();

impl Buckets {
    pub const fn new() -> Self {
        Self { chunks: Chunks::new(), count: 0, things: 0 }
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
        let there = (self.chunks.end() - FIRST) * PER_GRAIN > self.count;
        if self.things > self.count && (there || self.chunks.grow(os)) {
            self.split::<T>(arena);
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

    /// Address and length of what it consists of.
    pub fn each_chunk(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.chunks.each()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_follow_each_other_and_grow_by_an_eighth() {
        let mut end = FIRST;
        for chunk in 0..CHUNKS {
            let (first, next) = (first_of(chunk), first_of(chunk + 1));
            assert_eq!(first, end);
            assert_eq!(chunk_of(first), (chunk, first));
            assert_eq!(chunk_of(next - 1), (chunk, first));
            assert!((next - first) * 8 <= first && (next - first) * GRAIN % (64 << 10) == 0);
            end = next;
        }
        assert_eq!(end, 1 << 32);
    }
}
