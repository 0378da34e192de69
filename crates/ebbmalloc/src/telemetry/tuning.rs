//! Tunables of the counters and of the heap profile.

use crate::figures::profile::MEAN_BYTES;
use crate::tuning::tunables;

tunables! {
    /// Shards of the counters. A thread keeps to one shard while no other thread uses it.
    COUNTER_SHARDS: usize = 8, "shards", 19;
    /// A shard publishes its live bytes once they are off by this.
    SHARD_SLACK_BYTES: u64 = 16 << 10, "bytes", 19;
    /// Heap profile: mean number of bytes between samples, by default. That of the profilers of
    /// other allocators.
    PROFILE_MEAN_BYTES: u64 = MEAN_BYTES, "bytes", 38;
    /// Heap profile: the most calls kept of a stack.
    PROFILE_CALLS_MAX: usize = 128, "calls", 38;
    /// Heap profile: the most memory for distinct stacks. Blocks of further stacks count as those
    /// of one stack without calls.
    PROFILE_STACKS_BYTES_MAX: usize = 16 << 20, "bytes", 38;
    /// Heap profile: the most memory for further sizes of known stacks.
    PROFILE_SIZES_BYTES_MAX: usize = 2 << 20, "bytes", 38;
    /// Heap profile: the most live sampled blocks.
    PROFILE_BLOCKS_MAX: usize = 1 << 20, "blocks", 38;
}
