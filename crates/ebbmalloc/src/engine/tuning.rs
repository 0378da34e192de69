//! Declares the tunables of the engine: how blocks move between layers, when the scavenger works,
//! and those of the safety modes.

use crate::backend::tuning::USUAL_DELAY_MS;
use crate::size_class::UNIT;
use crate::tuning::tunables;

tunables! {
    /// The most blocks that move between a cache and a central free list at once.
    BATCH_BLOCKS_MAX: usize = 256, "blocks", 7;
    /// Batches up to this size use less of the thread's stack. It must be cleared first.
    MEDIUM_BATCH_BLOCKS: usize = 64, "blocks", 27;
    /// Batches up to this size use still less.
    SMALL_BATCH_BLOCKS: usize = 16, "blocks", 27;
    /// The bound of a cache's extra capacity, at most: capacity beyond the first capacity of its
    /// stacks.
    CACHE_BYTES_MAX: usize = 6 << 20, "bytes", 5;
    /// The lowest such bound.
    CACHE_BYTES_MIN: usize = 768 << 10, "bytes", 5;
    /// Extra capacity of all caches together, between these bounds.
    CACHE_DIVISOR: usize = 4, "of memory in use", 5;
    /// A cache without capacity left checks its bound at one in this many misses.
    CAPACITY_CHECK_INTERVAL: usize = 64, "misses", 5;
    /// Blocks put above one from another CPU: as many as a program may take before it frees some.
    BURYING_BLOCKS: usize = 4, "blocks", 22;
    /// Threads with a cache of their own for each CPU, where there is no rseq. `EBB_MODE=thread`
    /// gives one to each thread.
    OWN_CACHES_PER_CPU: usize = 4, "threads", 21;
    /// From this length on, the pages of a large block are moved, not its bytes copied.
    MOVED_BLOCK_UNITS: u32 = ((512 << 10) / UNIT) as u32, "units", 6;

    /// Time that a stack of a per-CPU cache stays closed before it is drained, with several
    /// threads. A sequence takes nanoseconds, and restarts if its thread loses the CPU. Linux's
    /// watchdog is due on each CPU every 4 s.
    PERCPU_SETTLE_MS: u32 = 5000, "ms", 32;
    /// The same for threads' own caches: until stores of other CPUs are visible.
    THREAD_SETTLE_MS: u32 = 20, "ms", 32;
    /// `malloc_trim` waits so at most once in this time, as programs may trim often.
    TRIM_WAIT_MS: u64 = 200, "ms", 32;
    /// Such waits that it may make one right after the other.
    TRIM_WAITS_AT_ONCE: u64 = 5, "waits", 32;
    /// Blocks that a drain takes from a stack at once.
    DRAIN_BATCH_BLOCKS: usize = 64, "blocks", 17;
    /// Reclaim empties stacks if mostly free classes have this free.
    RECLAIM_WORTH_DIVISOR: usize = 32, "of memory in use", 17;
    /// The most that one reclaim purges in spans. A thousand OS pages take a millisecond or two.
    RECLAIM_PURGE_BYTES_MAX: usize = 4 << 20, "bytes", 17;

    /// Time between rounds of the scavenger.
    ROUND_MS: u32 = USUAL_DELAY_MS as u32, "ms", 9;
    /// The same while rounds purge nothing, but caches are in use.
    IDLE_ROUND_MS: u32 = 1000, "ms", 9;
    /// The same while rounds purge nothing, but `SCAVENGER_UNITS_MIN` is in use.
    WATCH_ROUND_MS: u32 = 2000, "ms", 33;
    /// After this many such rounds the scavenger ends. The next bulk allocation starts it again.
    WATCH_ROUNDS_MAX: u32 = 5, "rounds", 33;
    /// Rounds of a cycle, which visits each span once.
    ROUNDS_PER_CYCLE: usize = 5, "rounds", 9;
    /// After this many cycles without a purge or a bulk free, the process counts as quiet. A cycle
    /// takes longer where more than `ROUNDS_PER_CYCLE` times `ROUND_UNITS_MAX` is committed.
    QUIET_CYCLES: u32 = 2, "cycles", 9;
    /// The most that one round visits or purges. A fork waits for the end of a round.
    ROUND_UNITS_MAX: usize = (256 << 20) / UNIT, "units", 9;
    /// The most purged before the page heap is unlocked for a moment.
    PURGE_UNITS_MAX: usize = (16 << 20) / UNIT, "units", 9;
    /// The scavenger starts only with this in use.
    SCAVENGER_UNITS_MIN: usize = (4 << 20) / UNIT, "units", 33;
    /// In a process that has had other threads, but whose first allocates alone, it starts only
    /// with this free and resident, or refaulted.
    SCAVENGER_ALONE_UNITS_MIN: usize = (32 << 20) / UNIT, "units", 33;
    /// Its start is considered at most once in this time.
    SCAVENGER_CHECK_MS: u32 = 2, "ms", 33;
    /// Time until the next attempt after a failed start.
    SCAVENGER_RETRY_MS: u64 = 60_000, "ms", 33;

    /// Check mode: the least guard bytes behind a block's end.
    CANARY_BYTES_MIN: usize = 16, "bytes", 11;
    /// Check mode: the most guard bytes checked behind a block's end, and before the next block.
    CANARY_BYTES_MAX: usize = 4096, "bytes", 11;
    /// Check mode: freed blocks in quarantine.
    CHECK_QUARANTINE_BYTES: usize = 16 << 20, "bytes", 11;
    /// Check mode: larger blocks skip quarantine. Filling them would make them resident.
    CHECK_QUARANTINED_BLOCK_BYTES_MAX: usize = CHECK_QUARANTINE_BYTES / 4, "bytes", 11;
    /// Check mode: stacks listed at exit, of blocks still held.
    LEAKS_LISTED_MAX: usize = 10, "stacks", 11;
    /// Harden mode: heaps for blocks of no other heap, at most one for each CPU.
    DEFAULT_HEAPS_MAX: usize = 8, "heaps", 13;
    /// Harden mode: from this size on, freed pages are purged, not cleared.
    HARDENED_PURGE_BYTES_MIN: usize = 256 << 10, "bytes", 13;
    /// Sampling: time that a report waits for the lock of the slots. Its own thread may hold it.
    FAULT_REPORT_WAIT_MS: usize = 100, "ms", 14;
    /// Sampling: blocks at which the engine looks whether its handler is still there. Rust's
    /// library replaces it while a program begins.
    WATCHED_SAMPLES: u64 = 64, "blocks", 14;
    /// Heap profile at peaks: growth of what the program holds after which a new file is written.
    PROFILE_PEAK_DIVISOR: u64 = 16, "of what the program holds", 38;
    /// Heap profile near a limit: the engine asks the kernel how much is taken at most once in this
    /// time, since that reads some ten files.
    PROFILE_LIMIT_LOOK_MS: u64 = 20, "ms", 38;
    /// `ebb why` draws conclusions only from parts of at least this share.
    CONCLUSION_PERCENT_MIN: u64 = 5, "percent", 19;
}
