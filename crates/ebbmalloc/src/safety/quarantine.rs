//! The quarantine of a heap in harden mode: freed blocks that are not reused for a while.
//!
//! So a thread that uses a block after freeing it seldom meets the block's next owner. Each class
//! has a ring of fixed length, and large blocks have one ring. The rings of classes lie in the
//! units behind the heap's record.
//!
//! A block enters a ring at a random place in its newer half, and the oldest block leaves. So a
//! block stays for at least half of the ring's length, and an attacker cannot tell when it leaves.

use core::ptr;

use crate::backend::region::{Region, UnitIndex};
use crate::safety::tuning::{
    QUARANTINE_CLASS_BLOCKS_MAX, QUARANTINE_CLASS_BLOCKS_MIN, QUARANTINE_CLASS_BYTES,
    QUARANTINE_LARGE_BLOCKS, QUARANTINE_LARGE_UNITS,
};
use crate::size_class::{CLASSES, SizeClass, UNIT};

/// Length of a class's ring, in blocks.
const fn length(class: usize) -> usize {
    match SizeClass::from_index(class) {
        None => 0,
        Some(class) => {
            let fit = QUARANTINE_CLASS_BYTES / class.size();
            if fit < QUARANTINE_CLASS_BLOCKS_MIN {
                QUARANTINE_CLASS_BLOCKS_MIN
            } else if fit > QUARANTINE_CLASS_BLOCKS_MAX {
                QUARANTINE_CLASS_BLOCKS_MAX
            } else {
                fit
            }
        }
    }
}

/// Start of each class's ring, and the end of the last ring, in blocks.
static STARTS: [u32; CLASSES + 1] = starts();

const fn starts() -> [u32; CLASSES + 1] {
    let mut starts = [0; CLASSES + 1];
    let mut class = 0;
    while class < CLASSES {
        starts[class + 1] = starts[class] + length(class) as u32;
        class += 1;
    }
    starts
}

/// Bytes of a heap's rings.
pub(crate) const RING_BYTES: usize = starts()[CLASSES] as usize * size_of::<*mut u8>();
/// Units behind a heap's record for its rings. They are zero at first.
pub(crate) const RING_UNITS: u32 = RING_BYTES.div_ceil(UNIT) as u32;

/// The quarantine of one heap, under the heap's lock.
pub(crate) struct Quarantine {
    /// Index of the oldest block in each ring.
    oldest: [u16; CLASSES],
    /// First units of large blocks.
    large: [UnitIndex; QUARANTINE_LARGE_BLOCKS],
    /// Index in `large` for the next large block.
    large_next: usize,
    large_units: usize,
}

impl Quarantine {
    pub const fn new() -> Self {
        Self {
            oldest: [0; CLASSES],
            large: [0; QUARANTINE_LARGE_BLOCKS],
            large_next: 0,
            large_units: 0,
        }
    }

    /// The ring of a class in the heap whose record lies at this unit.
    #[inline]
    fn ring(&mut self, region: &Region, heap: UnitIndex, class: SizeClass) -> &mut [*mut u8] {
        let (start, end) = (STARTS[class.index()] as usize, STARTS[class.index() + 1] as usize);
        let first = region.address(heap + 1).cast::<*mut u8>();
        // SAFETY: the units behind the record hold the rings of this quarantine, which we borrow.
        unsafe { core::slice::from_raw_parts_mut(first.add(start), end - start) }
    }

    /// Puts a block in. Returns the block that leaves in its place, or null.
    #[inline]
    pub fn push(
        &mut self,
        region: &Region,
        heap: UnitIndex,
        class: SizeClass,
        block: *mut u8,
        random: u64,
    ) -> *mut u8 {
        let at = self.oldest[class.index()] as usize;
        let ring = self.ring(region, heap, class);
        let length = ring.len();
        let leaving = ring[at];
        ring[at] = block;
        // Swaps the block with a random one of the newer half, which lies before it in the ring.
        let back = (random as u32 as usize * (length / 2)) >> 32;
        ring.swap(at, if back > at { at + length - back } else { at - back });
        self.oldest[class.index()] = if at + 1 == length { 0 } else { at as u16 + 1 };
        leaving
    }

    /// Takes out any block of a class. Returns null if there is none.
    pub fn pop(&mut self, region: &Region, heap: UnitIndex, class: SizeClass) -> *mut u8 {
        let found = self.ring(region, heap, class).iter_mut().find(|block| !block.is_null());
        found.map_or(ptr::null_mut(), |block| core::mem::replace(block, ptr::null_mut()))
    }

    /// The blocks of a class.
    pub fn each<'a>(
        &'a mut self,
        region: &Region,
        heap: UnitIndex,
        class: SizeClass,
    ) -> impl Iterator<Item = *mut u8> + 'a {
        self.ring(region, heap, class).iter().copied().filter(|block| !block.is_null())
    }

    /// Puts a large block of this many units in.
    pub fn push_large(&mut self, first: UnitIndex, units: u32) {
        debug_assert!(self.large[self.large_next] == 0);
        self.large[self.large_next] = first;
        self.large_next = (self.large_next + 1) % QUARANTINE_LARGE_BLOCKS;
        self.large_units += units as usize;
    }

    /// Takes out the oldest large block if it must leave before one of `more` units enters.
    /// Returns its first unit, or 0.
    ///
    /// A block larger than the limit of all large blocks stays alone.
    pub fn leaving_large(&mut self, more: u32, units_of: impl Fn(UnitIndex) -> u32) -> UnitIndex {
        let full = self.large[self.large_next] != 0
            || self.large_units > 0 && self.large_units + more as usize > QUARANTINE_LARGE_UNITS;
        if full { self.pop_large(units_of) } else { 0 }
    }

    /// Takes out the oldest large block. Returns its first unit, or 0 if there is none.
    pub fn pop_large(&mut self, units_of: impl Fn(UnitIndex) -> u32) -> UnitIndex {
        let indices = (0..QUARANTINE_LARGE_BLOCKS)
            .map(|nth| (self.large_next + nth) % QUARANTINE_LARGE_BLOCKS);
        let Some(index) = indices.into_iter().find(|&index| self.large[index] != 0) else {
            return 0;
        };
        let first = core::mem::take(&mut self.large[index]);
        self.large_units -= units_of(first) as usize;
        first
    }
}
