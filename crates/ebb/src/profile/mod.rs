//! Implements `ebb profile`: shows who holds a process's memory, by call stack.

mod data;
mod engine;
#[cfg(test)]
mod example;
mod folded;
mod html;
mod live;
mod look;
mod pprof;
mod save;
mod share;
mod svg;
mod table;
mod text_file;
mod view;

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use console::Term;
use ebbmalloc_pprof::internals::jit::JitMap;
use ebbmalloc_pprof::internals::naming;

use crate::output::remark;
use crate::peak::{self, ProgramOptions};
use crate::stop::Stop;
use crate::{output, process_name};
use data::{Profile, Raw, WithLedger};
use save::Target;
use view::{Measure, View};

/// The mean number of bytes from one sample to the next.
const MEAN_BYTES: u64 = 512 << 10;
/// The space of a table that no terminal shows.
const USUAL: table::Size = table::Size { columns: 110, rows: 64 };

#[derive(Args)]
#[command(
    override_usage = "ebb profile [OPTIONS] PID|NAME\n       \
                      ebb profile [OPTIONS] -- PROGRAM [ARGS]...\n       \
                      ebb profile [OPTIONS] FILE",
    after_help = "\
A running process needs no preparation: ebb switches sampling on, waits for 30 seconds, shows who \
holds the memory that was allocated meanwhile, and switches it off. If it was on already \
(EBB_PROFILE, --keep), ebb shows the profile at once. ebb needs the right to debug the process: \
run it as the same user, or as root.

PROGRAM runs on ebbmalloc and is profiled from its start, with its output on standard error. The \
profile shows the moment when the most memory was resident; with --at-end, the moment of its exit.

FILE is a profile that ebbmalloc or ebb wrote: text or .pb.gz.

docs/profile.md explains how to read it."
)]
pub struct Options {
    /// The process to profile, by its ID or name; or a file
    #[arg(value_name = "PID|NAME|FILE", required_unless_present = "command")]
    #[arg(conflicts_with = "command", allow_negative_numbers = true)]
    target: Option<String>,
    /// Write a file instead of the table: .pb.gz (pprof), .html, .svg or .folded
    #[arg(short, long, value_name = "FILE", value_parser = Target::parse)]
    output: Option<Target>,
    /// Profile for this long [default: 30 s]
    #[arg(long, value_name = "SECONDS", value_parser = interval, conflicts_with = "command")]
    seconds: Option<Duration>,
    /// Leave profiling on
    #[arg(long, conflicts_with = "command")]
    keep: bool,
    /// Switch profiling off that was left on
    #[arg(long, conflicts_with_all = ["command", "keep", "every"])]
    off: bool,
    /// Show what grew since the last look, again and again: 60s, 5m; with -o, number the files
    #[arg(long, value_name = "TIME", value_parser = interval)]
    #[arg(conflicts_with_all = ["command", "seconds"])]
    every: Option<Duration>,
    /// Show what grew since this profile was written
    #[arg(long, value_name = "OLD")]
    diff: Option<PathBuf>,
    /// Show all memory that was allocated, not only what is live
    #[arg(long)]
    allocated: bool,
    /// Count objects, not bytes
    #[arg(long)]
    objects: bool,
    /// The mean number of bytes from one sample to the next: 65536, 64K, 1M
    #[arg(long, value_name = "BYTES", default_value_t = MEAN_BYTES, value_parser = size)]
    mean: u64,
    /// A folder with debug files (debuginfod's layout, .build-id); may be repeated
    #[arg(long, value_name = "DIR")]
    symbols: Vec<PathBuf>,
    #[command(flatten)]
    program: ProgramOptions,
}

impl Options {
    fn measure(&self) -> Measure {
        Measure { allocated: self.allocated, objects: self.objects }
    }

    fn mean_is_set(&self) -> bool {
        self.mean != MEAN_BYTES
    }
}

/// What a user means by the first argument.
enum Wanted<'a> {
    Process(libc::pid_t),
    File(&'a Path),
}

pub fn profile(options: Options) -> anyhow::Result<()> {
    for folder in &options.symbols {
        if !folder.is_dir() {
            return Err(Stop::usage(format!("--symbols {}: no such folder", folder.display())));
        }
    }
    // Before the process is waited for.
    let before = match &options.diff {
        Some(path) => Some(read(path, &options)?),
        None => None,
    };
    let Some(target) = &options.target else {
        return program(&options, before);
    };
    match wanted(target)? {
        Wanted::Process(pid) => live::run(pid, &options, before),
        Wanted::File(path) => {
            let running = [
                ("--seconds", options.seconds.is_some()),
                ("--every", options.every.is_some()),
                ("--keep", options.keep),
                ("--off", options.off),
            ];
            if let Some((name, _)) = running.iter().find(|(_, is_given)| *is_given) {
                return Err(Stop::usage(format!("{name} is for processes: {target} is a file")));
            }
            show(read(path, &options)?.into(), before.as_ref(), &options, None)
        }
    }
}

fn wanted(target: &str) -> anyhow::Result<Wanted<'_>> {
    let path = Path::new(target);
    let is_number = target.parse::<libc::pid_t>().is_ok();
    // A program's own file may lie here, and have the name of the process.
    if !is_number && path.is_file() && (target.contains('/') || begins_as_profile(path)) {
        return Ok(Wanted::File(path));
    }
    if target.contains('/') || target.ends_with(".pb.gz") {
        return Err(Stop::usage(format!("{target}: no such file")));
    }
    process_name::find(target, "ebb profile").map(Wanted::Process)
}

