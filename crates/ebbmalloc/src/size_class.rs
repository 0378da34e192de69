//! Size classes: the sizes of blocks, and the length of a span of each.
//!
//! Sizes are multiples of 16 bytes up to 128: finer steps would break the alignment that C promises
//! for every block, coarser ones waste more. Above, there are eight classes per doubling, up to 64
//! KiB, so that rounding wastes at most 1/9 of a block. More classes would hold more spans that are
//! partly empty. All tables are computed at compile time.

use core::hint;

/// Bytes in a unit, the granule of the page heap and of the page map.
pub const UNIT: usize = 1 << UNIT_SHIFT;
/// log2 of [`UNIT`].
pub const UNIT_SHIFT: u32 = 16;
/// The largest size, in bytes, of blocks that lie in spans. A larger block is a run of its own.
pub const SMALL_MAX: usize = 64 * 1024;
/// Every block is aligned to this many bytes at least (the C library's `max_align_t`).
pub const MIN_ALIGN: usize = 16;
/// Bytes of a cache line.
pub(crate) const LINE: usize = 64;
/// Number of class indices, including index 0, which stands for "no class".
pub const CLASSES: usize = 1 + 8 + 8 * 9;
/// The most blocks in a span. Spans of the smallest blocks have one unit.
pub const SPAN_BLOCKS_MAX: usize = UNIT / MIN_ALIGN;

/// The most units in a span.
pub(crate) const SPAN_UNITS_MAX: usize = 8;

/// The largest size, in bytes, of the classes that are 16 bytes apart.
const LINEAR_BYTES_MAX: usize = 128;

/// The index of a size class, always 1 to `CLASSES - 1`. Each constructor guarantees that, so no
/// table by class checks its index, which makes the library 2 KiB smaller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SizeClass(u8);

impl SizeClass {
    /// The smallest class whose blocks hold `size` bytes; `None` above [`SMALL_MAX`].
    #[inline(always)]
    pub const fn of(size: usize) -> Option<Self> {
        if size <= SMALL_MAX { Some(Self(BY_SIZE[size.div_ceil(MIN_ALIGN)])) } else { None }
    }

    /// The smallest class whose blocks hold `size` bytes at a multiple of `align`, a power of two.
    ///
    /// Spans start at a multiple of [`UNIT`], so if the size is a multiple of `align`, so is each
    /// block's address.
    #[inline]
    pub const fn of_aligned(size: usize, align: usize) -> Option<Self> {
        if align <= MIN_ALIGN {
            return Self::of(size);
        }
        if size > SMALL_MAX || align > SMALL_MAX {
            return None;
        }
        let size = if size < align { align } else { size };
        let mut class = Self::of(size);
        while let Some(found) = class {
            if found.size() & (align - 1) == 0 {
                break;
            }
            class = Self::of(found.size() + 1);
        }
        class
    }

    /// The class with this index; `None` if there is none.
    #[inline(always)]
    pub const fn from_index(index: usize) -> Option<Self> {
        if index >= 1 && index < CLASSES { Some(Self(index as u8)) } else { None }
    }

    /// Every class, smallest first.
    pub fn all() -> impl Iterator<Item = Self> {
        (1..CLASSES).map(|index| Self(index as u8))
    }

    /// The index in tables by class: 1 to `CLASSES - 1`.
    #[inline(always)]
    pub const fn index(self) -> usize {
        let index = self.0 as usize;
        // SAFETY: every constructor guarantees it.
        unsafe { hint::assert_unchecked(index >= 1 && index < CLASSES) }
        index
    }

    /// Bytes in a block.
    #[inline(always)]
    pub const fn size(self) -> usize {
        let size = SIZE[self.index()] as usize;
        // SAFETY: the sizes of all classes lie in this range.
        unsafe { hint::assert_unchecked(size >= MIN_ALIGN && size <= SMALL_MAX) }
        size
    }

