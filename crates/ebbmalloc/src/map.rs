//! What the address map says of a unit: whose blocks begin here, and where.

// Not `sync`'s, which loom may replace: the map lies in raw memory.
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::size_class::{SizeClass, UNIT_SHIFT, class_of_start, key_of};

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
    /// Set where memory belongs to a heap: such a code is no class's index, so that the hot paths
    /// need not know of heaps.
    const OF_HEAP: u32 = 0x80;

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

    /// Where the span of a unit begins, in bytes from the region's start, modulo 2^32.
    const fn span_start(self) -> u32 {
        self.0 & !0xffff
    }

    /// Bytes from the start of the span to the byte at this offset in the region, for a unit of a span.
    pub const fn within_span(self, offset: usize) -> usize {
        (offset as u32).wrapping_sub(self.span_start()) as usize
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

/// A unit's entry as it lies in the map, and beside it what `free` asks, worked out: the less there is to do, and to
/// load from elsewhere, the shorter its hot path is (decisions/0002).
///
/// The parts are written one by one, as memory that nobody else can know begins or ends to be a span. Whoever frees an address
/// that is no block meanwhile may read parts of both, and so have it taken for a block; a moment later it would be one.
#[repr(C, align(16))]
pub(crate) struct MapRecord {
    /// [`key_of`] the entry's code.
    key: AtomicU64,
    /// The entry's [`MapEntry::span_start`].
    span_start: AtomicU32,
    entry: AtomicU32,
}

impl MapRecord {
    /// What was entered.
    #[inline(always)]
    pub fn entry(&self) -> MapEntry {
        MapEntry(self.entry.load(Ordering::Relaxed))
    }

    /// Enters what the unit is used for.
    pub fn set(&self, entry: MapEntry) {
        self.key.store(key_of(entry.code()), Ordering::Relaxed);
        self.span_start.store(entry.span_start(), Ordering::Relaxed);
        self.entry.store(entry.0, Ordering::Relaxed);
    }

    /// The class of the block that begins at this offset in the region, which lies in the unit; `None` where none does, or one of
    /// a heap.
    #[inline(always)]
    pub fn class_of_block(&self, offset: usize) -> Option<SizeClass> {
        let within = (offset as u32).wrapping_sub(self.span_start.load(Ordering::Relaxed));
        class_of_start(self.key.load(Ordering::Relaxed), within as usize)
    }

    /// The entry in a record that was copied from another process.
    pub fn entry_in(bytes: &[u8; size_of::<Self>()]) -> MapEntry {
        let [.., a, b, c, d] = *bytes;
        MapEntry(u32::from_ne_bytes([a, b, c, d]))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// A record of this entry.
    fn record(entry: MapEntry) -> MapRecord {
        let record = MapRecord {
            key: AtomicU64::new(0),
            span_start: AtomicU32::new(0),
            entry: AtomicU32::new(0),
        };
        // What was there before leaves nothing behind.
        record.set(MapEntry::small(SizeClass::of(48).unwrap(), 77));
        record.set(entry);
        record
    }

    #[test]
    fn a_block_begins_at_multiples_of_its_size_from_where_its_span_begins() {
        for class in SizeClass::all() {
            // Beyond 4 GiB, where the span's start is known by its lower half.
            for first in [1, 0xffff, 0x1_0003] {
                let record = record(MapEntry::small(class, first));
                let start = (first as usize) << UNIT_SHIFT;
                assert_eq!(record.class_of_block(start), Some(class));
                assert_eq!(record.class_of_block(start + class.size()), Some(class));
                assert_eq!(record.class_of_block(start + 8), None);
                assert_eq!(record.class_of_block(start + class.size() - 1), None);
            }
        }
    }

    #[test]
    fn what_is_no_small_block_of_everybody_is_none() {
        let of_heap = MapEntry::small(SizeClass::of(64).unwrap(), 5).of_heap();
        for entry in
            [MapEntry::NONE, MapEntry::LARGE, MapEntry::LARGE_FREED, MapEntry::HEAP, of_heap]
        {
            let record = record(entry);
            assert_eq!(record.class_of_block(5 << UNIT_SHIFT), None, "{entry:?}");
            assert_eq!(record.class_of_block(0), None, "{entry:?}");
            assert_eq!(record.entry(), entry);
            // SAFETY: bytes of a record.
            let bytes = unsafe { &*(&raw const record).cast::<[u8; size_of::<MapRecord>()]>() };
            assert_eq!(MapRecord::entry_in(bytes), entry);
        }
    }
}
