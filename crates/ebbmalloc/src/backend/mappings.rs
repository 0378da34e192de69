//! Records which units lie in mappings of their own because pages have moved there. The kernel
//! moves the pages of one mapping at a time, and bounds the number of mappings.

use core::ops::Range;

use crate::backend::region::{Region, UnitIndex};
use crate::backend::run::UnitFlags;
use crate::backend::tuning::MOVED_MAPPINGS_MAX;
use crate::size_class::UNIT;

/// The mappings that moved pages made. The records of units tell where they are.
pub(crate) struct Mappings {
    /// Units marked as the beginning of one.
    count: usize,
}

/// The flags of a committed unit. The caller holds the lock of the page heap.
pub(super) fn flags(region: &Region, unit: UnitIndex) -> UnitFlags {
    // SAFETY: the unit is committed, and the lock of the page heap guards its record.
    unsafe { (*region.run(unit)).flags }
}

impl Mappings {
    pub const fn new() -> Self {
        Self { count: 0 }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Records that these units are a mapping of their own to which pages have `moved`, or that
    /// they belong to the region's mapping again.
    pub fn record(&mut self, region: &Region, units: Range<UnitIndex>, moved: bool) {
        if !moved && self.count == 0 {
            return;
        }
        let (start, end) = (units.start, units.end);
        for unit in units {
            self.mark(region, unit, moved, moved && unit == start);
        }
        // The rest of a mapping that began earlier becomes a mapping of its own.
        if (end as usize) < region.committed() / UNIT && flags(region, end).moved() {
            self.mark(region, end, true, true);
        }
    }

    fn mark(&mut self, region: &Region, unit: UnitIndex, moved: bool, begins: bool) {
        let old = flags(region, unit);
        self.count = self.count + begins as usize - old.begins() as usize;
        // SAFETY: the unit is committed, and the lock of the page heap guards its record.
        unsafe { (*region.run(unit)).flags = old.with_mapping(moved, begins) }
    }

    /// Whether pages have moved to any of these units.
    pub fn has_moved(&self, region: &Region, mut units: Range<UnitIndex>) -> bool {
        self.count > 0 && units.any(|unit| flags(region, unit).moved())
    }

    /// The units at which mappings begin, except the first of the range.
    fn later(&self, region: &Region, units: Range<UnitIndex>) -> impl Iterator<Item = UnitIndex> {
        let later = if self.count == 0 { 0..0 } else { units.start + 1..units.end };
        later.filter(move |&unit| {
            let here = flags(region, unit);
            here.begins() || here.moved() != flags(region, unit - 1).moved()
        })
    }

    /// Where the mapping of the first of these units ends, at most at the end of the range.
    pub fn end(&self, region: &Region, units: Range<UnitIndex>) -> UnitIndex {
        self.later(region, units.clone()).next().unwrap_or(units.end)
    }

    /// Where the mapping of the last of these units begins, at least at the start of the range.
    pub fn last(&self, region: &Region, units: Range<UnitIndex>) -> UnitIndex {
        self.later(region, units.clone()).last().unwrap_or(units.start)
    }

    /// Whether pages of these units may move, given the limit of mappings. Each mapping moves
    /// separately.
    pub fn may_move(&self, region: &Region, units: Range<UnitIndex>) -> bool {
        self.count + self.later(region, units).count() < MOVED_MAPPINGS_MAX
    }
}
