//! Blocks of a heap that were freed and do not come back yet: for each class a ring of a fixed length, and one of large
//! blocks. Whoever comes late to a block that he has freed does not meet its next owner.
//!
//! A block enters at a random place among the newer half of the ring; the oldest leaves. So it stays for half of the ring's length at
//! least, and nobody knows when it leaves. The rings of classes lie in the units behind the heap's record.

use core::ptr;

use crate::backend::region::{Region, UnitIndex};
use crate::safety::tuning::{
    QUARANTINE_CLASS_BLOCKS_MAX, QUARANTINE_CLASS_BLOCKS_MIN, QUARANTINE_CLASS_BYTES,
    QUARANTINE_LARGE_BLOCKS, QUARANTINE_LARGE_UNITS,
};
use crate::size_class::{CLASSES, SizeClass, UNIT};

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

/// Where the ring of each class begins, and the end of the last.
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
/// Units behind a heap's record that its rings need. They are zero at first.
pub(crate) const RING_UNITS: u32 = RING_BYTES.div_ceil(UNIT) as u32;

/// The quarantine of one heap, under its lock.
pub(crate) struct Quarantine {
    /// The next place in each ring.
    at: [u16; CLASSES],
    large: [UnitIndex; QUARANTINE_LARGE_BLOCKS],
    large_at: usize,
    large_units: usize,
}

impl Quarantine {
    pub const fn new() -> Self {
        Self { at: [0; CLASSES], large: [0; QUARANTINE_LARGE_BLOCKS], large_at: 0, large_units: 0 }
    }

    /// The ring of a class of the heap whose record lies at this unit.
    #[inline]
    fn ring(&mut self, region: &Region, heap: UnitIndex, class: SizeClass) -> &mut [*mut u8] {
        let (start, end) = (STARTS[class.index()] as usize, STARTS[class.index() + 1] as usize);
        let first = region.address(heap + 1).cast::<*mut u8>();
        // SAFETY: the units behind the record are the rings', whose owner is borrowed.
        unsafe { core::slice::from_raw_parts_mut(first.add(start), end - start) }
    }

    /// Puts a block in; the one that leaves for it, or null.
    #[inline]
    pub fn push(
        &mut self,
        region: &Region,
        heap: UnitIndex,
        class: SizeClass,
        block: *mut u8,
        random: u64,
    ) -> *mut u8 {
        let at = self.at[class.index()] as usize;
        let ring = self.ring(region, heap, class);
        let length = ring.len();
        let leaves = ring[at];
        ring[at] = block;
        // So many places back, and around the end.
        let back = (random as u32 as usize * (length / 2)) >> 32;
        ring.swap(at, if back > at { at + length - back } else { at - back });
        self.at[class.index()] = if at + 1 == length { 0 } else { at as u16 + 1 };
        leaves
    }

    /// Takes out any block of a class; null if there is none.
    pub fn pop(&mut self, region: &Region, heap: UnitIndex, class: SizeClass) -> *mut u8 {
        let some = self.ring(region, heap, class).iter_mut().find(|block| !block.is_null());
        some.map_or(ptr::null_mut(), |block| core::mem::replace(block, ptr::null_mut()))
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

    /// Puts a large block of so many units in.
    pub fn push_large(&mut self, first: UnitIndex, units: u32) {
        debug_assert!(self.large[self.large_at] == 0);
        self.large[self.large_at] = first;
        self.large_at = (self.large_at + 1) % QUARANTINE_LARGE_BLOCKS;
        self.large_units += units as usize;
    }

    /// The oldest large block, if it has to leave before one of `more` units comes in; it is out then. One that is larger
    /// than all may be together is alone.
    pub fn leaving_large(&mut self, more: u32, units_of: impl Fn(UnitIndex) -> u32) -> UnitIndex {
        let full = self.large[self.large_at] != 0
            || self.large_units > 0 && self.large_units + more as usize > QUARANTINE_LARGE_UNITS;
        if full { self.pop_large(units_of) } else { 0 }
    }

    /// Takes out the oldest large block; 0 if there is none.
    pub fn pop_large(&mut self, units_of: impl Fn(UnitIndex) -> u32) -> UnitIndex {
        let places =
            (0..QUARANTINE_LARGE_BLOCKS).map(|nth| (self.large_at + nth) % QUARANTINE_LARGE_BLOCKS);
        let Some(place) = places.into_iter().find(|&place| self.large[place] != 0) else {
            return 0;
        };
        let first = core::mem::take(&mut self.large[place]);
        self.large_units -= units_of(first) as usize;
        first
    }
}
