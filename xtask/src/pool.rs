//! Runs independent jobs on one thread more than there are CPUs: many jobs wait.

use crate::tally::Tally;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// How many jobs run at once.
pub fn workers() -> usize {
    1 + thread::available_parallelism().map_or(1, |n| n.get())
}

/// Calls `job` once for each item and adds up the counts.
pub fn for_each<T: Sync>(items: &[T], job: impl Fn(&T) -> Tally + Sync) -> Tally {
    let next = AtomicUsize::new(0);
    let total = Mutex::new(Tally::default());
    thread::scope(|scope| {
        for _ in 0..workers() {
            scope.spawn(|| {
                while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let tally = job(item);
                    *total.lock().expect("another job panicked") += tally;
                }
            });
        }
    });
    total.into_inner().expect("a job panicked")
}
