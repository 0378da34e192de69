//! Looks at the profile of a running process.

use std::collections::HashMap;
use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ebbmalloc::internals::Beacon;
use ebbmalloc_pprof::internals::jit::JitMap;
use ebbmalloc_pprof::internals::maps;
use libc::pid_t;

use super::data::{About, Raw, RawStack, Values, WithLedger};
use super::engine;
use crate::peak::Look;
use crate::stop::Stop;
use crate::why::memory::{Heap, Process, ended};
use crate::why::report::Report;
use crate::why::smaps::Mapping;

/// A process with ebbmalloc.
pub struct Target {
    pid: pid_t,
    process: Process,
    heaps: Vec<Engine>,
}

/// An engine in that process.
struct Engine {
    beacon: Box<Beacon>,
    /// A request that was not followed yet.
    request: Option<u32>,
}

impl Target {
    /// Opens a process in order to switch its profiling.
    pub fn open(pid: pid_t) -> anyhow::Result<Self> {
        Self::in_process(pid, Process::open_for_writing(pid)?)
    }

    fn in_process(pid: pid_t, process: Process) -> anyhow::Result<Self> {
        let mappings = Mapping::all_of(pid)?;
        if mappings.is_empty() {
            return Err(ended(pid));
        }
        let mut heaps = Vec::new();
        let mut other = None;
        for heap in process.heaps(&mappings) {
            match heap {
                Heap::Readable(beacon) => heaps.push(Engine { beacon, request: None }),
                Heap::OtherVersion(version) => other = Some(version),
            }
        }
        match (heaps.is_empty(), other) {
            (false, _) => Ok(Self { pid, process, heaps }),
            (true, Some(version)) => Err(Stop::with(
                1,
                format!(
                    "process {pid} has ebbmalloc {version}, which this ebb ({}) cannot read. Use \
                     the ebb of that version",
                    ebbmalloc::VERSION
                ),
            )),
            (true, None) => Err(Stop::with(
                1,
                format!(
                    "process {pid} has no ebbmalloc. `ebb profile -- PROGRAM` runs a program on it"
                ),
            )),
        }
    }

    /// The mean distance of samples, if profiling is on.
    pub fn mean_bytes(&mut self) -> Option<u64> {
        let heaps = self.heaps.iter();
        let headers = heaps.filter_map(|heap| engine::header(&mut self.process, &heap.beacon));
        let on = headers.filter(|header| header.is_on);
        on.map(|header| header.mean_bytes).max()
    }

    /// Asks for profiling, or for its end with 0. Returns whether an engine was asked.
    pub fn request(&mut self, mean_bytes: u64) -> bool {
        for heap in &mut self.heaps {
            heap.request = engine::request(&mut self.process, &heap.beacon, mean_bytes);
        }
        self.heaps.iter().any(|heap| heap.request.is_some())
    }

    /// Whether an engine has followed the last request. It does so when the process allocates.
    pub fn has_followed(&mut self) -> bool {
        let process = &mut self.process;
        for heap in &mut self.heaps {
            if let Some(request) = heap.request
                && engine::has_followed(process, &heap.beacon, request)
            {
                heap.request = None;
            }
        }
        self.heaps.iter().any(|heap| heap.request.is_none())
    }

    /// The profile at this moment; `None` if there is none, or the process has ended.
    pub fn look(&mut self) -> Option<WithLedger<Raw>> {
        let mut stacks: HashMap<Vec<u64>, Values> = HashMap::new();
        let mut about = About::default();
        let mut started: Option<u64> = None;
        self.has_followed();
        // The profile of an engine that has not followed is an earlier one.
        for heap in self.heaps.iter().filter(|heap| heap.request.is_none()) {
            let Some((header, found)) = engine::read(&mut self.process, &heap.beacon) else {
                continue;
            };
            for (calls, values) in found {
                *stacks.entry(calls).or_default() += values;
            }
            about.mean_bytes = about.mean_bytes.max(header.mean_bytes);
            about.dropped_stacks += header.dropped_stacks;
            about.dropped_samples += header.dropped_samples;
            started = started.into_iter().chain([header.started_ms]).min();
        }
        let started = started?;
        about.pid = Some(self.pid);
        about.program =
            fs::read_to_string(format!("/proc/{}/comm", self.pid)).ok()?.trim_end().to_owned();
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        about.time_nanos = nanoseconds(since_1970);
        let clock = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let clock = Duration::new(clock.tv_sec as u64, clock.tv_nsec as u32);
        about.duration_nanos = nanoseconds(clock.saturating_sub(Duration::from_millis(started)));
        let mappings = maps::of_process(self.pid, |address, bytes| {
            self.process.read_at(address as usize, bytes)
        });
        if mappings.is_empty() {
            return None;
        }
        let mut stacks: Vec<_> =
            stacks.into_iter().map(|(calls, values)| RawStack { calls, values }).collect();
        stacks.sort_by(|one, other| one.calls.cmp(&other.calls));
        let (jit, ledger) = (JitMap::of_process(self.pid), Report::of(self.pid).ok());
        let profile = Raw { about, stacks, mappings, jit };
        Some(WithLedger { profile, ledger })
    }
}

fn nanoseconds(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

impl Look for WithLedger<Raw> {
    fn at(pid: pid_t) -> Option<Self> {
        // The heap is there only once the program has started.
        Target::in_process(pid, Process::open(pid).ok()?).ok()?.look()
    }

    fn resident_bytes(&self) -> u64 {
        self.ledger.as_ref().map_or(0, |report| report.resident_bytes)
    }

    fn held_bytes(&self) -> u64 {
        self.profile.stacks.iter().map(|stack| stack.values.live.bytes).sum::<f64>() as u64
    }

    fn took_seconds(&self) -> f64 {
        self.ledger.as_ref().map_or(0.0, |report| report.took_seconds)
    }

    fn set_time(&mut self, seconds: f64) {
        if let Some(report) = &mut self.ledger {
            report.at_seconds = Some(seconds);
        }
    }
}
