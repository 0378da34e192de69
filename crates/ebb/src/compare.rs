//! Implements `ebb compare`: runs the same program on several allocators, in turn.

use std::env;
use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use clap::Args;

use crate::contender::Contender;
use crate::inspect::Program;
use crate::library::{Library, LibraryOption};
use crate::measure::{Failed, Run, Sample, Setting, measure};
use crate::notebook::Notebook;
use crate::notes;
use crate::perf::Perf;
use crate::progress::Progress;
use crate::result::{self, Allocator, Findings};
use crate::stats::{self, Summary};
use crate::stop::Stop;
use crate::{interrupt, output, program, report};

const SYSTEM: &str = "system";
const OURS: &str = "ebbmalloc";
/// For shorter runs, starting the process outweighs the work of its allocator.
const SHORT: Duration = Duration::from_millis(50);
/// A spread of equal runs above this share of their median is reported.
const RESTLESS: f64 = 0.25;
/// The number of a failed program's last lines that are shown.
const LAST_LINES: usize = 10;

#[derive(Args)]
#[command(
    override_usage = "ebb compare [OPTIONS] -- PROGRAM [ARGS]...",
    after_help = "\
Times, faults and counters include child processes that the program waits for. Peak memory is the \
larger of the program's and its largest child's. Memory at end is the program's own resident \
memory when it begins to exit."
)]
pub struct Options {
    /// Counted runs on each allocator; 5 or more allow a verdict
    #[arg(short = 'n', long, value_name = "N", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100_000))]
    runs: u32,
    /// Uncounted runs on each allocator before the counted ones
    #[arg(long, value_name = "K", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=100_000))]
    warmup: u32,
    /// Another allocator to compare; may be given several times
    #[arg(long, value_name = "NAME=PATH.so", value_parser = parse_allocator)]
    allocator: Vec<(String, PathBuf)>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// Standard input of the program, read from the start in each run [default: empty]
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// Pass the program's output on, to standard error
    #[arg(long)]
    output: bool,
    /// Count runs in which the program fails instead of stopping at the first
    #[arg(short, long)]
    ignore_failure: bool,
    #[command(flatten)]
    library: LibraryOption,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM [ARGS]")]
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

/// Runs the comparison and prints its result.
pub fn compare(options: Options) -> anyhow::Result<()> {
    let path = program::find(&options.command[0])?;
    let mut contenders = contenders(&options, &path)?;
    let input = options.input.clone().unwrap_or("/dev/null".into());
    File::open(&input).map_err(|error| Stop::usage(format!("{}: {error}", input.display())))?;

    let inspected = Program::of(&path);
    let mut notes = Notebook::new(&options.command[0]);
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
    let output = output.context("cannot open /dev/stderr or /dev/null for the program's output")?;
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
            // In warm-ups the system's allocator comes first, so that a failure of the program
            // itself shows there.
            let contender = match round.checked_sub(options.warmup) {
                Some(round) => who(round as usize, turn, contenders.len()),
                None => turn,
            };
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
            contenders[contender].record(run, warming);
        }
        progress.round(&label);
    }
    drop(progress);

    let findings = findings(&options, contenders, notes.finish(perf.note));
    if options.json {
        output::print_line(serde_json::to_string_pretty(&findings)?)?;
    } else {
        output::print(report::text(&findings))?;
    }
    Ok(())
}

/// The index of the contender that runs at this turn of a round, out of `of`. Each comes first in
/// turn, and the others follow in order or, every other round, backwards: so none always runs after
/// the same other one.
fn who(round: usize, turn: usize, of: usize) -> usize {
    let first = round % of;
    (first + if round.is_multiple_of(2) { turn } else { of - turn }) % of
}

fn contenders(options: &Options, path: &Path) -> anyhow::Result<Vec<Contender>> {
    let mut contenders = vec![
        Contender::new(SYSTEM, None, path, &options.command)?,
        Contender::new(OURS, Some(options.library.find()?), path, &options.command)?,
    ];
    for (name, library) in &options.allocator {
        if contenders.iter().any(|contender| contender.name == *name) {
            return Err(Stop::usage(format!(
                "--allocator {name}=…: another allocator has the name {name} already"
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
            anyhow::Error::from(error).context("cannot measure the program")
        }
    })
}

/// The error for a failed run: where it failed, how, whether it failed on other allocators too, and
/// the program's last lines.
fn failure(contenders: &[Contender], failed: usize, label: &str, run: &Run) -> anyhow::Error {
    let mut text =
        format!("the program failed on {} ({label}): {}", contenders[failed].name, run.status);
    let fine: Vec<_> = contenders
        .iter()
        .filter(|other| other.succeeded > 0)
        .map(|other| other.name.as_str())
        .collect();
    text.push_str(&match (failed, fine.as_slice()) {
        (0, []) => {
            "\nNo allocator was preloaded in this run: the program itself fails. To compare it \
             anyway, give --ignore-failure"
                .into()
        }
        (_, []) => String::new(),
        (_, fine) => format!("\nIt succeeded on: {}", fine.join(", ")),
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
    notes.extend(restlessness(&system));
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
        foundation: stats::foundation(options.runs as usize, "-n"),
        failures: result::failures(&allocators),
        notes,
        allocators,
    }
}

/// The warning that the wall times on the system's allocator call for, if any.
fn restlessness(system: &[Sample]) -> Option<String> {
    let times: Vec<_> = system.iter().map(|run| run.wall_seconds).collect();
    let Summary { median, min, max } = Summary::of(&times)?;
    if max < SHORT.as_secs_f64() {
        return Some(format!(
            "The program ends within {} ms: much of that is its start. Give it more work to \
             compare allocators.",
            SHORT.as_millis()
        ));
    }
    let spread = (max - min) / median;
    (spread > RESTLESS).then(|| {
        format!(
            "Wall times on one allocator differ by {:.0} %: the machine is busy, or the program \
             varies. Compare on a quiet machine, or with more runs (-n {}).",
            spread * 100.0,
            (times.len() * 4).max(20)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocators_have_a_name_and_a_path() {
        assert_eq!(parse_allocator("a=/b=c.so"), Ok(("a".into(), "/b=c.so".into())));
        for text in ["", "=", "a", "a=", "=b"] {
            assert!(parse_allocator(text).is_err(), "{text}");
        }
    }

    #[test]
    fn each_comes_first_as_often_and_after_another_one_each_round() {
        for of in 1..9 {
            let orders: Vec<Vec<_>> = (0..2 * of)
                .map(|round| (0..of).map(|turn| who(round, turn, of)).collect())
                .collect();
            for contender in 0..of {
                assert!(orders.iter().all(|order| order.contains(&contender)), "{orders:?}");
                let first = orders.iter().filter(|order| order[0] == contender).count();
                assert_eq!(first, 2, "{orders:?}");
            }
            for rounds in orders.windows(2) {
                let [pairs, next] = [0, 1].map(|nth| rounds[nth].windows(2));
                let again = pairs.filter(|pair| next.clone().any(|other| other == *pair)).count();
                assert!(of < 3 || again == 0, "{orders:?}");
            }
        }
    }

    #[test]
    fn restless_machines_and_short_programs_are_told() {
        let said = |times: [f64; 3]| {
            restlessness(&times.map(|wall_seconds| Sample { wall_seconds, ..Sample::default() }))
        };
        assert_eq!(said([1.0, 1.1, 1.2]), None);
        assert!(said([1.0, 1.1, 1.5]).unwrap().contains("differ by 45 %"));
        assert!(said([0.001, 0.002, 0.01]).unwrap().contains("within 50 ms"));
    }
}
