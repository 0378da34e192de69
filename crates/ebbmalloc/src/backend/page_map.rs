//! What the address map says of a unit: whose blocks begin here, and where.

use crate::size_class::{SizeClass, UNIT_SHIFT};

/// What a unit is used for. Zero: no block begins or lies here as far as known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MapEntry(u32);

impl MapEntry {
    pub const NONE: Self = Self(0);
    /// A large block begins here.
    pub const LARGE: Self = Self(0x7f);
    /// A large block began here, was freed, and no other has begun here since.
    pub const LARGE_FREED: Self = Self(0x7e);
    /// The record of a heap lies here.
    pub const HEAP: Self = Self(0x7d);
    /// A run that was left to other mappings for good begins here.
    pub const OTHERS: Self = Self(0x7c);
    /// Set where memory belongs to a heap: such a code is no class's index, so that the hot paths
    /// need not know of heaps.
    const OF_HEAP: u32 = 0x80;

    /// What a word of the map says.
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// The word for it.
    pub const fn to_bits(self) -> u32 {
        self.0
    }

    /// The unit lies in a span of this class that begins at the unit `first`: the same for all of its units.
    /// 16 bits of `first` are enough, since spans are shorter than 2^16 units.
    pub const fn small(class: SizeClass, first: u32) -> Self {
        Self(class.index() as u32 | first << UNIT_SHIFT)
    }

    /// The same for memory of a heap.
    pub const fn of_heap(self) -> Self {
        Self(self.0 | Self::OF_HEAP)
    }

    /// Whether the memory belongs to a heap.
    pub const fn is_of_heap(self) -> bool {
        self.0 & Self::OF_HEAP != 0
    }

    /// What it is, whoever it belongs to.
    pub const fn of_anyone(self) -> Self {
        Self(self.0 & !Self::OF_HEAP)
    }

    /// The class's index for a unit of a span that is no heap's; else a code that is no class's index.
    pub const fn code(self) -> usize {
        (self.0 & 0xff) as usize
    }

    /// Bytes from the start of the span to the byte at this offset in the region, for a unit of a span.
    pub const fn within_span(self, offset: usize) -> usize {
        (offset as u32).wrapping_sub(self.0 & !0xffff) as usize
    }

    /// Whether a span begins at this unit, whose entry this is, for a unit of a span.
    pub const fn is_first(self, unit: usize) -> bool {
        self.within_span(unit << UNIT_SHIFT) == 0
    }

    /// The class, for a unit of a span, whoever it belongs to.
    pub fn class(self) -> Option<SizeClass> {
        SizeClass::from_index(self.of_anyone().code())
    }
}

/// What `free` asks of a unit, worked out, in a table of its own: the less there is to do, the shorter the hot path is (decisions/0002).
/// The key of the class whose blocks begin here ([`SizeClass::key`]), where the unit is the first of its span and the span no heap's;
/// else 0. The later units of spans are few, as spans are short, and left to [`MapEntry`].
///
/// Key and entry are written one after the other, as memory that nobody else can know begins or ends to be a span. Whoever frees an
/// address that is no block just then finds the one or the other.
pub(crate) const fn key_at(unit: u32, entry: MapEntry) -> u64 {
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
            // Beyond 4 GiB, where the span's start is known by its lower half.
            for first in [1, 0xffff, 0x1_0003] {
                let entry = MapEntry::small(class, first);
                assert_eq!(key_at(first, entry), class.key());
                assert_eq!(key_at(first + 1, entry), 0);
                assert_eq!(key_at(first, entry.of_heap()), 0);
                assert_eq!(entry.class(), Some(class));
                assert_eq!(entry.within_span((first as usize + 1) << UNIT_SHIFT), UNIT);
            }
        }
        for entry in [MapEntry::NONE, MapEntry::LARGE, MapEntry::LARGE_FREED, MapEntry::HEAP] {
            assert_eq!((key_at(5, entry), entry.class()), (0, None));
        }
    }
}
