//! Tunables of what is counted.

use crate::tuning::tunables;

tunables! {
    /// Shards of the counters. A thread keeps to one while no other uses it.
    COUNTER_SHARDS: usize = 8, "shards", 19;
    /// Bytes by which a shard may be off the published total.
    SHARD_SLACK_BYTES: u64 = 16 << 10, "bytes", 19;
}
