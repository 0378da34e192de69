//! Runs a program on ebbmalloc, and looks at its memory at its peak and in the last moment before
//! it is gone.

use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use libc::pid_t;

use crate::inspect::Program;
use crate::library::LibraryOption;
use crate::output::remark;
use crate::spawn::{Child, Command, Streams};
use crate::stop::Stop;
use crate::{interrupt, notes, procfs, program, trace};

/// The interval at which resident memory is read.
const SAMPLING: Duration = Duration::from_millis(20);
/// A new look needs growth by one part in this many.
const GROWTH: u64 = 20;
/// Looks are this many times as far apart as one takes.
const PATIENCE: f64 = 10.0;

/// A look at a process's memory.
pub trait Look: Send + Sized {
    /// Looks at a process; `None` if it cannot be read, or has nothing to show yet.
    fn at(pid: pid_t) -> Option<Self>;
    fn resident_bytes(&self) -> u64;
    /// What is the most at the peak. Resident memory may stay when it is freed.
    fn held_bytes(&self) -> u64 {
        self.resident_bytes()
    }
    fn took_seconds(&self) -> f64;
    /// Sets the seconds since the program's start.
    fn set_time(&mut self, seconds: f64);
}

/// A program to run and look at.
#[derive(Args)]
pub struct ProgramOptions {
    /// With a program: show the moment of its exit, not of its peak
    #[arg(long, requires = "command")]
    pub at_end: bool,
    #[command(flatten)]
    library: LibraryOption,
    /// The program and its arguments
    #[arg(last = true, value_name = "PROGRAM [ARGS]")]
    command: Vec<OsString>,
}

impl ProgramOptions {
    /// The error of a program of which nothing was seen.
    pub fn unseen(&self, what: &str) -> anyhow::Error {
        let name = self.command.first().map(|name| name.display().to_string());
        Stop::with(1, format!("{}: {what}", name.unwrap_or_default()))
    }
}

/// The looks at a program that has ended.
pub struct Seen<T> {
    /// With the most memory held, before the end.
    pub peak: Option<T>,
    pub end: Option<T>,
    pub status: ExitStatus,
}

impl<T: Look> Seen<T> {
    /// The look with the most memory held.
    pub fn into_most(self) -> Option<T> {
        self.peak.into_iter().chain(self.end).max_by_key(T::held_bytes)
    }

    /// The same, by reference.
    pub fn most(&self) -> Option<&T> {
        self.peak.iter().chain(&self.end).max_by_key(|look| look.held_bytes())
    }
}

/// Runs a program with ebbmalloc preloaded and with these variables, with its output on standard
/// error.
pub fn run<T: Look>(
    options: &ProgramOptions,
    variables: &[(&str, OsString)],
) -> anyhow::Result<Seen<T>> {
    let ProgramOptions { library, command: arguments, .. } = options;
    let name = arguments.first().ok_or_else(|| Stop::usage("no program to run"))?;
    let path = program::find(name)?;
    let library = library.find()?;
    let inspected = Program::of(&path);
    for note in notes::library("ebbmalloc", &library).into_iter().chain(notes::program(
        &inspected,
        name,
        &[&library],
    )) {
        if note.futile {
            remark(&note.text);
        }
    }
    let preload = program::preload(&library.path, env::var_os("LD_PRELOAD").as_deref())?;
    let set = [&[("LD_PRELOAD", preload)][..], variables].concat();
    let command = Command::new(&path, arguments, &set)?;
    interrupt::install()?;
    // Duplicates, because dropping these files would close ebb's own streams.
    let input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let output = File::from(io::stderr().as_fd().try_clone_to_owned()?);
    let mut child =
        Child::spawn(&command, Streams { input: &input, output: &output, error: None })?;
    let pid = child.pid;
    interrupt::watch(pid);
    if !inspected.privileged()
        && let Err(error) = trace::attach(pid)
    {
        remark(format_args!("cannot report the program's exit: it cannot be traced ({error})"));
    }
    let started = Instant::now();
    let look = || {
        let mut look = T::at(pid)?;
        look.set_time(started.elapsed().as_secs_f64());
        Some(look)
    };
    child.release()?;
    let ended = AtomicBool::new(false);
    let (peak, end) = thread::scope(|scope| {
        let sampler = scope.spawn(|| sample(pid, &ended, look));
        let end = trace::follow(pid, |_| look());
        ended.store(true, Relaxed);
        sampler.thread().unpark();
        (sampler.join().unwrap_or_default(), end)
    });
    let end = end.context("cannot wait for the program")?;
    interrupt::unwatch();
    if let Some(signal) = interrupt::asked() {
        return Err(Stop::with(128 + signal as u8, "interrupted"));
    }
    if let Some(error) = child.refused() {
        return Err(program::refused(&path, error));
    }
    Ok(Seen { peak, end: end.last, status: end.status })
}

/// The look at the moment with the most memory held, until the program has ended. It looks when
/// resident memory has grown.
fn sample<T: Look>(pid: pid_t, ended: &AtomicBool, look: impl Fn() -> Option<T>) -> Option<T> {
    // Until it executes the program, the process is a copy of this one.
    let copy = fs::read_link("/proc/self/exe").ok();
    let mut most: Option<T> = None;
    let mut before = 0;
    let mut wait = SAMPLING;
    loop {
        thread::park_timeout(wait);
        if ended.load(Relaxed) {
            return most;
        }
        wait = SAMPLING;
        if procfs::resident_roughly(pid).is_none_or(|now| now <= before + before / GROWTH) {
            continue;
        }
        if fs::read_link(format!("/proc/{pid}/exe")).ok() == copy {
            continue;
        }
        if let Some(next) = look().filter(|next| next.resident_bytes() > before) {
            wait = wait.max(Duration::from_secs_f64(next.took_seconds() * PATIENCE));
            before = next.resident_bytes();
            if most.as_ref().is_none_or(|most| next.held_bytes() > most.held_bytes()) {
                most = Some(next);
            }
        }
    }
}
