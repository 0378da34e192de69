//! Starts threads together, and keeps them alive until the figures are taken.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::{self, Scope};
use std::time::Instant;

use crate::report::Report;

/// Stack size in bytes: thousands of threads must fit.
const STACK: usize = 128 << 10;

/// Runs `work` on `threads` threads. When all are done and still alive, `after` runs.
pub fn run<R>(threads: usize, work: impl Fn(usize) + Sync, after: impl FnOnce() -> R) -> (f64, R) {
    let stage = Stage::new(threads);
    thread::scope(|scope| {
        for index in 0..threads {
            let (stage, work) = (&stage, &work);
            start(scope, move || {
                stage.begin();
                work(index);
                stage.end();
            });
        }
        stage.conclude(after)
    })
}

/// Makes the report of a load that has freed everything.
pub fn report(seconds: f64, freed_kib: f64) -> Report {
    Report::new().figure("time_s", seconds).figure("freed_kib", freed_kib)
}

/// Returns one worker's share of the total.
pub fn share(total: usize, workers: usize, index: usize) -> usize {
    total / workers + usize::from(index < total % workers)
}

/// Starts a thread with a small stack.
pub fn start<'scope>(scope: &'scope Scope<'scope, '_>, body: impl FnOnce() + Send + 'scope) {
    let started = thread::Builder::new().stack_size(STACK).spawn_scoped(scope, body);
    started.unwrap_or_else(|error| panic!("no more threads: {error}"));
}

/// Barriers before the work, after it, and after the figures are taken.
pub struct Stage {
    begin: Barrier,
    end: Barrier,
    leave: Barrier,
    origin: Instant,
    /// Nanoseconds after `origin` when the first worker began and the last was done. The workers
    /// keep them, as the main thread may wake up late.
    first: AtomicU64,
    last: AtomicU64,
}

impl Stage {
    pub fn new(threads: usize) -> Self {
        let barrier = || Barrier::new(threads + 1);
        let (first, last) = (AtomicU64::new(u64::MAX), AtomicU64::new(0));
        Self {
            begin: barrier(),
            end: barrier(),
            leave: barrier(),
            origin: Instant::now(),
            first,
            last,
        }
    }

    fn now(&self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }

    /// A worker waits here until all are ready.
    pub fn begin(&self) {
        self.begin.wait();
        self.first.fetch_min(self.now(), Relaxed);
    }

    /// A worker is done, and waits here until the figures are taken.
    pub fn end(&self) {
        self.last.fetch_max(self.now(), Relaxed);
        self.end.wait();
        self.leave.wait();
    }

    /// Waits until all are done. Returns the seconds from the first begin to the last end, and the
    /// result of `after`, which runs while all threads are alive.
    pub fn conclude<R>(&self, after: impl FnOnce() -> R) -> (f64, R) {
        self.begin.wait();
        self.end.wait();
        let result = after();
        self.leave.wait();
        let seconds = (self.last.load(Relaxed) - self.first.load(Relaxed)) as f64 / 1e9;
        (seconds, result)
    }
}
