//! Counters that no lock protects.

use crate::sync::{AtomicU64, AtomicUsize, Ordering};

/// Large blocks always, every operation where asked for.
pub(crate) struct Totals {
    large_blocks: AtomicUsize,
    large_units: AtomicUsize,
    allocated: AtomicU64,
    freed: AtomicU64,
    peak: AtomicU64,
    dug: AtomicU64,
}

impl Totals {
    pub const fn new() -> Self {
        Self {
            large_blocks: AtomicUsize::new(0),
            large_units: AtomicUsize::new(0),
            allocated: AtomicU64::new(0),
            freed: AtomicU64::new(0),
            peak: AtomicU64::new(0),
            dug: AtomicU64::new(0),
        }
    }

    pub fn add_large(&self, units: u32) {
        self.large_blocks.fetch_add(1, Ordering::Relaxed);
        self.large_units.fetch_add(units as usize, Ordering::Relaxed);
    }

    pub fn remove_large(&self, units: u32) {
        self.large_blocks.fetch_sub(1, Ordering::Relaxed);
        self.large_units.fetch_sub(units as usize, Ordering::Relaxed);
    }

    pub fn count_alloc(&self, bytes: usize) {
        let allocated = self.allocated.fetch_add(bytes as u64, Ordering::Relaxed) + bytes as u64;
        let live = allocated.saturating_sub(self.freed.load(Ordering::Relaxed));
        self.peak.fetch_max(live, Ordering::Relaxed);
    }

    pub fn count_free(&self, bytes: usize) {
        self.freed.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub fn count_dug(&self, bytes: usize) {
        self.dug.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub fn read(&self) -> TotalCounts {
        TotalCounts {
            large_blocks: self.large_blocks.load(Ordering::Relaxed),
            large_units: self.large_units.load(Ordering::Relaxed),
            allocated: self.allocated.load(Ordering::Relaxed),
            freed: self.freed.load(Ordering::Relaxed),
            peak: self.peak.load(Ordering::Relaxed),
            dug: self.dug.load(Ordering::Relaxed),
        }
    }
}

/// What the counters say: of large blocks now, and of all bytes since the start.
pub(crate) struct TotalCounts {
    pub large_blocks: usize,
    pub large_units: usize,
    pub allocated: u64,
    pub freed: u64,
    pub peak: u64,
    pub dug: u64,
}
