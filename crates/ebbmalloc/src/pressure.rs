//! Free memory where memory as a whole gets short: how much less of it may stay resident the
//! nearer the control group, or the process alone, comes to what the group or the machine has.

use crate::os::Os;
use crate::region::Region;
use crate::size_class::UNIT;

/// With so many units resident it is time to find out what there is; below, reading files would
/// cost small programs more than it gains them.
const LOOK_FROM: usize = (16 << 20) / UNIT;
/// Not to look again for so many milliseconds.
const LOOK_EVERY: u64 = 2000;
/// Shares of the limit, in percent: from the first on less may stay, from the second on nothing.
const EASE: u128 = 80;
const FULL: u128 = 95;

/// What memory there is, once it matters.
pub(crate) struct Pressure {
    /// In bytes; 0 before it was looked up, `u64::MAX` where nothing says.
    limit: u64,
    /// Units of it that were not this heap's when that was looked up: other processes', and what this one has beside.
    others: usize,
    /// When to look again.
    due: u64,
}

impl Pressure {
    pub const fn new() -> Self {
        Self { limit: 0, others: 0, due: 0 }
    }

    /// How many units may stay dirty with so many resident, where `usual` would do with memory in plenty.
    pub fn allowance(&mut self, os: &impl Os, resident: usize, usual: usize) -> usize {
        if resident < LOOK_FROM {
            return usual;
        }
        let now = os.now_ms();
        if now >= self.due {
            self.due = now + LOOK_EVERY;
            let (limit, used) = os.memory();
            self.limit = limit;
            self.others = units(used).saturating_sub(resident);
        }
        dirty_allowance(resident + self.others, units(self.limit), usual)
    }

    /// What was found out, in bytes; 0 for nothing.
    pub fn known(&self) -> usize {
        if self.limit == u64::MAX { 0 } else { self.limit as usize }
    }
}

/// Units that so many bytes are enough for.
fn units(bytes: u64) -> usize {
    bytes as usize / Region::UNIT_COST
}

/// The same with so many units in use by all, of so many.
fn dirty_allowance(used: usize, limit: usize, usual: usize) -> usize {
    let used = used as u128 * 100;
    let (ease, full) = (limit as u128 * EASE, limit as u128 * FULL);
    if used <= ease {
        usual
    } else if used >= full {
        0
    } else {
        (usual as u128 * (full - used) / (full - ease)) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::dirty_allowance;

    #[test]
    fn far_from_the_limit_all_stays() {
        assert_eq!(dirty_allowance(0, 1000, 64), 64);
        assert_eq!(dirty_allowance(800, 1000, 64), 64);
        assert_eq!(dirty_allowance(1 << 41, usize::MAX, 64), 64);
    }

    #[test]
    fn towards_it_less_and_less_and_at_last_nothing() {
        let along = |used: usize| dirty_allowance(used, 1000, 150);
        assert_eq!([800, 810, 875, 900, 949].map(along), [150, 140, 75, 50, 1]);
        assert_eq!([950, 951, 1000, 5000].map(along), [0; 4]);
        assert!((50..1200).all(|used: usize| along(used) >= along(used + 1)));
    }

    #[test]
    fn limits_that_hardly_are_any() {
        assert_eq!(dirty_allowance(0, 0, 10), 10);
        assert_eq!(dirty_allowance(1, 0, 10), 0);
        assert_eq!(dirty_allowance(1, 1, usize::MAX), 0);
        assert_eq!(dirty_allowance(9, 10, usize::MAX), usize::MAX / 3);
    }
}
