//! Lengths and ranges in units, made only by checked operations.
//!
//! The sizes that a program asks for become lengths here and nowhere else. So no sum of a position
//! and a length wraps, and none is truncated.

use core::ops::Range;

use crate::backend::tuning::MEDIUM_BYTES_MAX;
use crate::size_class::{SMALL_MAX, UNIT};

/// The number of a unit, counted from the region's start. Unit 0 is never handed out, so 0 can
/// stand for "none".
pub(crate) type UnitIndex = u32;

/// A length of at least one unit. In bytes it is below 2^48.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Units(u32);

impl Units {
    pub const ONE: Self = Self(1);

    /// A length of `units` units; `None` for 0.
    #[inline]
    pub const fn new(units: u32) -> Option<Self> {
        if units == 0 { None } else { Some(Self(units)) }
    }

    /// The fewest units that hold `bytes` bytes; one unit for 0. `None` if the number of units
    /// exceeds 32 bits.
    #[inline]
    pub const fn for_bytes(bytes: usize) -> Option<Self> {
        let units = bytes.div_ceil(UNIT);
        if units > u32::MAX as usize {
            return None;
        }
        if units == 0 { Some(Self::ONE) } else { Some(Self(units as u32)) }
    }

    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The length in bytes.
    #[inline]
    pub const fn bytes(self) -> usize {
        self.0 as usize * UNIT
    }

    /// This length without `less`; `None` if nothing is left.
    #[inline]
    pub const fn minus(self, less: Self) -> Option<Self> {
        if self.0 > less.0 { Some(Self(self.0 - less.0)) } else { None }
    }
}

/// Consecutive units. Their end has a 32-bit number too.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct UnitRange {
    first: UnitIndex,
    length: Units,
}

impl UnitRange {
    /// The range of `length` units from `first` on; `None` if its end exceeds 32 bits.
    #[inline]
    pub const fn new(first: UnitIndex, length: Units) -> Option<Self> {
        match first.checked_add(length.0) {
            Some(_) => Some(Self { first, length }),
            None => None,
        }
    }

    /// As [`UnitRange::new`], for a number of units from a record; `None` for 0 too.
    #[inline]
    pub const fn of(first: UnitIndex, units: u32) -> Option<Self> {
        match Units::new(units) {
            Some(length) => Self::new(first, length),
            None => None,
        }
    }

    /// The range of this length with the same first unit; `None` if its end exceeds 32 bits.
    #[inline]
    pub const fn resized(self, length: Units) -> Option<Self> {
        Self::new(self.first, length)
    }

    #[inline]
    pub const fn first(self) -> UnitIndex {
        self.first
    }

    #[inline]
    pub const fn length(self) -> Units {
        self.length
    }

    /// The unit after the last.
    #[inline]
    pub const fn end(self) -> UnitIndex {
        // Cannot overflow: `new` checked the sum.
        self.first + self.length.0
    }

    /// The range after the first `keep` units; `None` if that is empty.
    #[inline]
    pub const fn behind(self, keep: Units) -> Option<Self> {
        match self.length.minus(keep) {
            Some(length) => Some(Self { first: self.first + keep.0, length }),
            None => None,
        }
    }
}

/// Whether a new block of no heap is medium, where an OS page has `page` bytes.
pub(crate) fn is_medium(size: usize, align: usize, page: usize) -> bool {
    size > SMALL_MAX && size <= MEDIUM_BYTES_MAX && align <= page && page < UNIT
}

/// OS pages, numbered from the region's start. Those of a medium block, or some of them.
pub(crate) type PageRange = Range<usize>;

/// The pages from `begin` on that hold a block of `size` bytes.
pub(crate) fn pages_for(begin: usize, size: usize, page: usize) -> PageRange {
    begin..begin + size.div_ceil(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers around each power of two, and around each number whose product with [`UNIT`] would
    /// wrap.
    fn borders() -> impl Iterator<Item = usize> {
        let around =
            |at: usize| (0..4).flat_map(move |by| [at.wrapping_sub(by), at.wrapping_add(by)]);
        let powers = (0..usize::BITS).map(|bit| 1 << bit);
        powers.flat_map(move |at| [at, at - UNIT.min(at), at.wrapping_add(UNIT)]).flat_map(around)
    }

    #[test]
    fn lengths_hold_what_they_are_for_or_there_is_none() {
        for bytes in borders() {
            match Units::for_bytes(bytes) {
                Some(units) => {
                    assert!(units.bytes() >= bytes && units.bytes() - bytes.max(1) < UNIT);
                    assert!(units.get() > 0);
                }
                None => assert!(bytes > u32::MAX as usize * UNIT, "{bytes:#x}"),
            }
        }
        assert_eq!(Units::for_bytes(u32::MAX as usize * UNIT), Units::new(u32::MAX));
        assert_eq!(Units::for_bytes(u32::MAX as usize * UNIT + 1), None);
        assert_eq!(Units::for_bytes(usize::MAX), None);
    }

    #[test]
    fn sums_and_ends_are_right_or_there_are_none() {
        let some = || borders().map(|at| at as u32);
        for first in some() {
            for units in some() {
                let end = first as u64 + units as u64;
                let range = UnitRange::of(first, units);
                let can_be = units > 0 && end <= u32::MAX as u64;
                assert_eq!(range.map(|range| range.end() as u64), can_be.then_some(end));
                let (Some(one), Some(other)) = (Units::new(first), Units::new(units)) else {
                    continue;
                };
                let rest = one.minus(other).map(|rest| rest.get());
                assert_eq!(rest, first.checked_sub(units).filter(|&rest| rest > 0));
                if let Some(range) = range {
                    let behind = range.behind(one);
                    assert!(behind.is_none_or(|behind| behind.end() == range.end()));
                    assert_eq!(behind.map(|behind| behind.length()), other.minus(one));
                }
            }
        }
    }
}
