//! Counts live bytes and their peak, if every operation is counted.
//!
//! Threads count in several shards, so that they need not wait for each other. A thread that
//! counts in a shard has it alone meanwhile (model-checked in `crates/testkit/tests/loom.rs`). A
//! shard publishes its live bytes once they differ by [`SHARD_SLACK_BYTES`] from the last
//! published value. So the peak is exact with one thread. With more it may be off by that amount
//! for each shard.

use crate::platform::sync::{AtomicU32, Ordering, ProtocolU64, const_fn};
use crate::telemetry::tuning::SHARD_SLACK_BYTES;

/// Published live bytes, and their peak.
pub struct LiveBytes {
    published: ProtocolU64,
    peak: ProtocolU64,
}

/// A counter shard: one cache line.
#[repr(align(64))]
pub struct CounterShard {
    /// 1 while a thread counts here.
    busy: AtomicU32,
    allocated: ProtocolU64,
    freed: ProtocolU64,
    /// Live bytes of this shard that are in `LiveBytes::published`.
    published: ProtocolU64,
}

impl LiveBytes {
    const_fn! {
        /// Nothing is live.
        pub fn new() -> Self {
            Self { published: ProtocolU64::new(0), peak: ProtocolU64::new(0) }
        }
    }

    /// The most bytes that were live.
    pub fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    /// Adds `change` to the published bytes. Raises the peak if they and the caller's
    /// `unpublished` bytes exceed it.
    fn publish(&self, change: u64, unpublished: u64) {
        let published = match change {
            0 => self.published.load(Ordering::Relaxed),
            _ => self.published.fetch_add(change, Ordering::Relaxed).wrapping_add(change),
        };
        // Shards that mostly free publish negative values, which may come first.
        let live = (published.wrapping_add(unpublished) as i64).max(0) as u64;
        // Threads that always wrote the peak would compete for its cache line.
        if live > self.peak() {
            self.peak.fetch_max(live, Ordering::Relaxed);
        }
    }
}

impl CounterShard {
    const_fn! {
        /// Nothing was counted.
        pub fn new() -> Self {
            let (allocated, freed) = (ProtocolU64::new(0), ProtocolU64::new(0));
            Self { busy: AtomicU32::new(0), allocated, freed, published: ProtocolU64::new(0) }
        }
    }

    /// Bytes allocated and bytes freed.
    pub fn read(&self) -> (u64, u64) {
        (self.allocated.load(Ordering::Relaxed), self.freed.load(Ordering::Relaxed))
    }

    /// Counts bytes. Returns false if another thread counts here.
    pub fn try_count(&self, live: &LiveBytes, allocated: u64, freed: u64) -> bool {
        let taken = self.busy.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if taken {
            self.count_alone(live, allocated, freed);
            self.busy.store(0, Ordering::Release);
        }
        taken
    }

    /// For tests: takes the shard, as if a thread counted here from now on.
    #[cfg(all(test, not(loom)))]
    pub fn take(&self) {
        self.busy.store(1, Ordering::Relaxed);
    }

    /// Counts bytes in a shard that the caller has alone. Public for mutants.
    pub fn count_alone(&self, live: &LiveBytes, allocated: u64, freed: u64) {
        let before = self.read();
        let (allocated, freed) = (before.0 + allocated, before.1 + freed);
        self.allocated.store(allocated, Ordering::Relaxed);
        self.freed.store(freed, Ordering::Relaxed);
        let own_live = allocated.wrapping_sub(freed);
        let unpublished = own_live.wrapping_sub(self.published.load(Ordering::Relaxed));
        if (unpublished as i64).unsigned_abs() < SHARD_SLACK_BYTES {
            live.publish(0, unpublished);
        } else {
            self.published.store(own_live, Ordering::Relaxed);
            live.publish(unpublished, 0);
        }
    }

    /// Counts bytes in a shard that several threads share, all by this function. Publishes all.
    pub fn count_together(&self, live: &LiveBytes, allocated: u64, freed: u64) {
        self.allocated.fetch_add(allocated, Ordering::Relaxed);
        self.freed.fetch_add(freed, Ordering::Relaxed);
        live.publish(allocated.wrapping_sub(freed), 0);
    }
}
