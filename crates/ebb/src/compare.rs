//! `ebb compare`: the same program on several allocators, in turn.

use std::env;
use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use clap::Args;

use crate::inspect::Program;
use crate::library::{Library, LibraryOption};
use crate::measure::{Failed, Run, Sample, Setting, measure};
use crate::notes::{self, Note};
use crate::perf::Perf;
use crate::progress::Progress;
use crate::result::{self, Allocator, Findings};
use crate::spawn::Command;
use crate::stop::Stop;
use crate::{interrupt, program, report, stats};

const SYSTEM: &str = "system";
const OURS: &str = "ebbmalloc";
/// Below this, starting the process outweighs what its allocator does.
const SHORT: Duration = Duration::from_millis(50);
/// How many of a failed program's last lines are shown.
const LAST_LINES: usize = 10;

#[derive(Args)]
#[command(after_help = "\
Times, faults and counters include the child processes that the program waits for. Peak memory is that \
of the program or of its largest child, whichever is more; memory at end is the program's own, resident \
when it begins to exit.")]
pub struct Options {
    /// Counted runs on each allocator; 5 or more allow a verdict
    #[arg(short = 'n', long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    runs: u32,
    /// Uncounted runs on each allocator before that
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    warmup: u32,
    /// Another allocator to compare; may be given several times
    #[arg(long, value_name = "NAME=PATH.so", value_parser = parse_allocator)]
    allocator: Vec<(String, PathBuf)>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// The program's standard input, from its beginning in each run [default: empty]
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// Let the program's output through, to standard error
    #[arg(long)]
    output: bool,
    /// Count runs in which the program fails instead of stopping there
    #[arg(short, long)]
    ignore_failure: bool,
    #[command(flatten)]
    library: LibraryOption,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM ARGS")]
    command: Vec<OsString>,
}

fn parse_allocator(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((name, path)) if !name.is_empty() && !path.is_empty() => {
            Ok((name.into(), path.into()))
        }
        _ => Err("expected NAME=PATH.so, such as jemalloc=/usr/lib/libjemalloc.so.2".into()),
    }
}

/// An allocator on its way through the runs.
struct Contender {
    name: String,
    library: Option<Library>,
    command: Command,
    samples: Vec<Sample>,
    /// Whether its library was in the program, in every run so far.
    loaded: Option<bool>,
    /// Runs without failure, warm-ups included.
    succeeded: u32,
}

impl Contender {
    fn new(
        name: &str,
        library: Option<Library>,
        path: &Path,
        arguments: &[OsString],
    ) -> anyhow::Result<Self> {
        let before = env::var_os("LD_PRELOAD");
        let set = match &library {
            Some(library) => {
                vec![("LD_PRELOAD", program::preload(&library.path, before.as_deref())?)]
            }
            None => Vec::new(),
        };
        let command = Command::new(path, arguments, &set)
            .context("an argument or variable has a zero byte in it")?;
        Ok(Self {
            name: name.into(),
            library,
            command,
            samples: Vec::new(),
            loaded: None,
            succeeded: 0,
        })
    }
}

