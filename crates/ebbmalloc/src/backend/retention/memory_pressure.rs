//! Free memory where memory as a whole gets short: how much less of it may stay resident the nearer this
//! heap comes to what its control group or the machine has.
//!
//! Set-up finds that out, once: later a filter of system calls may kill who opens files (decisions/0032).
//! So a limit that changes meanwhile is not seen, nor what other processes of the group use.

use crate::backend::region::Region;
use crate::backend::tuning::{PRESSURE_PERCENT_MAX, PRESSURE_PERCENT_MIN};

/// What memory there is.
pub(crate) struct MemoryPressure {
    /// In bytes; 0 where nothing says.
    limit: u64,
}

impl MemoryPressure {
    pub const fn new() -> Self {
        Self { limit: 0 }
    }

    /// Set-up has found out how much memory there is, in bytes.
    pub fn set_limit(&mut self, limit: Option<u64>) {
        self.limit = limit.unwrap_or(0);
    }

    /// How many units may stay dirty with so many resident, where `usual` would do with memory in plenty.
    pub fn allowance(&self, resident: usize, usual: usize) -> usize {
        match self.limit {
            0 => usual,
            limit => dirty_allowance(resident, units(limit), usual),
        }
    }

    /// What was found out, in bytes; 0 for nothing.
    pub fn known(&self) -> usize {
        self.limit as usize
    }
}

/// Units that so many bytes are enough for.
fn units(bytes: u64) -> usize {
    bytes as usize / Region::UNIT_COST
}

/// The same with so many units in use by all, of so many.
fn dirty_allowance(used: usize, limit: usize, usual: usize) -> usize {
    let used = used as u128 * 100;
    let (ease, full) = (limit as u128 * PRESSURE_PERCENT_MIN, limit as u128 * PRESSURE_PERCENT_MAX);
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
