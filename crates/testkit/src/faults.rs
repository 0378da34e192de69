//! Calls of the operating system that are refused on demand.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Numbers calls from 0 and refuses those of a range.
#[derive(Default)]
pub struct Faults {
    from: AtomicUsize,
    to: AtomicUsize,
    calls: AtomicUsize,
    refusals: AtomicUsize,
}

impl Faults {
    /// Refuses the calls with these numbers, and no others.
    pub fn refuse(&self, calls: Range<usize>) {
        self.from.store(calls.start, Relaxed);
        self.to.store(calls.end, Relaxed);
    }

    /// The same, counted from the next call on.
    pub fn refuse_next(&self, calls: Range<usize>) {
        let now = self.calls();
        self.refuse(now + calls.start..now + calls.end);
    }

    /// Refuses no call from now on.
    pub fn heal(&self) {
        self.refuse(0..0);
    }

    /// How many calls there were.
    pub fn calls(&self) -> usize {
        self.calls.load(Relaxed)
    }

    /// How many of these were refused.
    pub fn refusals(&self) -> usize {
        self.refusals.load(Relaxed)
    }

    /// Counts a call; true if it is to be refused.
    pub(crate) fn refuses(&self) -> bool {
        let call = self.calls.fetch_add(1, Relaxed);
        let refused = (self.from.load(Relaxed)..self.to.load(Relaxed)).contains(&call);
        self.refusals.fetch_add(refused as usize, Relaxed);
        refused
    }
}
