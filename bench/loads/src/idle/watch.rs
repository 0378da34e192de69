//! Samples the resident memory of this process while a load runs, and after. Allocates nothing
//! until it reports.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use crate::report::Report;
use crate::resident;

/// Time between two points while the load runs, and while the process idles.
const STEP: Duration = Duration::from_millis(20);
const IDLE_STEP: Duration = Duration::from_millis(100);
/// Maximum number of points in the report.
const REPORTED: usize = 300;
/// Capacity in points: more than a minute.
const ROOM: usize = 4096;

/// Seconds, resident KiB, live KiB.
type Point = (f64, f64, f64);

/// Static, so that it is in no allocator's memory.
static SERIES: Mutex<([Point; ROOM], usize)> = Mutex::new(([(0.0, 0.0, 0.0); ROOM], 0));

pub struct Watch {
    begin: Instant,
    idle: u64,
    live: AtomicI64,
    idles: AtomicBool,
    over: AtomicBool,
}

impl Watch {
    pub fn new(idle: u64) -> Self {
        let (idles, over) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { begin: Instant::now(), idle, live: AtomicI64::new(0), idles, over }
    }

    /// Adds `bytes`, or subtracts them if negative. A load calls it once for many blocks.
    pub fn live(&self, bytes: isize) {
        self.live.fetch_add(bytes as i64, Relaxed);
    }

    /// Takes points until the report; runs in a thread of its own.
    pub fn sample(&self) {
        while !self.over.load(Relaxed) {
            let live = self.live.load(Relaxed) as f64 / 1024.0;
            let point = (self.begin.elapsed().as_secs_f64(), resident::kib(), live);
            let (points, length) = &mut *SERIES.lock().unwrap();
            if let Some(place) = points.get_mut(*length) {
                *place = point;
                *length += 1;
            }
            thread::sleep(if self.idles.load(Relaxed) { IDLE_STEP } else { STEP });
        }
    }

    /// Called when the load is done: takes the figures now, and while the process idles.
    pub fn rest(&self) -> Report {
        let load = self.begin.elapsed();
        let end = resident::kib();
        self.idles.store(true, Relaxed);
        let live = self.live.load(Relaxed) as f64 / 1024.0;
        let wait_until = |after: u64| {
            thread::sleep((load + Duration::from_secs(after)).saturating_sub(self.begin.elapsed()));
        };
        let after = [1, 10].map(|after| {
            (after <= self.idle).then(|| {
                wait_until(after);
                resident::kib()
            })
        });
        wait_until(self.idle);
        self.over.store(true, Relaxed);

        let (points, length) = &*SERIES.lock().unwrap();
        let step = length.div_ceil(REPORTED).max(1);
        let points: Vec<_> = points[..*length].iter().copied().step_by(step).collect();
        let mut report = Report::new()
            .figure("time_s", load.as_secs_f64())
            .figure("end_kib", end)
            .figure("live_kib", live)
            .series(&points);
        for (name, figure) in ["idle_1s_kib", "idle_10s_kib"].into_iter().zip(after) {
            if let Some(kib) = figure {
                report = report.figure(name, kib);
            }
        }
        report
    }
}
