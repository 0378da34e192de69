//! Tunables of the engine: how blocks move between layers, when the scavenger works, the safety modes.

use crate::size_class::UNIT;
use crate::tuning::tunables;

tunables! {
    /// The most blocks that move between a cache and its central list at a time.
    BATCH_BLOCKS_MAX: usize = 256, "blocks", 7;
    /// A batch of fewer takes less of the thread's stack, which must be cleared first.
    MEDIUM_BATCH_BLOCKS: usize = 64, "blocks", 27;
    /// The same for small batches.
    SMALL_BATCH_BLOCKS: usize = 16, "blocks", 27;
    /// Blocks of a batch whose first cache line is prefetched: they mostly come from another CPU.
    PREFETCHED_BLOCKS_MAX: usize = 64, "blocks", 7;
    /// The most that all stacks of a cache may hold beyond what each is first set up with.
    CACHE_BYTES_MAX: usize = 6 << 20, "bytes", 5;
    /// The least of that.
    CACHE_BYTES_MIN: usize = 768 << 10, "bytes", 5;
    /// In between: all caches together hold one part in this many of what is in use.
    CACHE_SHARE: usize = 4, "of what is in use", 5;
    /// A stack of this capacity grows in a streak only now and then: blocks that flow one way do not come back.
    STREAK_STACK_BYTES: usize = 16 << 10, "bytes", 7;
    /// Namely at one in this many misses.
    STREAK_GROWTH_INTERVAL: u8 = 64, "misses", 7;
    /// Other stacks are asked for capacity at one in this many misses.
    STEAL_INTERVAL: usize = 64, "misses", 5;
    /// How many classes are asked then.
    STEAL_CLASSES: usize = 8, "classes", 5;
    /// Blocks put above one that came from another CPU: as many as a program may take before it frees some.
    BURYING_BLOCKS: usize = 4, "blocks", 22;
    /// Threads with caches of their own, for each CPU, where thread mode was not asked for.
    OWN_CACHES_PER_CPU: usize = 4, "threads", 21;
    /// From this length on, a block's pages are moved instead of its bytes copied.
    MOVED_BLOCK_UNITS: u32 = ((512 << 10) / UNIT) as u32, "units", 6;

    /// How long stacks of CPUs stay closed before they are drained while other threads run. A sequence takes nanoseconds,
    /// and restarts if its thread loses the CPU; Linux runs its watchdog on each CPU every four seconds.
    PERCPU_SETTLE_MS: u32 = 5000, "ms", 32;
    /// The same for stacks of threads: until stores of other CPUs are visible.
    THREAD_SETTLE_MS: u32 = 20, "ms", 32;
    /// Blocks that a drain takes at a time.
    DRAIN_BATCH_BLOCKS: usize = 64, "blocks", 17;
    /// Reclaim: classes are worth it if together this part of what is in use is free in them.
    RECLAIM_WORTH_SHARE: usize = 32, "of what is in use", 17;
    /// The most pages of spans in use that one reclaim purges: a thousand pages take a millisecond or two.
    RECLAIM_PURGE_BYTES_MAX: usize = 4 << 20, "bytes", 17;

    /// From one round of the scavenger to the next.
    ROUND_MS: u32 = 200, "ms", 3;
    /// The same where nothing was purged lately but caches are in use.
    IDLE_ROUND_MS: u32 = 1000, "ms", 3;
    /// The same where nothing was purged lately, and much is in use.
    WATCH_ROUND_MS: u32 = 2000, "ms", 33;
    /// After this many of those the scavenger ends. The next bulk allocation starts it again.
    WATCH_ROUNDS_MAX: u32 = 5, "rounds", 33;
    /// Rounds in which all spans are looked at once.
    ROUNDS_PER_CYCLE: usize = 5, "rounds", 9;
    /// Cycles without any purge after which the process counts as quiet.
    QUIET_CYCLES: u32 = 2, "cycles", 9;
    /// The most that a round looks at or purges: a fork waits for its end.
    ROUND_UNITS_MAX: usize = (256 << 20) / UNIT, "units", 9;
    /// The most that is purged while the page heap is locked.
    PURGE_UNITS_MAX: usize = (16 << 20) / UNIT, "units", 9;
    /// The scavenger starts where this much is in use.
    SCAVENGER_UNITS_MIN: usize = (4 << 20) / UNIT, "units", 33;
    /// A start is considered at most once in this time.
    SCAVENGER_CHECK_MS: u32 = 2, "ms", 33;
    /// Time until the next attempt where no thread could be started.
    SCAVENGER_RETRY_MS: u64 = 60_000, "ms", 33;

    /// Check: the least bytes behind a block's end that are looked at.
    CANARY_BYTES_MIN: usize = 16, "bytes", 11;
    /// The most, there and before the next block.
    CANARY_BYTES_MAX: usize = 4096, "bytes", 11;
    /// Check: bytes of freed blocks in quarantine.
    CHECK_QUARANTINE_BYTES: usize = 16 << 20, "bytes", 11;
    /// Larger blocks are freed at once: filling them would make them resident.
    CHECK_QUARANTINED_BLOCK_BYTES_MAX: usize = CHECK_QUARANTINE_BYTES / 4, "bytes", 11;
    /// Stacks listed at exit with what is still held.
    LEAKS_LISTED_MAX: usize = 10, "stacks", 11;
    /// Harden: heaps that share all blocks of no other heap, at most one a CPU.
    DEFAULT_HEAPS_MAX: usize = 8, "heaps", 13;
    /// Harden: from this size on, freed pages are purged instead of cleared.
    HARDENED_PURGE_BYTES_MIN: usize = 256 << 10, "bytes", 13;
    /// Milliseconds that a report waits for the table of sampled blocks, which its own thread may hold.
    FAULT_REPORT_WAIT_MS: usize = 100, "ms", 14;
    /// `ebb why` concludes only from this part of resident memory on.
    CONCLUSION_PERCENT_MIN: u64 = 5, "percent", 9;
}