    /// True if several blocks lie in one cache line.
    pub(crate) const fn shares_lines(self) -> bool {
        self.size() < LINE
    }

    /// Units in a span, unless blocks are handed out at random.
    #[inline(always)]
    pub const fn span_units(self) -> u32 {
        SPAN_UNITS[self.index()] as u32
    }

    /// Blocks in a span of this many units.
    #[inline(always)]
    pub const fn blocks_in(self, units: u32) -> usize {
        units as usize * UNIT / self.size()
    }

    /// Units in a span from which blocks are handed out at random.
    pub const fn random_span_units(self) -> u32 {
        RANDOM_SPAN_UNITS[self.index()] as u32
    }

    /// The class's key for [`class_of_start`]: the least number that is at least 2^64 divided by
    /// the block size, and whose lowest byte is the class's index.
    pub const fn key(self) -> u64 {
        let min = u64::MAX / self.size() as u64 + 1;
        let key = min & !0xff | self.0 as u64;
        if key < min { key + 0x100 } else { key }
    }

    /// True if a block begins at `offset` from the start of its span.
    pub const fn begins_at(self, offset: usize) -> bool {
        offset.is_multiple_of(self.size())
    }

    /// The number, in its span, of the block that the byte at `offset` belongs to.
    #[inline(always)]
    pub const fn block_at(self, offset: usize) -> usize {
        // Exact. The reciprocal is rounded up, by less than 1. So the product is too large by less
        // than `offset`, which is below 2^20. Only an excess of at least 2^40 / size, thus 2^24,
        // could reach the next integer: the fraction of offset / size is at most 1 - 1 / size.
        ((offset as u64 * RECIPROCAL[self.index()]) >> 40) as usize
    }
}

/// The class with this key, if `offset`, from the start of a span, is a multiple of its block size.
/// `None` for the key 0.
///
/// Lemire, Kaser, Kurz, "Faster remainder by direct computation", 2019: `n` is divisible by `d` if
/// and only if `n * ceil(2^64 / d)` modulo 2^64 is below `ceil(2^64 / d)`. A slightly larger factor
/// works too: with at most 2^8 added, both sides change by less than 2^8 times the offset, so by
/// less than 2^32, and no two products are that close.
///
/// # Safety
/// `key` is a class's ([`SizeClass::key`]), or 0.
#[inline(always)]
pub(crate) const unsafe fn class_of_start(key: u64, offset: usize) -> Option<SizeClass> {
    let starts = (offset as u64).wrapping_mul(key) < key;
    if starts { Some(SizeClass(key as u8)) } else { None }
}

const fn class_size(index: usize) -> usize {
    if index <= 8 {
        return index * 16;
    }
    let base = LINEAR_BYTES_MAX << ((index - 9) / 8);
    base + base / 8 * ((index - 9) % 8 + 1)
}

/// Bytes in a block of the class with this index; 0 if there is no such class.
pub fn class_bytes(index: usize) -> usize {
    SizeClass::from_index(index).map_or(0, SizeClass::size)
}

/// Units in a span of the class with this index; 0 if there is no such class.
pub fn span_units(index: usize) -> usize {
    SizeClass::from_index(index).map_or(0, |class| class.span_units() as usize)
}

static SIZE: [u32; CLASSES] = {
    let mut table = [0; CLASSES];
    let mut i = 1;
    while i < CLASSES {
        table[i] = class_size(i) as u32;
        i += 1;
    }
    table
};

/// Units that hold one block and leave at most an eighth unused. Spans of few blocks become idle
/// sooner. Compared with two blocks per span, peaks were 4 % higher with eight, and up to a tenth
/// lower with one (decisions/0018).
static SPAN_UNITS: [u8; CLASSES] = fewest_units(1, 8);

/// Units that hold two blocks and leave at most a sixteenth unused: more blocks to choose from.
static RANDOM_SPAN_UNITS: [u8; CLASSES] = fewest_units(2, 16);

