//! Records purges of spans after bursts of frees, where no scavenger runs (decisions/0036).

use crate::backend::units::UnitIndex;

/// Where such purges are, and what came of them.
pub(crate) struct Burst {
    /// The unit at which the next purge continues.
    pub cursor: UnitIndex,
    /// The bytes of purged spans that claims had filled again when that was last charged.
    charged_bytes: usize,
}

impl Burst {
    pub const fn new() -> Self {
        Self { cursor: 0, charged_bytes: 0 }
    }

    /// Bytes of purged spans that claims have filled again since the last call, given the sum
    /// since the start.
    pub fn take_refilled(&mut self, refilled_bytes: usize) -> usize {
        let before = core::mem::replace(&mut self.charged_bytes, refilled_bytes);
        refilled_bytes.saturating_sub(before)
    }
}
