//! Lets less free memory stay resident as the heap nears the memory limit of its control group or
//! machine.
//!
//! Set-up reads the limit, once: later, a filter of system calls may kill a process that opens
//! files (decisions/0032). So later changes of the limit go unnoticed, and so does the use of other
//! processes in the group.

use crate::backend::region::Region;
use crate::backend::tuning::{PRESSURE_PERCENT_MAX, PRESSURE_PERCENT_MIN};

/// The memory limit.
pub(crate) struct MemoryPressure {
    /// 0 if no limit is known.
    limit_bytes: u64,
}

impl MemoryPressure {
    pub const fn new() -> Self {
        Self { limit_bytes: 0 }
    }

    /// Sets the limit in bytes, which set-up has read.
    pub fn set_limit(&mut self, limit: Option<u64>) {
        self.limit_bytes = limit.unwrap_or(0);
    }

    /// The most dirty units with `resident` units resident. `usual` is the answer far from the
    /// limit.
    pub fn allowance(&self, resident: usize, usual: usize) -> usize {
        match self.limit_bytes {
            0 => usual,
            limit => dirty_allowance(resident, units_for(limit), usual),
        }
    }

    /// The limit in bytes; 0 if none is known.
    pub fn known(&self) -> usize {
        self.limit_bytes as usize
    }
}

/// Units that this many bytes hold, with their table entries.
fn units_for(bytes: u64) -> usize {
    bytes as usize / Region::UNIT_COST
}

/// [`MemoryPressure::allowance`] for a limit in units.
fn dirty_allowance(used: usize, limit: usize, usual: usize) -> usize {
    let used = used as u128 * 100;
    let (start, end) = (limit as u128 * PRESSURE_PERCENT_MIN, limit as u128 * PRESSURE_PERCENT_MAX);
    if used <= start {
        usual
    } else if used >= end {
        0
    } else {
        (usual as u128 * (end - used) / (end - start)) as usize
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
