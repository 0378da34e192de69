//! Reads hardware counters of a program, its threads and its children, where the kernel allows it.

use std::fs;
use std::io;

use perf_event::events::{Event, Hardware};
use perf_event::{Builder, Counter};

/// The counted events, in the order of [`Counts`].
const EVENTS: [Hardware; 4] =
    [Hardware::CPU_CYCLES, Hardware::INSTRUCTIONS, Hardware::CACHE_MISSES, Hardware::BRANCH_MISSES];

/// Cycles, instructions, cache misses and branch misses of one run; each may be missing.
pub type Counts = [Option<u64>; EVENTS.len()];

/// The counters that this machine offers.
pub struct Perf {
    available: [bool; EVENTS.len()],
    kernel: bool,
    /// Why some or all counters are missing, or count only user space: a sentence for the user.
    pub note: Option<String>,
}

impl Perf {
    /// Tries the counters on this process itself.
    pub fn probe() -> Self {
        // Without privileges most systems allow counting in user space only.
        let with_kernel = EVENTS.map(|event| builder(event, 0, true).build().err());
        let kernel = with_kernel.iter().any(Option::is_none);
        let errors = if kernel {
            with_kernel
        } else {
            EVENTS.map(|event| builder(event, 0, false).build().err())
        };
        let available = errors.each_ref().map(Option::is_none);
        let note = match errors.into_iter().flatten().next() {
            Some(error) => Some(explain(&error)),
            None if !kernel => Some(
                "Hardware counters cover user space only. To include the kernel: sysctl \
                 kernel.perf_event_paranoid=1."
                    .into(),
            ),
            None => None,
        };
        Self { available, kernel, note }
    }

    /// Prepares the counters of a process that will start by `execve`.
    pub fn open(&self, pid: libc::pid_t) -> Counters {
        let mut events = EVENTS.into_iter().zip(self.available);
        Counters([(); EVENTS.len()].map(|()| {
            let (event, available) = events.next()?;
            available.then(|| builder(event, pid, self.kernel).build().ok()).flatten()
        }))
    }
}

/// The running counters of a process.
pub struct Counters([Option<Counter>; EVENTS.len()]);

impl Counters {
    pub fn read(self) -> Counts {
        self.0.map(|counter| scaled(&mut counter?))
    }
}

fn builder<E: Event>(event: E, pid: libc::pid_t, kernel: bool) -> Builder<'static> {
    let mut builder = Builder::new(event);
    builder.observe_pid(pid).any_cpu().inherit(true).enable_on_exec(true).exclude_kernel(!kernel);
    builder
}

/// The count, scaled up where the processor had to share its counters between events.
fn scaled(counter: &mut Counter) -> Option<u64> {
    let data = counter.read_full().ok()?;
    let enabled = data.time_enabled()?.as_secs_f64();
    let running = data.time_running()?.as_secs_f64();
    (running > 0.0).then(|| (data.count() as f64 * enabled / running) as u64)
}

fn explain(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => {
            let level =
                fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
            format!(
                "No hardware counters: kernel.perf_event_paranoid is {}. 2 or less allows them.",
                level.trim()
            )
        }
        Some(libc::ENOSYS) => "No hardware counters: this kernel has no perf events.".into(),
        Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV) => {
            "Hardware counters are missing or incomplete: the machine does not offer them (most \
             virtual machines do not)."
                .into()
        }
        _ => format!("No hardware counters: {error}."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use perf_event::events::Software;

    /// Software events use the same interface as hardware events, and exist on virtual machines
    /// too.
    #[test]
    fn counts_events_of_this_process() {
        let mut counter = match builder(Software::PAGE_FAULTS, 0, false).build() {
            Ok(counter) => counter,
            Err(error) => return eprintln!("skipped: {}", explain(&error)),
        };
        counter.enable().unwrap();
        // Large enough to be freshly mapped: up to 32 MiB, glibc may reuse memory that another test
        // has touched and freed.
        let touched = vec![1u8; 64 << 20];
        counter.disable().unwrap();
        assert!(scaled(&mut counter).unwrap() >= 4, "{} bytes touched", touched.len());
    }

    #[test]
    fn probing_explains_what_is_missing() {
        let perf = Perf::probe();
        assert_eq!(perf.note.is_none(), perf.kernel && perf.available == [true; EVENTS.len()]);
    }
}