/// By class, the fewest units that hold `blocks` blocks, and leave at most one part in
/// `unused_share` unused at the end.
const fn fewest_units(blocks: usize, unused_share: usize) -> [u8; CLASSES] {
    let mut table = [0; CLASSES];
    let mut i = 1;
    while i < CLASSES {
        let size = class_size(i);
        let mut units = 1;
        while units * UNIT / size < blocks || (units * UNIT % size) * unused_share > units * UNIT {
            units += 1;
        }
        table[i] = units as u8;
        i += 1;
    }
    table
}

/// By class, 2^40 divided by the block size, rounded up.
static RECIPROCAL: [u64; CLASSES] = {
    let mut table = [0; CLASSES];
    let mut i = 1;
    while i < CLASSES {
        table[i] = (1u64 << 40).div_ceil(class_size(i) as u64);
        i += 1;
    }
    table
};

/// The index of the class for each size, in steps of [`MIN_ALIGN`].
static BY_SIZE: [u8; SMALL_MAX / MIN_ALIGN + 1] = {
    let mut table = [0; SMALL_MAX / MIN_ALIGN + 1];
    let mut i = 0;
    let mut class = 1;
    while i < table.len() {
        while class_size(class) < i * MIN_ALIGN {
            class += 1;
        }
        table[i] = class as u8;
        i += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_gets_the_tightest_class() {
        for size in 0..=SMALL_MAX {
            let class = SizeClass::of(size).unwrap();
            assert!(class.size() >= size);
            if let Some(below) = SizeClass::from_index(class.index() - 1) {
                assert!(below.size() < size.max(1), "{size} fits the class below");
            }
            let waste = class.size() - size.max(1);
            assert!(waste < 16 || waste * 9 <= class.size(), "{size} wastes {waste}");
        }
        assert_eq!(SizeClass::of(SMALL_MAX + 1), None);
        assert_eq!(SizeClass::of(usize::MAX), None);
    }

    #[test]
    fn aligned_classes_are_aligned() {
        for shift in 0..20 {
            let align = 1 << shift;
            for size in (0..=SMALL_MAX + 64).step_by(7) {
                match SizeClass::of_aligned(size, align) {
                    Some(class) => {
                        assert!(class.size() >= size);
                        assert_eq!(class.size() % align.min(class.size()), 0);
                        assert!(align <= class.size() || align <= MIN_ALIGN);
                    }
                    None => assert!(size > SMALL_MAX || align > SMALL_MAX),
                }
            }
        }
    }

    #[test]
    fn block_arithmetic_is_exact_for_every_offset() {
        for class in SizeClass::all() {
            for offset in 0..SPAN_UNITS_MAX * UNIT {
                assert_eq!(class.block_at(offset), offset / class.size());
                // SAFETY: the key is a class's.
                let found = unsafe { class_of_start(class.key(), offset) };
                assert_eq!(found, (offset % class.size() == 0).then_some(class));
            }
        }
        // SAFETY: the key is 0.
        assert!(unsafe { class_of_start(0, 0) }.is_none());
    }

    #[test]
    fn spans_of_each_length_hold_blocks_and_leave_little_unused() {
        for class in SizeClass::all() {
            let share_unused = |units: u32| {
                let bytes = units as usize * UNIT;
                (bytes - class.blocks_in(units) * class.size()) as f64 / bytes as f64
            };
            let usual = class.span_units();
            assert!(share_unused(usual) <= 1.0 / 8.0 && class.blocks_in(usual) >= 1);
            assert!((1..usual).all(|units| share_unused(units) > 1.0 / 8.0));
            let random = class.random_span_units();
            assert!(share_unused(random) <= 1.0 / 16.0 && class.blocks_in(random) >= 2);
            for units in [usual, random] {
                assert!((1..=SPAN_UNITS_MAX).contains(&(units as usize)), "{units} of {class:?}");
                assert!(class.blocks_in(units) <= SPAN_BLOCKS_MAX);
            }
            assert!(share_unused(1) < 0.5);
        }
    }
}
