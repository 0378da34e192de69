//! Threads that begin together, and stay alive until the figures are taken.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::{self, Scope};
use std::time::Instant;

use crate::report::Report;

/// Thousands of threads are to fit.
const STACK: usize = 128 << 10;

/// Runs `work` on so many threads. When all are done and still alive, `after` runs.
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

/// The figures of a load that has freed everything.
pub fn report(seconds: f64, freed_kib: f64) -> Report {
    Report::new().figure("time_s", seconds).figure("freed_kib", freed_kib)
}

/// What falls to one of the workers.
pub fn share(total: usize, workers: usize, index: usize) -> usize {
    total / workers + usize::from(index < total % workers)
}

/// A thread with a small stack.
pub fn start<'scope>(scope: &'scope Scope<'scope, '_>, body: impl FnOnce() + Send + 'scope) {
    let started = thread::Builder::new().stack_size(STACK).spawn_scoped(scope, body);
    started.unwrap_or_else(|error| panic!("no more threads: {error}"));
}

/// Where threads meet: before the work, after it, and when the figures are taken.
pub struct Stage {
    begin: Barrier,
    end: Barrier,
    leave: Barrier,
    origin: Instant,
    /// Nanoseconds after `origin` when the first one began, and when the last one was done. Kept by the
    /// workers, as the main thread may wake up late.
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

    /// A worker begins when all are there.
    pub fn begin(&self) {
        self.begin.wait();
        self.first.fetch_min(self.now(), Relaxed);
    }

    /// A worker is done, and stays until the figures are taken.
    pub fn end(&self) {
        self.last.fetch_max(self.now(), Relaxed);
        self.end.wait();
        self.leave.wait();
    }

    /// Waits until all are done. Returns the seconds from the first begin to the last end, and what
    /// `after` makes while all threads are alive.
    pub fn conclude<R>(&self, after: impl FnOnce() -> R) -> (f64, R) {
        self.begin.wait();
        self.end.wait();
        let result = after();
        self.leave.wait();
        let seconds = (self.last.load(Relaxed) - self.first.load(Relaxed)) as f64 / 1e9;
        (seconds, result)
    }
}
