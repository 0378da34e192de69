//! How many bytes are live, and the most that ever were, where every operation is counted.
//!
//! Threads count in several places, so as not to wait for each other. Whoever counts in a place has it alone meanwhile
//! (model-checked in `crates/testkit/tests/loom.rs`). A place tells the others what it has more or less than it has told,
//! once that is much: with one thread the peak is exact, with more it may be off by that much for each place.

use crate::platform::sync::{AtomicU32, Ordering, ProtocolU64, const_fn};
use crate::telemetry::tuning::SHARD_SLACK_BYTES;

/// Live bytes as far as told, and the most that there were.
pub struct Live {
    told: ProtocolU64,
    peak: ProtocolU64,
}

/// What was counted in a place: a cache line.
#[repr(align(64))]
pub struct CounterShard {
    /// 1 while somebody counts here.
    busy: AtomicU32,
    allocated: ProtocolU64,
    freed: ProtocolU64,
    /// What of their difference `Live::told` has.
    told: ProtocolU64,
}

impl Live {
    const_fn! {
        /// Nothing is live.
        pub fn new() -> Self {
            Self { told: ProtocolU64::new(0), peak: ProtocolU64::new(0) }
        }
    }

    /// The most bytes that were live.
    pub fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    /// Adds what a place has to tell, and notes a peak where `untold` bytes more make one.
    fn tell(&self, tells: u64, untold: u64) {
        let told = match tells {
            0 => self.told.load(Ordering::Relaxed),
            _ => self.told.fetch_add(tells, Ordering::Relaxed).wrapping_add(tells),
        };
        // Places that only free have told less than nothing.
        let live = (told.wrapping_add(untold) as i64).max(0) as u64;
        // Looked at first: if all always wrote they would wait for each other.
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
            Self { busy: AtomicU32::new(0), allocated, freed, told: ProtocolU64::new(0) }
        }
    }

    /// Bytes that were allocated, and bytes that were freed.
    pub fn read(&self) -> (u64, u64) {
        (self.allocated.load(Ordering::Relaxed), self.freed.load(Ordering::Relaxed))
    }

    /// Counts bytes, unless somebody else counts here: then false.
    pub fn try_count(&self, live: &Live, allocated: u64, freed: u64) -> bool {
        let taken = self.busy.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if taken {
            self.count_alone(live, allocated, freed);
            self.busy.store(0, Ordering::Release);
        }
        taken
    }

    /// As if somebody counted here from now on: for tests.
    #[cfg(all(test, not(loom)))]
    pub fn take(&self) {
        self.busy.store(1, Ordering::Relaxed);
    }

    /// The same, where nobody else can be. Public for mutants.
    pub fn count_alone(&self, live: &Live, allocated: u64, freed: u64) {
        let before = self.read();
        let (allocated, freed) = (before.0 + allocated, before.1 + freed);
        self.allocated.store(allocated, Ordering::Relaxed);
        self.freed.store(freed, Ordering::Relaxed);
        let now = allocated.wrapping_sub(freed);
        let untold = now.wrapping_sub(self.told.load(Ordering::Relaxed));
        if (untold as i64).unsigned_abs() < SHARD_SLACK_BYTES {
            live.tell(0, untold);
        } else {
            self.told.store(now, Ordering::Relaxed);
            live.tell(untold, 0);
        }
    }

    /// The same, where others count in the same way, and in no other. All is told.
    pub fn count_together(&self, live: &Live, allocated: u64, freed: u64) {
        self.allocated.fetch_add(allocated, Ordering::Relaxed);
        self.freed.fetch_add(freed, Ordering::Relaxed);
        live.tell(allocated.wrapping_sub(freed), 0);
    }
}
