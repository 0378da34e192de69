//! The page map's entries, which tell the use of a unit, and the keys that `free` looks up. Both
//! tables lie beside the region.

use crate::size_class::{SizeClass, UNIT_SHIFT};

/// The use of a unit. Zero means that no block is known to begin or lie in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MapEntry(u32);

impl MapEntry {
    pub const NONE: Self = Self(0);
    /// A large block begins here.
    pub const LARGE: Self = Self(0x7f);
    /// A large block began here and was freed, and no other block has begun here since.
    pub const LARGE_FREED: Self = Self(0x7e);
    /// The record of a heap lies here.
    pub const HEAP: Self = Self(0x7d);
    /// A run begins here that was given up to foreign mappings for good.
    pub const OTHERS: Self = Self(0x7c);
    /// A large block began here, was freed, and lies in a near cache: its memory is in use.
    const CACHED: Self = Self(0x7b);
    /// Set where OS pages of the unit are handed out one by one: see `page_heap/medium.rs`.
    const PAGED: u32 = 0x100;
    /// Set where the memory belongs to a heap. Such a code is no class index, so the hot paths need
    /// not know about heaps.
    const OF_HEAP: u32 = 0x80;

    /// Reads a word of the map.
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// The word that stands for this entry in the map.
    pub const fn to_bits(self) -> u32 {
        self.0
    }

    /// The entry of all units of a span of this class that begins at unit `first`. 16 bits of
    /// `first` are enough, since spans are shorter than 2^16 units.
    pub const fn small(class: SizeClass, first: u32) -> Self {
        Self(class.index() as u32 | first << UNIT_SHIFT)
    }

    /// The entry of a paged unit, in which a medium block begins at this page.
    pub const fn medium(page: u32) -> Self {
        Self(Self::LARGE.0 | Self::PAGED | page << UNIT_SHIFT)
    }

    /// The entry after the large or medium block that began here was freed.
    pub const fn freed(self) -> Self {
        Self(self.0 & !0xff | Self::LARGE_FREED.0)
    }

    /// The entry of a large or medium block of no heap, while it lies in a near cache or not.
    pub const fn with_cached(self, cached: bool) -> Self {
        Self(self.0 & !0xff | if cached { Self::CACHED.0 } else { Self::LARGE.0 })
    }

    /// Whether a large or medium block begins here that lies in a near cache.
    pub const fn is_cached(self) -> bool {
        self.code() == Self::CACHED.code()
    }

    /// This entry with the mark of a paged unit, or without it.
    pub const fn with_paged(self, paged: bool) -> Self {
        Self(if paged { self.0 | Self::PAGED } else { self.0 & !Self::PAGED })
    }

    /// Whether the unit is paged: it holds pages of medium blocks.
    pub const fn is_paged(self) -> bool {
        self.0 & Self::PAGED != 0
    }

    /// Whether a medium block begins in the unit.
    pub const fn is_medium(self) -> bool {
        self.is_paged() && self.code() == Self::LARGE.code()
    }

    /// Whether a large or medium block, of a heap or of none, begins in the unit.
    pub const fn is_large(self) -> bool {
        self.of_anyone().code() == Self::LARGE.code()
    }

    /// Whether such a block of no heap began in the unit, and was freed.
    pub const fn is_large_freed(self) -> bool {
        self.code() == Self::LARGE_FREED.code()
    }

    /// Where in the unit the large or medium block begins or began, in bytes. An OS page has `page`
    /// bytes.
    pub const fn begin(self, page: usize) -> usize {
        (self.0 >> UNIT_SHIFT) as usize * page
    }

    /// This entry with the mark that the memory belongs to a heap.
    pub const fn of_heap(self) -> Self {
        Self(self.0 | Self::OF_HEAP)
    }

    /// Whether the memory belongs to a heap.
    pub const fn is_of_heap(self) -> bool {
        self.0 & Self::OF_HEAP != 0
    }

    /// This entry without the mark of a heap.
    pub const fn of_anyone(self) -> Self {
        Self(self.0 & !Self::OF_HEAP)
    }

    /// The class index, for a unit of a span of no heap. Otherwise a code that is no class index.
    pub const fn code(self) -> usize {
        (self.0 & 0xff) as usize
    }

    /// For a unit of a span: bytes from the start of the span to `offset`, a byte offset in the
    /// region that lies in this unit.
    pub const fn within_span(self, offset: usize) -> usize {
        (offset as u32).wrapping_sub(self.0 & !0xffff) as usize
    }

    /// For the entry of unit `unit` of a span: whether the span begins at this unit.
    pub const fn is_first(self, unit: usize) -> bool {
        self.within_span(unit << UNIT_SHIFT) == 0
    }

    /// The class, for a unit of a span, whether it belongs to a heap or not.
    pub fn class(self) -> Option<SizeClass> {
        SizeClass::from_index(self.of_anyone().code())
    }
}

/// The key that `free` looks up for a unit, precomputed in a table of its own: less work makes the
/// hot path shorter (decisions/0002). It is [`SizeClass::key`] of the blocks if the unit is the
/// first of a span of no heap, and otherwise 0. Later units of spans are rare, since spans are
/// short; `free` finds those by [`MapEntry`].
///
/// Key and entry are written one after the other, while memory becomes a span or ceases to be one.
/// No thread holds a block of it then. A thread that frees a wrong address at that moment finds the
/// old or the new value.
pub(super) const fn key_at(unit: u32, entry: MapEntry) -> u64 {
    match SizeClass::from_index(entry.code()) {
        Some(class) if entry.is_first(unit as usize) => class.key(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::size_class::UNIT;

    #[test]
    fn keys_are_of_the_first_units_of_spans_that_are_no_heaps() {
        for class in SizeClass::all() {
            // Above 4 GiB, the entry holds only the lower half of the span's first unit.
            for first in [1, 0xffff, 0x1_0003] {
                let entry = MapEntry::small(class, first);
                assert_eq!(key_at(first, entry), class.key());
                assert_eq!(key_at(first + 1, entry), 0);
                assert_eq!(key_at(first, entry.of_heap()), 0);
                assert_eq!(entry.class(), Some(class));
                assert_eq!(entry.within_span((first as usize + 1) << UNIT_SHIFT), UNIT);
            }
        }
        let cached = MapEntry::LARGE.with_cached(true);
        let large = [MapEntry::LARGE, MapEntry::LARGE_FREED, cached];
        for entry in large.into_iter().chain([MapEntry::NONE, MapEntry::HEAP]) {
            assert_eq!((key_at(5, entry), entry.class()), (0, None));
        }
    }
}
