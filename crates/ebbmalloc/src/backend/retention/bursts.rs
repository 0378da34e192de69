//! Records purges of spans after bursts of frees, where no scavenger runs (decisions/0036).

use crate::backend::tuning::REFAULT_MS;
use crate::backend::units::UnitIndex;

/// Where such purges are, and what came of them.
pub(crate) struct Burst {
    /// The unit at which the next purge continues.
    pub cursor: UnitIndex,
    /// Bytes purged that claims have not filled again yet, and when the last of them were purged.
    purged_bytes: usize,
    purged_ms: u64,
    /// The bytes of purged spans that claims had filled again at the last look, since the start.
    refilled_bytes: usize,
}

impl Burst {
    pub const fn new() -> Self {
        Self { cursor: 0, purged_bytes: 0, purged_ms: 0, refilled_bytes: 0 }
    }

    /// Records a purge.
    pub fn count_purged(&mut self, now_ms: u64, bytes: usize) {
        self.purged_bytes += bytes;
        self.purged_ms = now_ms;
    }

    /// How many of the bytes purged lately were needed again soon, since the last call. Given are
    /// the bytes that claims have filled again since the start, also of what others had purged.
    pub fn take_refilled(&mut self, now_ms: u64, refilled_bytes: usize) -> usize {
        let before = core::mem::replace(&mut self.refilled_bytes, refilled_bytes);
        if now_ms.saturating_sub(self.purged_ms) > REFAULT_MS {
            self.purged_bytes = 0;
        }
        let refilled = refilled_bytes.saturating_sub(before).min(self.purged_bytes);
        self.purged_bytes -= refilled;
        refilled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_went_and_soon_comes_back_counts() {
        let mut burst = Burst::new();
        // Others had purged that.
        assert_eq!(burst.take_refilled(1000, 500), 0);
        burst.count_purged(1000, 300);
        assert_eq!(burst.take_refilled(1100, 600), 100);
        assert_eq!(burst.take_refilled(1200, 900), 200);
        assert_eq!(burst.take_refilled(1300, 1000), 0);
        burst.count_purged(2000, 300);
        assert_eq!(burst.take_refilled(2001 + REFAULT_MS, 1300), 0);
    }
}
