//! Implements `ebb why -- PROGRAM`: runs a program on ebbmalloc, and reads its memory at its peak
//! and in the last moment before it is gone.

use std::env;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;

use super::report::Report;
use super::{Options, print, readable, text};
use crate::inspect::Program;
use crate::spawn::{Child, Command, Streams};
use crate::stop::Stop;
use crate::{interrupt, notes, procfs, program, trace};

/// The interval at which resident memory is read.
const SAMPLING: Duration = Duration::from_millis(20);
/// A new full report needs growth by one part in this many.
const GROWTH: u64 = 20;
/// Full reports are this many times as far apart as one takes.
const PATIENCE: f64 = 10.0;

pub fn run(options: &Options) -> anyhow::Result<()> {
    let name = options.command.first().ok_or_else(|| Stop::usage("no program to run"))?;
    let path = program::find(name)?;
    let library = options.library.find()?;
    let inspected = Program::of(&path);
    for note in notes::library("ebbmalloc", &library).into_iter().chain(notes::program(
        &inspected,
        name,
        &[&library],
    )) {
        if note.futile {
            eprintln!("ebb: {}", note.text);
        }
    }
    let preload = program::preload(&library.path, env::var_os("LD_PRELOAD").as_deref())?;
    let command = Command::new(&path, &options.command, &[("LD_PRELOAD", preload)])?;
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
        eprintln!("ebb: cannot report the program's exit: it cannot be traced ({error})");
    }
    let started = Instant::now();
    let report = || {
        let mut report = Report::of(pid).ok()?;
        report.at_seconds = Some(started.elapsed().as_secs_f64());
        Some(report)
    };
    child.release()?;
    let ended = AtomicBool::new(false);
    let (peak, ended) = thread::scope(|scope| {
        let sampler = scope.spawn(|| sample(pid, &ended, report));
        let end = trace::follow(pid, |_| report());
        ended.store(true, Relaxed);
        sampler.thread().unpark();
        (sampler.join().unwrap_or_default(), end)
    });
    let ended = ended.context("cannot wait for the program")?;
    interrupt::unwatch();
    if let Some(signal) = interrupt::asked() {
        return Err(Stop::with(128 + signal as u8, "interrupted"));
    }
    if let Some(error) = child.refused() {
        return Err(program::refused(&path, error));
    }
    let seen = || peak.iter().chain(&ended.last);
    let most = seen().max_by_key(|report| report.resident_bytes);
    let chosen = if options.at_end { ended.last.as_ref() } else { most };
    let Some(chosen) = chosen else {
        return Err(Stop::with(
            1,
            format!(
                "{}: no report: the program ended too soon, or cannot be traced. Try `ebb why PID` \
                 while it runs",
                name.display()
            ),
        ));
    };
    print(chosen, options.json)?;
    if let (Some(most), Some(end), false) = (most, &ended.last, options.json) {
        println!(
            "\nHighest value seen: {} after {:.1} s. At the end, after {:.1} s: {}.",
            text::mib(most.resident_bytes),
            most.at_seconds.unwrap_or(0.0),
            end.at_seconds.unwrap_or(0.0),
            text::mib(end.resident_bytes)
        );
    }
    if !ended.status.success() {
        eprintln!("ebb: the program ended with {}", ended.status);
    }
    readable(chosen)
}

/// The report of the moment with the most resident memory, until the program has ended.
fn sample(
    pid: libc::pid_t,
    ended: &AtomicBool,
    report: impl Fn() -> Option<Report>,
) -> Option<Report> {
    // Until it executes the program, the process is a copy of this one.
    let copy = fs::read_link("/proc/self/exe").ok();
    let mut most: Option<Report> = None;
    let mut wait = SAMPLING;
    loop {
        thread::park_timeout(wait);
        if ended.load(Relaxed) {
            return most;
        }
        wait = SAMPLING;
        let before = most.as_ref().map_or(0, |most| most.resident_bytes);
        if procfs::resident_roughly(pid).is_none_or(|now| now <= before + before / GROWTH) {
            continue;
        }
        if fs::read_link(format!("/proc/{pid}/exe")).ok() == copy {
            continue;
        }
        let next = report();
        if let Some(next) = next.filter(|next| next.resident_bytes > before) {
            wait = wait.max(Duration::from_secs_f64(next.took_seconds * PATIENCE));
            most = Some(next);
        }
    }
}
