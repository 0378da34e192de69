//! Tunables of the counters and of the heap profile.

use crate::figures::profile::MEAN_BYTES;
use crate::tuning::tunables;

tunables! {
    /// Shards of the counters. A thread keeps to one shard while no other thread uses it.
    COUNTER_SHARDS: usize = 8, "shards", 19;
    /// A shard publishes its live bytes once they are off by this much.
    SHARD_SLACK_BYTES: u64 = 16 << 10, "bytes", 19;
    /// Heap profile: the mean number of bytes from one sampled block to the next, unless the user
    /// gives another. That of the profilers of other allocators.
    PROFILE_MEAN_BYTES: u64 = MEAN_BYTES, "bytes", 38;
    /// Heap profile: the most calls kept of a stack.
    PROFILE_CALLS_MAX: usize = 128, "calls", 38;
    /// Heap profile: the most memory for distinct stacks. Blocks of further stacks count as those
    /// of one stack without calls.
    PROFILE_STACKS_BYTES_MAX: usize = 16 << 20, "bytes", 38;
    /// Heap profile: memory beyond that for more sizes of stacks that are known.
    PROFILE_SIZES_BYTES_MAX: usize = 2 << 20, "bytes", 38;
    /// Heap profile: the most sampled blocks that the program holds at a time.
    PROFILE_BLOCKS_MAX: usize = 1 << 20, "blocks", 38;
}
