//! Counts large blocks, purged bytes and, with `EBB_STATS`, all operations, without locks.

use crate::platform::sync::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::telemetry::live_bytes::{CounterShard, LiveBytes};
use crate::telemetry::tuning::COUNTER_SHARDS;

/// The counters of an engine (decisions/0019).
pub(crate) struct Counters {
    large_blocks: AtomicUsize,
    large_bytes: AtomicUsize,
    purged: AtomicU64,
    refusals: AtomicU64,
    is_refusal_told: AtomicBool,
    live: LiveBytes,
    shards: [CounterShard; COUNTER_SHARDS],
    /// Shared by threads that find all shards taken.
    shared: CounterShard,
}

impl Counters {
    pub const fn new() -> Self {
        Self {
            large_blocks: AtomicUsize::new(0),
            large_bytes: AtomicUsize::new(0),
            purged: AtomicU64::new(0),
            refusals: AtomicU64::new(0),
            is_refusal_told: AtomicBool::new(false),
            live: LiveBytes::new(),
            shards: [const { CounterShard::new() }; COUNTER_SHARDS],
            shared: CounterShard::new(),
        }
    }

    /// Counts a large block that takes this many bytes of memory.
    pub fn add_large(&self, bytes: usize) {
        self.large_blocks.fetch_add(1, Ordering::Relaxed);
        self.large_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub fn remove_large(&self, bytes: usize) {
        self.large_blocks.fetch_sub(1, Ordering::Relaxed);
        self.large_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Bytes of large blocks that the program holds.
    pub fn large_bytes(&self) -> usize {
        self.large_bytes.load(Ordering::Relaxed)
    }

    /// Counts bytes that the thread with this token allocated or freed.
    ///
    /// No thread waits here. A signal handler may have interrupted this function, or a process may
    /// have forked while another thread was in it.
    #[inline(never)]
    pub fn count(&self, token: usize, allocated: usize, freed: usize) {
        let (live, allocated, freed) = (&self.live, allocated as u64, freed as u64);
        let mut shards = (0..COUNTER_SHARDS)
            .map(|step| &self.shards[(token % COUNTER_SHARDS + step) % COUNTER_SHARDS]);
        if !shards.any(|shard| shard.try_count(live, allocated, freed)) {
            self.shared.count_together(live, allocated, freed);
        }
    }

    pub fn count_page_purges(&self, bytes: usize) {
        self.purged.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts a request for memory that was refused.
    pub fn count_refusal(&self) {
        self.refusals.fetch_add(1, Ordering::Relaxed);
    }

    /// True for the first caller: the one that tells of a refusal.
    pub fn take_first_told(&self) -> bool {
        !self.is_refusal_told.swap(true, Ordering::Relaxed)
    }

    pub fn read(&self) -> CounterTotals {
        let shards = self.shards.iter().chain([&self.shared]).map(CounterShard::read);
        let (allocated, freed) = shards.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        CounterTotals {
            large_blocks: self.large_blocks.load(Ordering::Relaxed),
            large_bytes: self.large_bytes.load(Ordering::Relaxed),
            allocated,
            freed,
            peak: self.live.peak(),
            purged: self.purged.load(Ordering::Relaxed),
            refusals: self.refusals.load(Ordering::Relaxed),
        }
    }
}

/// Values of all counters.
pub(crate) struct CounterTotals {
    /// Large blocks in use.
    pub large_blocks: usize,
    /// Bytes of memory that large blocks in use take: whole units, or whole OS pages.
    pub large_bytes: usize,
    /// Bytes allocated since the start, if every operation is counted.
    pub allocated: u64,
    /// Bytes freed since the start, if every operation is counted.
    pub freed: u64,
    /// The most live bytes that there were, if every operation is counted.
    pub peak: u64,
    /// Bytes of free pages in spans that were purged since the start.
    pub purged: u64,
    /// Requests for memory that were refused since the start.
    pub refusals: u64,
}

#[cfg(all(test, not(miri)))]
mod tests {
    use std::thread;

    use super::*;
    use crate::telemetry::tuning::SHARD_SLACK_BYTES;

    #[test]
    fn one_thread_is_counted_exactly() {
        let totals = Counters::new();
        let sizes = || (0..1000).map(|nth| nth * 37 % 5000);
        sizes().for_each(|bytes| totals.count(7, bytes, 0));
        let all = sizes().sum::<usize>() as u64;
        sizes().for_each(|bytes| totals.count(7, 0, bytes));
        totals.count(7, 1, 0);
        let counts = totals.read();
        assert_eq!((counts.allocated, counts.freed, counts.peak), (all + 1, all, all));
    }

    /// Each thread frees what another allocated, so that no shard is even. There are more threads
    /// than shards.
    #[test]
    fn threads_lose_no_byte_and_little_of_the_peak() {
        const THREADS: usize = 2 * COUNTER_SHARDS;
        const ROUNDS: usize = 20_000;
        const KEPT: usize = 1 << 20;
        let totals = Counters::new();
        thread::scope(|scope| {
            for token in 0..THREADS {
                let totals = &totals;
                scope.spawn(move || {
                    totals.count(token, KEPT, 0);
                    for round in 0..ROUNDS {
                        totals.count(token, round % 1000, 0);
                        totals.count((token + 1) % THREADS, 0, round % 1000);
                    }
                });
            }
        });
        let counts = totals.read();
        let passing = (0..ROUNDS).map(|round| round % 1000).sum::<usize>() * THREADS;
        let kept = (THREADS * KEPT) as u64;
        assert_eq!((counts.allocated, counts.freed), (passing as u64 + kept, passing as u64));
        let max = kept + (THREADS * 1000) as u64;
        let slack = COUNTER_SHARDS as u64 * SHARD_SLACK_BYTES;
        assert!((kept - slack..max + slack).contains(&counts.peak), "{} of {kept}", counts.peak);
    }

    /// All shards are taken, as if signal handlers had interrupted threads that were counting.
    #[test]
    fn nobody_waits() {
        let totals = Counters::new();
        totals.shards.iter().for_each(CounterShard::take);
        totals.count(7, 10, 0);
        totals.count(7, 0, 9);
        let counts = totals.read();
        assert_eq!((counts.allocated, counts.freed, counts.peak), (10, 9, 10));
    }
}