fn begins_as_profile(path: &Path) -> bool {
    let mut head = Vec::new();
    let length = text_file::BEGINNING.len() as u64;
    let is_read = File::open(path).and_then(|file| file.take(length).read_to_end(&mut head));
    is_read.is_ok()
        && (head.starts_with(pprof::BEGINNING) || head.starts_with(text_file::BEGINNING))
}

/// Reads a profile from a file.
fn read(path: &Path, options: &Options) -> anyhow::Result<Profile> {
    let content = fs::read(path)
        .map_err(|error| Stop::usage(format!("cannot read {}: {error}", path.display())))?;
    let shown = || format!("cannot read {}", path.display());
    if content.starts_with(pprof::BEGINNING) {
        pprof::read(&content, &options.symbols).with_context(shown)
    } else if content.starts_with(text_file::BEGINNING) {
        let mut raw = text_file::parse(&content).with_context(shown)?;
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        text_file::note_file_name(&mut raw.about, name);
        raw.jit = raw.about.pid.map(JitMap::left_by).unwrap_or_default();
        Ok(naming::name(raw, &options.symbols))
    } else {
        Err(Stop::with(
            1,
            format!(
                "{} is no heap profile: neither a .pb.gz file nor ebbmalloc's text",
                path.display()
            ),
        ))
    }
}

/// Runs a program, and shows its profile at its peak or end.
fn program(options: &Options, before: Option<Profile>) -> anyhow::Result<()> {
    let mean = options.mean.to_string().into();
    let seen = peak::run::<WithLedger<Raw>>(&options.program, &[("EBB_PROFILE", mean)])?;
    let status = seen.status;
    let chosen = match options.program.at_end {
        true => seen.end.map(|look| (look, "at its end")),
        false => seen.into_most().map(|look| (look, "at its peak")),
    };
    let Some((mut look, moment)) = chosen else {
        return Err(options
            .program
            .unseen("no profile: the program ended too soon, or does not run on ebbmalloc"));
    };
    look.profile.about.moment = moment.into();
    show(look.name(&options.symbols), before.as_ref(), options, None)?;
    if !status.success() {
        remark(format_args!("the program ended with {status}"));
    }
    Ok(())
}

/// Writes the file, or prints the table. `nth` is the number of this look, if there are several.
fn show(
    look: WithLedger<Profile>,
    before: Option<&Profile>,
    options: &Options,
    nth: Option<usize>,
) -> anyhow::Result<()> {
    let measure = options.measure();
    if let Some(target) = &options.output {
        // Of several looks, each file is whole: any two can be compared.
        let (target, before) = match nth {
            Some(nth) => (target.numbered(nth), None),
            None => (target.clone(), before),
        };
        look.profile.remarks.iter().for_each(remark);
        target.write(look, before, measure)?;
        remark(format_args!("wrote {}", target.path().display()));
        return Ok(());
    }
    let view = match before {
        Some(before) => View::between(before, look),
        None => View::of(look),
    };
    let size = Term::stdout().size_checked().map_or(USUAL, |(rows, columns)| table::Size {
        columns: usize::from(columns).clamp(50, 200),
        rows: usize::from(rows).max(12),
    });
    output::print(table::table(&view, measure, size))
}

/// Parses a time: `60s`, `5m`, `1h`, or seconds.
fn interval(text: &str) -> Result<Duration, String> {
    let (number, unit) = match text.char_indices().last() {
        Some((at, 's')) => (&text[..at], 1.0),
        Some((at, 'm')) => (&text[..at], 60.0),
        Some((at, 'h')) => (&text[..at], 3600.0),
        _ => (text, 1.0),
    };
    let seconds: f64 =
        number.parse().map_err(|_| format!("`{text}` is no time: give 60s, 5m or 1h"))?;
    match Duration::try_from_secs_f64(seconds * unit) {
        Ok(time) if (Duration::from_millis(50)..=Duration::from_secs(1 << 20)).contains(&time) => {
            Ok(time)
        }
        _ => Err("give at least 0.05 s, and at most 12 days".into()),
    }
}

/// Parses a number of bytes: `65536`, `64K`, `1M`.
fn size(text: &str) -> Result<u64, String> {
    let (number, unit) = match text.char_indices().last() {
        Some((at, 'k' | 'K')) => (&text[..at], 1 << 10),
        Some((at, 'm' | 'M')) => (&text[..at], 1 << 20),
        _ => (text, 1),
    };
    let number = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    match number {
        Some(bytes) if (1 << 10..=1 << 40).contains(&bytes) => Ok(bytes),
        Some(_) => Err("give at least 1K, and at most 1048576M".into()),
        None => Err(format!("`{text}` is no number of bytes: give 65536, 64K or 1M")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes() {
        assert_eq!(interval("60s"), Ok(Duration::from_secs(60)));
        assert_eq!(interval("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(interval("2m"), Ok(Duration::from_secs(120)));
        for wrong in ["", "s", "x", "-1", "0", "NaN", "1e300", "30d", "ä"] {
            assert!(interval(wrong).is_err(), "{wrong}");
        }
        assert_eq!(size("64K"), Ok(65536));
        assert_eq!(size("1M"), Ok(1 << 20));
        for wrong in ["", "K", "1", "1.5M", "-1K", "99999999999999999999", "18446744073709551615M"]
        {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }
}
