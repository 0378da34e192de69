//! Refuses calls of the operating system on demand.

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
    /// Refuses the calls with these numbers, counted from 0, and no others.
    pub fn refuse(&self, calls: Range<usize>) {
        self.from.store(calls.start, Relaxed);
        self.to.store(calls.end, Relaxed);
    }

    /// Refuses the calls with these numbers, counted from the next call on.
    pub fn refuse_next(&self, calls: Range<usize>) {
        let now = self.calls();
        self.refuse(now + calls.start..now + calls.end);
    }

    /// Refuses no call from now on.
    pub fn heal(&self) {
        self.refuse(0..0);
    }

    /// Number of calls so far.
    pub fn calls(&self) -> usize {
        self.calls.load(Relaxed)
    }

    /// Number of refused calls so far.
    pub fn refusals(&self) -> usize {
        self.refusals.load(Relaxed)
    }

    /// Counts a call. True if it is to be refused.
    pub(crate) fn refuses(&self) -> bool {
        let call = self.calls.fetch_add(1, Relaxed);
        let refused = (self.from.load(Relaxed)..self.to.load(Relaxed)).contains(&call);
        self.refusals.fetch_add(refused as usize, Relaxed);
        refused
    }
}
