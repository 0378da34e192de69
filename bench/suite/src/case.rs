//! Defines what is measured: a case is one program with its input; a job is a case on one
//! allocator.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde::{Deserialize, Serialize};

/// An allocator that takes part in a run.
pub struct Allocator {
    /// As in the tables: a peer's name, `ebbmalloc`, `ebbmalloc-MODE` where the mode is forced, or
    /// `before`.
    pub name: String,
    /// The library to preload; None for the C library's allocator.
    pub library: Option<PathBuf>,
    /// The environment variables that it needs.
    pub env: Vec<(String, String)>,
    /// Its source and version.
    pub origin: String,
    pub kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    Peer,
    /// A peer that only some programs have built in: only in their cases.
    Guest,
    /// The allocator under test.
    Ours,
    /// The allocator under test with its mode forced: only in cases that compare modes.
    OurMode,
    /// The allocator under test in check, harden or sample mode, or with a heap profile.
    OurCare,
    /// Another build of the one under test (`--before`): only in cases that preload it.
    Before,
}

/// One program with its input. All allocators do the same work.
pub struct Case {
    /// `group/name`, without spaces or commas.
    pub name: String,
    /// One line about what it does.
    pub about: String,
    /// Part of `--quick`.
    pub quick: bool,
    /// For the pictures over the number of threads: the line's name, and the number of threads.
    pub threads: Option<(String, u32)>,
    /// Also measure the forced modes of the allocator under test.
    pub modes: bool,
    /// The program has the allocator under test built in: no other build of it can be preloaded.
    pub ours_built_in: bool,
    /// Peers that only this program has built in, each with its origin.
    pub guests: Vec<(String, String)>,
    /// Maximum number of rounds in which it runs.
    pub most_rounds: u32,
    /// Returns the program for an allocator.
    pub job: Box<JobOf>,
}

/// A function that returns the program for an allocator.
type JobOf = dyn Fn(&Allocator) -> Result<Job>;

impl Case {
    /// Makes a case on the allocator that is preloaded into the program.
    pub fn new(name: impl Into<String>, about: impl Into<String>, job: Job) -> Self {
        Self::chosen(name, about, move |_| Ok(job.clone()))
    }

    /// Makes a case whose program depends on the allocator.
    pub fn chosen(
        name: impl Into<String>,
        about: impl Into<String>,
        job: impl Fn(&Allocator) -> Result<Job> + 'static,
    ) -> Self {
        let (name, about) = (name.into(), about.into());
        Self {
            name,
            about,
            quick: false,
            threads: None,
            modes: false,
            ours_built_in: false,
            guests: Vec::new(),
            most_rounds: u32::MAX,
            job: Box::new(job),
        }
    }

    /// Makes it a part of `--quick`.
    pub fn quick(self) -> Self {
        Self { quick: true, ..self }
    }

    /// `line` names the cases that differ only in the number of threads.
    pub fn threads(self, line: impl Into<String>, threads: u32) -> Self {
        Self { threads: Some((line.into(), threads)), ..self }
    }

    /// Also measures ebbmalloc's forced modes.
    pub fn modes(self) -> Self {
        Self { modes: true, ..self }
    }

    /// Says that the program has ebbmalloc built in.
    pub fn ours_built_in(self) -> Self {
        Self { ours_built_in: true, ..self }
    }

    /// Adds a peer to this case beside the others.
    pub fn guest(mut self, name: &str, origin: impl Into<String>) -> Self {
        self.guests.push((name.into(), origin.into()));
        self
    }

    /// Limits the rounds of a long case, for which few are enough.
    pub fn at_most(self, rounds: u32) -> Self {
        Self { most_rounds: rounds, ..self }
    }
}

/// Returns the first part of a case's name.
pub fn group_of(name: &str) -> &str {
    name.split('/').next().unwrap_or_default()
}

/// A program with its arguments and environment.
///
/// If the last line that it prints on standard output is a JSON object, its numbers are figures of
/// the run. `time_s` and `peak_kib` replace the time and the peak of the whole process.
#[derive(Clone)]
pub struct Job {
    pub program: PathBuf,
    pub arguments: Vec<OsString>,
    pub env: Vec<(String, OsString)>,
    /// Whether the allocator is preloaded; else the program has it built in, or preloads it itself,
    /// as its arguments say.
    pub preload: bool,
}

impl Job {
    pub fn new(program: impl AsRef<Path>) -> Self {
        Self {
            program: program.as_ref().into(),
            arguments: Vec::new(),
            env: Vec::new(),
            preload: true,
        }
    }

    pub fn arg(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    pub fn args<T: Into<OsString>>(mut self, arguments: impl IntoIterator<Item = T>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    pub fn env(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// The program runs without preloading.
    pub fn built_in(self) -> Self {
        Self { preload: false, ..self }
    }
}

/// Figures of one run by name. Less is better unless the name says otherwise (`…_per_s`). The
/// name's end is the unit: `_s`, `_kib`, `_mib_per_s`.
pub type Figures = BTreeMap<String, f64>;

/// Points of seconds since the start, resident KiB, live KiB.
pub type Series = Vec<(f64, f64, f64)>;

pub const TIME: &str = "time_s";
pub const PEAK: &str = "peak_kib";
pub const CPU: &str = "cpu_s";
/// The part of `CPU` that the kernel took: page faults and system calls.
pub const KERNEL: &str = "kernel_s";
/// Page faults of the program and its children.
pub const FAULTS: &str = "page_faults";
/// Resident memory of the program itself when it ended.
pub const END: &str = "end_kib";
