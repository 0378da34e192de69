//! Declares the tunables of the engine: how blocks move between layers, when the scavenger works,
//! and those of the safety modes.

use crate::backend::tuning::USUAL_DELAY_MS;
use crate::size_class::UNIT;
use crate::tuning::tunables;

tunables! {
    /// The most blocks that move between a cache and a central free list at a time.
    BATCH_BLOCKS_MAX: usize = 256, "blocks", 7;
    /// Batches up to this size use less of the thread's stack, which must be cleared first.
    MEDIUM_BATCH_BLOCKS: usize = 64, "blocks", 27;
    /// Batches up to this size use still less.
    SMALL_BATCH_BLOCKS: usize = 16, "blocks", 27;
    /// Blocks of a batch whose first cache lines are prefetched. They mostly come from another CPU.
    PREFETCHED_BLOCKS_MAX: usize = 64, "blocks", 7;
    /// The bound of a cache's extra capacity, at most: capacity beyond the first capacity of its
    /// stacks.
    CACHE_BYTES_MAX: usize = 6 << 20, "bytes", 5;
    /// The bound of a cache's extra capacity, at least.
    CACHE_BYTES_MIN: usize = 768 << 10, "bytes", 5;
    /// Between these bounds, all caches have one part in this many of the memory in use as extra
    /// capacity.
    CACHE_SHARE: usize = 4, "of memory in use", 5;
    /// A cache without capacity left checks its bound again at one in this many misses.
    CAPACITY_CHECK_INTERVAL: usize = 64, "misses", 5;
    /// A stack with this capacity seldom grows in a streak: blocks that flow one way do not come
    /// back.
    STREAK_STACK_BYTES: usize = 16 << 10, "bytes", 7;
    /// Such a stack grows at one in this many misses of streaks.
    STREAK_GROWTH_INTERVAL: u8 = 64, "misses", 7;
    /// Blocks put above one from another CPU: as many as a program may take before it frees some.
    BURYING_BLOCKS: usize = 4, "blocks", 22;
    /// Threads with a cache of their own for each CPU, unless `EBB_MODE` sets thread mode.
    OWN_CACHES_PER_CPU: usize = 4, "threads", 21;
    /// From this length on, the pages of a large block are moved and not its bytes copied.
    MOVED_BLOCK_UNITS: u32 = ((512 << 10) / UNIT) as u32, "units", 6;

    /// With several threads: time that a stack of a per-CPU cache stays closed before it is
    /// drained. A sequence takes nanoseconds, and restarts if its thread loses the CPU. Linux's
    /// watchdog is due on each CPU every 4 s.
    PERCPU_SETTLE_MS: u32 = 5000, "ms", 32;
    /// The same for the stacks of threads' own caches: until stores of other CPUs are visible.
    THREAD_SETTLE_MS: u32 = 20, "ms", 32;
    /// Blocks that a drain takes from a stack at a time.
    DRAIN_BATCH_BLOCKS: usize = 64, "blocks", 17;
    /// Reclaim empties stacks if mostly free classes have one part in this many of the memory in
    /// use free.
    RECLAIM_WORTH_SHARE: usize = 32, "of memory in use", 17;
    /// The most that one reclaim purges in spans. A thousand OS pages take a millisecond or two.
    RECLAIM_PURGE_BYTES_MAX: usize = 4 << 20, "bytes", 17;

    /// Time from one round of the scavenger to the next.
    ROUND_MS: u32 = USUAL_DELAY_MS as u32, "ms", 3;
    /// The same while no round purges anything, but caches are in use.
    IDLE_ROUND_MS: u32 = 1000, "ms", 3;
    /// The same while no round purges anything, but at least `SCAVENGER_UNITS_MIN` is in use.
    WATCH_ROUND_MS: u32 = 2000, "ms", 33;
    /// After this many such rounds the scavenger ends. The next bulk allocation starts it again.
    WATCH_ROUNDS_MAX: u32 = 5, "rounds", 33;
    /// Rounds of a cycle, in which each span is visited once.
    ROUNDS_PER_CYCLE: usize = 5, "rounds", 9;
    /// After this many cycles without a purge or a bulk free, the process counts as quiet: after
    /// two seconds, or longer where more than `ROUNDS_PER_CYCLE` times `ROUND_UNITS_MAX` is
    /// committed.
    QUIET_CYCLES: u32 = 2, "cycles", 9;
    /// The most that one round visits or purges. A fork waits for the end of a round.
    ROUND_UNITS_MAX: usize = (256 << 20) / UNIT, "units", 9;
    /// The most that is purged before the page heap is unlocked for a moment.
    PURGE_UNITS_MAX: usize = (16 << 20) / UNIT, "units", 9;
    /// The scavenger starts only where this much is in use.
    SCAVENGER_UNITS_MIN: usize = (4 << 20) / UNIT, "units", 33;
    /// Where the process has had other threads, but only the first allocates, it starts only where
    /// this much is free and resident, or may stay because it refaulted.
    SCAVENGER_ALONE_UNITS_MIN: usize = (32 << 20) / UNIT, "units", 33;
    /// The engine considers a start of the scavenger at most once in this time.
    SCAVENGER_CHECK_MS: u32 = 2, "ms", 33;
    /// Time until the next attempt where the thread could not be started.
    SCAVENGER_RETRY_MS: u64 = 60_000, "ms", 33;

    /// Check mode: guard bytes behind a block's end, at least.
    CANARY_BYTES_MIN: usize = 16, "bytes", 11;
    /// Check mode: guard bytes checked behind a block's end, and as many before the next block, at
    /// most.
    CANARY_BYTES_MAX: usize = 4096, "bytes", 11;
    /// Check mode: freed blocks in quarantine.
    CHECK_QUARANTINE_BYTES: usize = 16 << 20, "bytes", 11;
    /// Check mode: larger blocks skip quarantine, since filling them would make them resident.
    CHECK_QUARANTINED_BLOCK_BYTES_MAX: usize = CHECK_QUARANTINE_BYTES / 4, "bytes", 11;
    /// Check mode: stack traces of live blocks that are listed at exit.
    LEAKS_LISTED_MAX: usize = 10, "stacks", 11;
    /// Harden mode: heaps for blocks that belong to no heap of the program; at most one for each
    /// CPU.
    DEFAULT_HEAPS_MAX: usize = 8, "heaps", 13;
    /// Harden mode: from this size on, freed pages are purged and not cleared.
    HARDENED_PURGE_BYTES_MIN: usize = 256 << 10, "bytes", 13;
    /// Sampling: time that a report waits for the lock of the slots, which its own thread may hold.
    FAULT_REPORT_WAIT_MS: usize = 100, "ms", 14;
    /// Heap profile at peaks: a file is written when the memory in use exceeds the last written
    /// peak by one part in this many.
    PROFILE_PEAK_SHARE: usize = 16, "of memory in use", 38;
    /// `ebb why` draws conclusions only from parts of at least this share of resident memory.
    CONCLUSION_PERCENT_MIN: u64 = 5, "percent", 9;
}
