//! Free memory where memory as a whole gets short: how much less of it may stay resident the
//! nearer the process comes to what its control group or the machine has.

use crate::os::Os;
use crate::region::Region;
use crate::size_class::UNIT;

/// With so many units resident it is time to find out what there is; below, reading files would
/// cost small programs more than it gains them.
const LOOK_FROM: usize = (16 << 20) / UNIT;
/// Shares of the limit, in percent: from the first on less may stay, from the second on nothing.
const EASE: u128 = 80;
const FULL: u128 = 95;

/// What memory there is, once it matters.
pub(crate) struct Pressure {
    /// In units; 0 before it was looked up, `usize::MAX` where nothing says.
    limit: usize,
}

impl Pressure {
    pub const fn new() -> Self {
        Self { limit: 0 }
    }

    /// How many units the process may have, with so many of them resident.
    pub fn limit(&mut self, os: &impl Os, resident: usize) -> usize {
        if resident < LOOK_FROM {
            return usize::MAX;
        }
        if self.limit == 0 {
            let units = os.memory_limit().map(|bytes| bytes as usize / Region::UNIT_COST);
            self.limit = units.unwrap_or(usize::MAX).max(1);
        }
        self.limit
    }

    /// What was found out, in bytes; 0 for nothing.
    pub fn known(&self) -> usize {
        self.limit.checked_mul(Region::UNIT_COST).unwrap_or(0)
    }
}

/// How much may stay dirty, where `usual` would do with memory in plenty. All in units.
pub(crate) fn dirty_allowance(in_use: usize, dirty: usize, limit: usize, usual: usize) -> usize {
    let resident = (in_use + dirty) as u128 * 100;
    let (ease, full) = (limit as u128 * EASE, limit as u128 * FULL);
    if resident <= ease {
        usual
    } else if resident >= full {
        0
    } else {
        (usual as u128 * (full - resident) / (full - ease)) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::dirty_allowance;

    #[test]
    fn far_from_the_limit_all_stays() {
        assert_eq!(dirty_allowance(0, 0, 1000, 64), 64);
        assert_eq!(dirty_allowance(700, 100, 1000, 64), 64);
        assert_eq!(dirty_allowance(1 << 40, 1 << 40, usize::MAX, 64), 64);
    }

    #[test]
    fn towards_it_less_and_less_and_at_last_nothing() {
        let along = |resident: usize| dirty_allowance(resident - 50, 50, 1000, 150);
        assert_eq!([800, 810, 875, 900, 949].map(along), [150, 140, 75, 50, 1]);
        assert_eq!([950, 951, 1000, 5000].map(along), [0; 4]);
        assert!((50..1200).all(|resident: usize| along(resident) >= along(resident + 1)));
    }

    #[test]
    fn limits_that_hardly_are_any() {
        assert_eq!(dirty_allowance(0, 0, 0, 10), 10);
        assert_eq!(dirty_allowance(1, 0, 0, 10), 0);
        assert_eq!(dirty_allowance(1, 0, 1, usize::MAX), 0);
        assert_eq!(dirty_allowance(9, 0, 10, usize::MAX), usize::MAX / 3);
    }
}
