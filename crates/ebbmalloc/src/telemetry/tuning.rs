//! Tunables of the counters.

use crate::tuning::tunables;

tunables! {
    /// Shards of the counters. A thread keeps to one shard while no other thread uses it.
    COUNTER_SHARDS: usize = 8, "shards", 19;
    /// A shard publishes its live bytes once they are off by this much.
    SHARD_SLACK_BYTES: u64 = 16 << 10, "bytes", 19;
}