/// Runs the comparison and prints its result.
pub fn compare(options: Options) -> anyhow::Result<()> {
    let path = program::find(&options.command[0])?;
    let mut contenders = contenders(&options, &path)?;
    let input = options.input.clone().unwrap_or("/dev/null".into());
    File::open(&input).map_err(|error| Stop::usage(format!("{}: {error}", input.display())))?;

    let inspected = Program::of(&path);
    let mut notes = Notes::new(&options.command[0]);
    notes.extend(notes::environment(env::var_os("LD_PRELOAD")));
    for contender in &contenders {
        notes.extend(
            contender.library.iter().flat_map(|library| notes::library(&contender.name, library)),
        );
    }
    notes.inspect(&inspected, &contenders);
    notes.warn();
    let perf = Perf::probe();

    interrupt::install()?;
    let output = if options.output {
        File::options().append(true).open("/dev/stderr")
    } else {
        File::options().write(true).open("/dev/null")
    };
    let output = output.context("the program's output has no place to go")?;
    let trace = !inspected.privileged();
    let mut progress = Progress::new(
        u64::from(options.warmup + options.runs) * contenders.len() as u64,
        !options.output,
    );
    for round in 0..options.warmup + options.runs {
        let warming = round < options.warmup;
        let label = if warming {
            format!("warm-up {} of {}", round + 1, options.warmup)
        } else {
            format!("round {} of {}", round - options.warmup + 1, options.runs)
        };
        for turn in 0..contenders.len() {
            // Each allocator comes first in turn, lest one always finds what another left behind. In
            // warm-ups the system's comes first: it tells failures of the program from those of others.
            let first = if warming { 0 } else { (round - options.warmup) as usize };
            let contender = (first + turn) % contenders.len();
            progress.begin(&label, &contenders[contender].name);
            let setting = Setting {
                input: &File::open(&input)?,
                output: &output,
                catch: !options.output,
                perf: &perf,
                trace,
            };
            let run = one(&contenders[contender], &path, &setting)?;
            progress
                .end(&contenders[contender].name, Duration::from_secs_f64(run.sample.wall_seconds));
            if !run.status.success() && !options.ignore_failure {
                drop(progress);
                return Err(failure(&contenders, contender, &label, &run));
            }
            notes.observe(&run, &contenders, contender);
            record(&mut contenders[contender], run, warming);
        }
        progress.round(&label);
    }
    drop(progress);

    let findings = findings(&options, contenders, notes.finish(perf.note));
    if options.json {
        println!("{}", serde_json::to_string_pretty(&findings)?);
    } else {
        report::print(&findings);
    }
    Ok(())
}

fn contenders(options: &Options, path: &Path) -> anyhow::Result<Vec<Contender>> {
    let mut contenders = vec![
        Contender::new(SYSTEM, None, path, &options.command)?,
        Contender::new(OURS, Some(options.library.find()?), path, &options.command)?,
    ];
    for (name, library) in &options.allocator {
        if contenders.iter().any(|contender| contender.name == *name) {
            return Err(Stop::usage(format!(
                "--allocator {name}=…: there is an allocator of the name {name} already"
            )));
        }
        contenders.push(Contender::new(
            name,
            Some(Library::open(library)?),
            path,
            &options.command,
        )?);
    }
    Ok(contenders)
}

fn one(contender: &Contender, path: &Path, setting: &Setting) -> anyhow::Result<Run> {
    let library = contender.library.as_ref().map(|library| library.path.as_path());
    measure(&contender.command, library, setting).map_err(|failed| match failed {
        Failed::Refused(error) => program::refused(path, error),
        Failed::Interrupted(signal) => Stop::with(128 + signal as u8, "interrupted"),
        Failed::Measuring(error) => {
            anyhow::Error::from(error).context("the program could not be measured")
        }
    })
}

fn record(contender: &mut Contender, run: Run, warming: bool) {
    contender.succeeded += u32::from(run.status.success());
    if contender.library.is_some() {
        contender.loaded = match (contender.loaded, run.loaded) {
            (Some(before), Some(now)) => Some(before && now),
            (before, now) => before.or(now),
        };
    }
    if !warming {
        contender.samples.push(run.sample);
    }
}

/// The error for a failed run: where, how, whether elsewhere too, and the program's last words.
fn failure(contenders: &[Contender], failed: usize, label: &str, run: &Run) -> anyhow::Error {
    let mut text =
        format!("the program failed on {} ({label}): {}", contenders[failed].name, run.status);
    let fine: Vec<_> = contenders
        .iter()
        .filter(|other| other.succeeded > 0)
        .map(|other| other.name.as_str())
        .collect();
    text.push_str(&match (failed, fine.as_slice()) {
        (0, []) => "\nThis is without any other allocator preloaded: --ignore-failure compares all the same".into(),
        (_, []) => String::new(),
        (_, fine) => format!("\nIt had succeeded on: {}", fine.join(", ")),
    });
    let stderr = String::from_utf8_lossy(&run.stderr);
    let lines: Vec<_> = stderr.lines().collect();
    let last = &lines[lines.len().saturating_sub(LAST_LINES)..];
    if !last.is_empty() {
        text.push_str(&format!("\nIts last lines on standard error:\n  {}", last.join("\n  ")));
    }
    anyhow::Error::msg(text)
}

