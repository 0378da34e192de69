//! Measures one run of a program.

use std::fs::File;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Instant;

use serde::Serialize;

use crate::interrupt;
use crate::perf::Perf;
use crate::procfs;
use crate::spawn::{Child, Command, Streams};
use crate::tail::Tail;
use crate::trace;

/// The cost of one run. Time, faults and counters include the child processes that the program
/// waited for; memory at the end is the program's own.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Sample {
    /// From the start of the program to its end, in seconds.
    pub wall_seconds: f64,
    /// CPU time in user space, in seconds.
    pub user_seconds: f64,
    /// CPU time in the kernel, in seconds.
    pub system_seconds: f64,
    /// Peak resident memory in bytes, of the program or of its largest child, whichever is more.
    pub peak_bytes: u64,
    /// Resident memory in bytes when the program ended; `None` if it could not be observed.
    pub end_bytes: Option<u64>,
    /// Page faults without a read from disk.
    pub minor_faults: u64,
    /// Page faults with a read from disk.
    pub major_faults: u64,
    pub cycles: Option<u64>,
    pub instructions: Option<u64>,
    pub cache_misses: Option<u64>,
    pub branch_misses: Option<u64>,
    /// The program's exit code, unless a signal killed it.
    pub exit_code: Option<i32>,
    /// The signal that killed the program.
    pub signal: Option<i32>,
}

/// A run: its cost, and the facts needed to judge it.
pub struct Run {
    pub sample: Sample,
    pub status: ExitStatus,
    /// Whether the preloaded library was in the program's memory map; `None` if that could not be
    /// observed.
    pub loaded: Option<bool>,
    /// The executed file at the end.
    pub exe: Option<PathBuf>,
    /// The error that forced memory at the end to be sampled, if any.
    pub untraced: Option<io::Error>,
    /// The end of the program's standard error, if it was caught.
    pub stderr: Vec<u8>,
}

/// The settings of a run.
pub struct Setting<'a> {
    pub input: &'a File,
    /// Where its standard output goes.
    pub output: &'a File,
    /// Whether to catch its standard error; else it goes to ebb's own.
    pub catch: bool,
    pub perf: &'a Perf,
    /// Whether to trace the program: tracing takes the privileges from a set-user-id program.
    pub trace: bool,
}

/// The reason why there is no measurement.
pub enum Failed {
    /// The kernel did not execute the program.
    Refused(io::Error),
    /// A signal asked `ebb` to end.
    Interrupted(i32),
    /// Measuring itself failed.
    Measuring(io::Error),
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        Self::Measuring(error)
    }
}

/// Runs the program once, and checks whether `library` was loaded.
pub fn measure(
    command: &Command,
    library: Option<&Path>,
    setting: &Setting,
) -> Result<Run, Failed> {
    let (tail, error) = setting.catch.then(Tail::start).transpose()?.unzip();
    let inherited = procfs::resident_roughly(std::process::id() as libc::pid_t).unwrap_or(0);
    let mut child =
        Child::spawn(command, Streams { input: setting.input, output: setting.output, error })?;
    interrupt::watch(child.pid);
    let untraced = if setting.trace {
        trace::attach(child.pid).err()
    } else {
        Some(io::Error::other(
            "a set-user-id program, or one with file capabilities, loses its privileges when \
             traced",
        ))
    };
    let counters = setting.perf.open(child.pid);

    let started = Instant::now();
    child.release()?;
    let ended = match untraced {
        None => trace::follow(child.pid, |tid| procfs::Snapshot::take(tid, library)),
        Some(_) => trace::sample(child.pid, library),
    }?;
    interrupt::unwatch();

    let stderr = tail.map(Tail::finish).unwrap_or_default();
    if let Some(signal) = interrupt::asked() {
        return Err(Failed::Interrupted(signal));
    }
    if let Some(error) = child.refused() {
        return Err(Failed::Refused(error));
    }
    let [cycles, instructions, cache_misses, branch_misses] = counters.read();
    let usage = &ended.usage;
    let sample = Sample {
        wall_seconds: (ended.at - started).saturating_sub(ended.paused).as_secs_f64(),
        user_seconds: seconds(usage.ru_utime),
        system_seconds: seconds(usage.ru_stime),
        peak_bytes: peak(
            usage.ru_maxrss as u64 * 1024,
            ended.last.as_ref().and_then(|last| last.peak),
            inherited,
        ),
        end_bytes: ended.last.as_ref().map(|last| last.resident),
        minor_faults: usage.ru_minflt as u64,
        major_faults: usage.ru_majflt as u64,
        cycles,
        instructions,
        cache_misses,
        branch_misses,
        exit_code: ended.status.code(),
        signal: ended.status.signal(),
    };
    let loaded = ended.last.as_ref().and_then(|last| last.mapped);
    let exe = ended.last.and_then(|last| last.exe);
    Ok(Run { sample, status: ended.status, loaded, exe, untraced, stderr })
}

/// The program's peak of resident memory.
///
/// The kernel's figure for a finished process (`ru_maxrss`) starts with the memory that the process
/// had before it executed the program, which is `ebb`'s own. For a program smaller than `ebb`, the
/// last reading of its own peak is right.
fn peak(max: u64, own: Option<u64>, inherited: u64) -> u64 {
    const SLACK: u64 = 1 << 20;
    match own {
        Some(own) if max <= inherited + SLACK => own,
        _ => max,
    }
}

fn seconds(time: libc::timeval) -> f64 {
    time.tv_sec as f64 + time.tv_usec as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_peaks_are_the_programs_own() {
        const MIB: u64 = 1 << 20;
        assert_eq!(peak(6 * MIB, Some(2 * MIB), 6 * MIB), 2 * MIB);
        assert_eq!(peak(6 * MIB, None, 6 * MIB), 6 * MIB);
        // A large child counts although the program itself was small.
        assert_eq!(peak(90 * MIB, Some(2 * MIB), 6 * MIB), 90 * MIB);
    }
}
