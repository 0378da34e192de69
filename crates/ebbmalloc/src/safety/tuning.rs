//! Tunables of what finds mistakes: quarantines, records of blocks, sampled blocks.

use crate::size_class::UNIT;
use crate::tuning::tunables;

tunables! {
    /// Harden: freed blocks of one class that wait in a heap's quarantine, in bytes.
    QUARANTINE_CLASS_BYTES: usize = 64 << 10, "bytes", 13;
    /// The same in blocks, at least.
    QUARANTINE_CLASS_BLOCKS_MIN: usize = 8, "blocks", 13;
    /// The same in blocks, at most.
    QUARANTINE_CLASS_BLOCKS_MAX: usize = 256, "blocks", 13;
    /// Harden: large blocks that wait. They have addresses only, and no memory.
    QUARANTINE_LARGE_BLOCKS: usize = 64, "blocks", 13;
    /// Addresses that these may have together.
    QUARANTINE_LARGE_UNITS: usize = (64 << 20) / UNIT, "units", 13;
    /// Check: bytes of a block that are searched for pointers at exit.
    LEAK_SCAN_BYTES_MAX: usize = 1 << 20, "bytes", 11;
    /// Check: freed blocks that are still known.
    GONE_RECORDS_MAX: usize = 1 << 16, "blocks", 11;
    /// Check: how many of them are forgotten at once where memory is short.
    GONE_RECORDS_FORGOTTEN: usize = 64, "blocks", 11;
    /// Calls kept of a stack.
    STACK_CALLS_MAX: usize = 32, "calls", 11;
    /// Sample: the most slots for sampled blocks.
    GUARDED_SLOTS_MAX: usize = 256, "slots", 14;
    /// The most bytes in all their pages.
    GUARDED_BYTES_MAX: usize = 1 << 20, "bytes", 14;
    /// The least slots, where OS pages are large.
    GUARDED_SLOTS_MIN: usize = 16, "slots", 14;
}