fn findings(options: &Options, contenders: Vec<Contender>, mut notes: Vec<String>) -> Findings {
    let system = contenders[0].samples.clone();
    if system.iter().all(|run| run.wall_seconds < SHORT.as_secs_f64()) {
        notes.push(format!("The program ends within {} ms: much of that is starting it. Give it more to do to learn about its allocator.", SHORT.as_millis()));
    }
    let allocators: Vec<_> = contenders
        .into_iter()
        .enumerate()
        .map(|(index, contender)| {
            let library = contender.library.map(|library| library.path);
            Allocator::new(
                contender.name,
                library,
                contender.loaded,
                contender.samples,
                (index > 0).then_some(&system),
            )
        })
        .collect();
    Findings {
        ebb: env!("CARGO_PKG_VERSION"),
        program: options.command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        runs: options.runs,
        warmup: options.warmup,
        foundation: stats::foundation(options.runs as usize),
        failures: result::failures(&allocators),
        notes,
        allocators,
    }
}

/// Collects what is to be said, each thing once.
struct Notes<'a> {
    name: &'a OsString,
    notes: Vec<Note>,
    inspected: Vec<PathBuf>,
}

impl<'a> Notes<'a> {
    fn new(name: &'a OsString) -> Self {
        Self { name, notes: Vec::new(), inspected: Vec::new() }
    }

    fn extend(&mut self, notes: impl IntoIterator<Item = Note>) {
        for note in notes {
            if !self.notes.contains(&note) {
                self.notes.push(note);
            }
        }
    }

    fn inspect(&mut self, program: &Program, contenders: &[Contender]) {
        self.inspected
            .extend([program.path.clone(), program.path.canonicalize().unwrap_or_default()]);
        let libraries: Vec<_> =
            contenders.iter().filter_map(|contender| contender.library.as_ref()).collect();
        self.extend(notes::program(program, self.name, &libraries));
    }

    /// Says at once what makes the comparison futile: its user may not want to wait for it.
    fn warn(&self) {
        for note in self.notes.iter().filter(|note| note.futile) {
            eprintln!("ebb: {}", note.text);
        }
    }

    /// Learns from a run: scripts may have started a program that was not known before.
    fn observe(&mut self, run: &Run, contenders: &[Contender], index: usize) {
        let contender = &contenders[index];
        if let Some(exe) = run.exe.as_ref().filter(|exe| !self.inspected.contains(exe)) {
            self.inspect(&Program::of(exe), contenders);
        }
        if contender.library.is_some()
            && run.loaded == Some(false)
            && contender.loaded != Some(false)
        {
            let exe =
                run.exe.as_ref().map_or("the program".into(), |exe| exe.display().to_string());
            // The loader says on the program's standard error what hindered it.
            let stderr = String::from_utf8_lossy(&run.stderr);
            let reason =
                stderr.lines().find(|line| line.contains("LD_PRELOAD cannot be preloaded"));
            let reason = reason.map_or(String::new(), |line| format!(" The loader said: {line}"));
            self.extend([Note::remark(format!(
                "{} was not loaded into {exe} (it was not in its memory map at the end): its runs show the system's allocator.{reason}",
                contender.name
            ))]);
        }
        if let Some(error) = &run.untraced {
            self.extend([Note::remark(format!(
                "Memory at end is what was last seen, looking every 10 ms: the program could not be traced ({error})."
            ))]);
        } else if run.sample.end_bytes.is_none() {
            self.extend([Note::remark("Memory at end is not known: the program's last thread left unseen, or replaced it by another program.")]);
        }
    }

    fn finish(mut self, perf: Option<String>) -> Vec<String> {
        self.extend(perf.map(Note::remark));
        self.notes.into_iter().map(|note| note.text).collect()
    }
}
