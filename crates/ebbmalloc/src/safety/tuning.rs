//! Tunables of check mode, harden mode and sampling: quarantines, block records, sampled blocks.

use crate::size_class::UNIT;
use crate::tuning::tunables;

tunables! {
    /// Harden: the most bytes of one class in a heap's quarantine.
    QUARANTINE_CLASS_BYTES: usize = 64 << 10, "bytes", 13;
    /// The same in blocks, at least.
    QUARANTINE_CLASS_BLOCKS_MIN: usize = 8, "blocks", 13;
    /// The same in blocks, at most.
    QUARANTINE_CLASS_BLOCKS_MAX: usize = 256, "blocks", 13;
    /// Harden: the most large blocks in a heap's quarantine. They keep addresses, and no memory.
    QUARANTINE_LARGE_BLOCKS: usize = 64, "blocks", 13;
    /// Harden: the most addresses that these large blocks keep.
    QUARANTINE_LARGE_UNITS: usize = (64 << 20) / UNIT, "units", 13;
    /// Check: the most bytes of a block searched for pointers at exit.
    LEAK_SCAN_BYTES_MAX: usize = 1 << 20, "bytes", 11;
    /// Check: the most records of blocks that are gone.
    GONE_RECORDS_MAX: usize = 1 << 16, "blocks", 11;
    /// Check: such records dropped at once when memory is short.
    GONE_RECORDS_FORGOTTEN: usize = 64, "blocks", 11;
    /// Check and sample: the most calls kept of a stack.
    STACK_CALLS_MAX: usize = 32, "calls", 11;
    /// Sample: the most slots.
    GUARDED_SLOTS_MAX: usize = 256, "slots", 14;
    /// Sample: the most bytes in the pages of all slots.
    GUARDED_BYTES_MAX: usize = 1 << 20, "bytes", 14;
    /// Sample: the fewest slots, where OS pages are large.
    GUARDED_SLOTS_MIN: usize = 16, "slots", 14;
}
