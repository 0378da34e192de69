//! Decides whether free pages of spans are purged after a burst of frees, where no scavenger runs.
//!
//! Such purges pause where their pages are needed again, or where they bring little
//! (decisions/0036).

use crate::backend::tuning::{BURST_PAUSE_MS_MAX, BURST_WORTH_DIVISOR, REFAULT_MS};
use crate::backend::units::UnitIndex;

/// What purges after bursts of frees brought, to see whether they pay.
pub(crate) struct Burst {
    /// The unit at which the next purge continues.
    pub cursor: UnitIndex,
    /// Bytes purged lately, and the refilled bytes of all classes before that.
    purged_bytes: usize,
    refilled_bytes: usize,
    /// When that began, in ms by the clock of `Os`.
    since_ms: u64,
    /// No purge before this time; and the length of that pause.
    next_ms: u64,
    pause_ms: u64,
}

impl Burst {
    pub const fn new() -> Self {
        Self { cursor: 0, purged_bytes: 0, refilled_bytes: 0, since_ms: 0, next_ms: 0, pause_ms: 0 }
    }

    /// Whether to purge now, given the bytes of purged spans that claims have filled again since
    /// the start. If most of what was purged lately was needed again, there is a pause.
    pub fn take_purge(&mut self, now_ms: u64, refilled_bytes: usize) -> bool {
        if now_ms < self.next_ms {
            return false;
        }
        let refaulted = refilled_bytes.saturating_sub(self.refilled_bytes) > self.purged_bytes / 2;
        let is_recent = now_ms.saturating_sub(self.since_ms) <= REFAULT_MS;
        if refaulted && is_recent && self.purged_bytes > 0 {
            self.pause(now_ms);
        }
        if refaulted || !is_recent {
            (self.purged_bytes, self.refilled_bytes, self.since_ms) = (0, refilled_bytes, now_ms);
        }
        now_ms >= self.next_ms
    }

    /// Counts a purge of `bytes` out of `free_bytes`. One that brought little makes a pause.
    pub fn count_purged(&mut self, now_ms: u64, bytes: usize, free_bytes: usize) {
        self.purged_bytes += bytes;
        if bytes < free_bytes / BURST_WORTH_DIVISOR {
            self.pause(now_ms);
        }
    }

    /// Begins a pause, twice as long as the last one if that was not long ago.
    fn pause(&mut self, now_ms: u64) {
        let was_long_ago = now_ms.saturating_sub(self.next_ms) > BURST_PAUSE_MS_MAX;
        let before_ms = if was_long_ago { 0 } else { self.pause_ms };
        self.pause_ms = (2 * before_ms).clamp(REFAULT_MS, BURST_PAUSE_MS_MAX);
        self.next_ms = now_ms + self.pause_ms;
    }
}
