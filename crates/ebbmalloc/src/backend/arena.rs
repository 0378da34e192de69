//! Memory for records and stacks outside the region: an arena, and hash tables of its objects.

use crate::backend::chunks::{Chunks, FIRST, GRAIN, chunk_of, first_of};
use crate::platform::os::Os;

/// A reference to an object in the arena: the number of its first grain, 0 for none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub(crate) struct Ref(u32);

impl Ref {
    pub const NONE: Self = Self(0);

    pub fn is_none(self) -> bool {
        self == Self::NONE
    }

    /// The reference that [`Ref::to_bits`] gave.
    pub fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    pub fn to_bits(self) -> u32 {
        self.0
    }
}

/// Hands out memory from the bottom up, and takes it back all at once. Memory is zero when it is
/// handed out for the first time.
pub(crate) struct Arena {
    chunks: Chunks,
    /// Grains that were handed out, or left unused at the end of a chunk.
    taken: usize,
}

impl Arena {
    pub const fn new() -> Self {
        Self { chunks: Chunks::new(), taken: 0 }
    }

    /// Takes memory for `bytes` bytes, a page at most. Returns `None` if memory is short.
    #[inline(never)]
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

    /// The address of an object.
    pub fn at<T>(&self, object: Ref) -> *mut T {
        debug_assert!(!object.is_none() && align_of::<T>() <= GRAIN);
        self.chunks.at(object.0 as usize).cast()
    }

    /// Bytes that were handed out, or left unused at the end of a chunk.
    pub fn taken_bytes(&self) -> usize {
        self.taken * GRAIN
    }

    /// Takes all memory back. No reference is used any more. The memory keeps its contents.
    pub fn clear(&mut self) {
        self.taken = 0;
    }

    pub fn chunks(&self) -> &Chunks {
        &self.chunks
    }
}

/// The hash of a stack of calls: FNV-1a over whole addresses, mixed once more so that the upper
/// bits count.
pub(crate) fn hash(calls: &[usize]) -> u32 {
    let step = |hash: u64, call: &usize| (hash ^ *call as u64).wrapping_mul(0x100_0000_01b3);
    let hash = calls.iter().fold(0xcbf2_9ce4_8422_2325, step);
    (hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
}

/// The hash of a block's address: multiplicative, of the bits above the alignment.
pub(crate) fn hash_of_address(address: usize) -> u32 {
    ((address as u64 >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
}

/// An object in a chain of a hash table.
pub(crate) trait Chained {
    fn hash(&self) -> u32;
    /// The next object of the chain.
    fn chain(&mut self) -> &mut Ref;
}

/// A hash table: heads of chains of objects, one bucket an object on average.
///
/// When there are more objects than buckets, one bucket is split in two (linear hashing): the
/// oldest one not split since the last doubling. So no call takes long.
pub(crate) struct Buckets {
    chunks: Chunks,
    /// Buckets in use.
    count: usize,
    /// Objects in all chains.
    objects: usize,
    /// If memory was short: objects from which on more memory is requested again.
    retry_at_objects: usize,
}

/// Buckets in a grain of memory.
const PER_GRAIN: usize = GRAIN / size_of::<Ref>();

impl Buckets {
    pub const fn new() -> Self {
        Self { chunks: Chunks::new(), count: 0, objects: 0, retry_at_objects: 0 }
    }

    /// Makes the first buckets. Returns false if memory is short; the caller may try again.
    pub fn set_up(&mut self, os: &impl Os) -> bool {
        if self.count == 0 && self.chunks.grow(os) {
            self.count = (self.chunks.end() - FIRST) * PER_GRAIN;
        }
        self.count != 0
    }

    fn at(&self, nth: usize) -> *mut Ref {
        debug_assert!(nth < self.count);
        // SAFETY: the bucket lies in its grain.
        unsafe { self.chunks.at(FIRST + nth / PER_GRAIN).cast::<Ref>().add(nth % PER_GRAIN) }
    }

    /// The head of the chain for a hash.
    pub fn head(&self, hash: u32) -> *mut Ref {
        let half = 1 << self.count.ilog2();
        let nth = hash as usize & (2 * half - 1);
        self.at(if nth < self.count { nth } else { nth & (half - 1) })
    }

    pub fn count(&self) -> usize {
        self.count
    }

    /// The head of the chain in the bucket with this index.
    pub fn nth(&self, nth: usize) -> Ref {
        // SAFETY: `at` gives a bucket of the table. It was zero at first, which is `Ref::NONE`.
        unsafe { *self.at(nth) }
    }

    /// Counts an object that was put into a chain, and splits a bucket if there are too few.
    ///
    /// All chains consist of objects of type `T`.
    #[inline(never)]
    pub fn count_in<T: Chained>(&mut self, arena: &Arena, os: &impl Os) {
        self.objects += 1;
        if self.objects <= self.count {
            return;
        }
        let has_space = (self.chunks.end() - FIRST) * PER_GRAIN > self.count;
        if has_space || self.objects >= self.retry_at_objects && self.chunks.grow(os) {
            self.split::<T>(arena);
        } else if self.objects >= self.retry_at_objects {
            self.retry_at_objects = self.objects + self.objects / 8;
        }
    }

    /// Empties all chains. Their objects are not used any more.
    pub fn clear(&mut self) {
        for nth in 0..self.count {
            // SAFETY: `at` gives a bucket of the table, whose lock the caller holds.
            unsafe { self.at(nth).write(Ref::NONE) }
        }
        self.objects = 0;
    }

    /// Counts an object that was taken out of its chain.
    pub fn count_out(&mut self) {
        self.objects -= 1;
    }

    /// Adds a bucket, and moves objects into it from the bucket that had their hashes before.
    fn split<T: Chained>(&mut self, arena: &Arena) {
        let (new, half) = (self.count, 1 << self.count.ilog2());
        self.count += 1;
        let (mut from, mut to) = (self.at(new - half), self.at(new));
        // SAFETY: all chains consist of `T`, and only the holder of the table's lock uses them.
        unsafe {
            let mut next = *from;
            while !next.is_none() {
                let object = &mut *arena.at::<T>(next);
                let link = match object.hash() as usize & (2 * half - 1) == new {
                    true => &mut to,
                    false => &mut from,
                };
                **link = next;
                *link = object.chain();
                next = **link;
            }
            (*from, *to) = (Ref::NONE, Ref::NONE);
        }
    }

    pub fn chunks(&self) -> &Chunks {
        &self.chunks
    }
}
