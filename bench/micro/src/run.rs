//! Drives the benchmark: starts workers on each allocator in turn for every row, round by round,
//! and passes their results to the report.

use std::fs::File;
use std::io::{IsTerminal, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;
use std::{env, fs};

use anyhow::{Context, Result, bail, ensure};

use crate::report::{Entrant, Measured, Report};
use crate::rows::{self, ROWS, Row};
use crate::worker::Outcome;
use allocators::{self, Peer, Ready, turns};

#[derive(clap::Args)]
pub struct Options {
    /// Library under test, PATH or NAME=PATH; repeat it to compare several
    #[arg(long, value_name = "[NAME=]PATH")]
    library: Vec<String>,
    /// Peers (comma-separated; default: all)
    #[arg(long, value_delimiter = ',', value_parser = allocators::parse)]
    peers: Vec<&'static Peer>,
    /// Rows (comma-separated; default: all)
    #[arg(long, value_delimiter = ',', value_parser = rows::parse)]
    rows: Vec<&'static Row>,
    /// Number of times that each row runs on each allocator
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Seconds each worker measures
    #[arg(long, default_value_t = 0.3)]
    seconds: f64,
    /// 3 rounds of 0.1 s: a first impression
    #[arg(long, conflicts_with_all = ["rounds", "seconds"])]
    quick: bool,
    /// Show each worker's mean instead of its median chunk: counts rare expensive calls, and also
    /// interruptions of the worker
    #[arg(long)]
    mean: bool,
    /// File for the raw samples [default: micro.csv in the build directory]
    #[arg(long, value_name = "PATH")]
    csv: Option<PathBuf>,
}

pub fn run(options: &Options) -> Result<()> {
    let (rounds, seconds) =
        if options.quick { (3, 0.1) } else { (options.rounds, options.seconds) };
    ensure!(seconds > 0.0 && seconds <= 600.0, "--seconds must be above 0 and at most 600");
    let rows = if options.rows.is_empty() { ROWS.iter().collect() } else { options.rows.clone() };

    let mut notes = Vec::new();
    let mut entrants = Vec::new();
    for peer in allocators::select(&options.peers) {
        match peer.prepare() {
            Ok(ready) => entrants.push(Entrant::new(ready, true)),
            Err(error) => notes.push(format!("{} is missing: {error:#}", peer.name)),
        }
    }
    for library in &options.library {
        entrants.push(Entrant::new(under_test(library)?, false));
    }
    ensure!(!entrants.is_empty(), "no allocator to measure: {}", notes.join("; "));
    for (index, entrant) in entrants.iter().enumerate() {
        let name = &entrant.ready.name;
        let twice = entrants[..index].iter().any(|other| other.ready.name == *name);
        ensure!(!twice, "two allocators are called {name}: name them with --library NAME=PATH");
    }

    let path = options.csv.clone().map_or_else(default_csv, Ok)?;
    let mut csv = Csv::create(&path)?;
    let mut report = Report {
        rows,
        entrants,
        measured: Vec::new(),
        rounds,
        seconds,
        mean: options.mean,
        load: allocators::machine::load(),
        notes,
    };
    let mut progress = Progress::new(report.rows.len() * (rounds as usize + 1));
    for row in report.rows.clone() {
        measure(row, &mut report, &mut csv, &mut progress)?;
    }
    progress.end();
    report.notes.push(format!("Raw samples: {}", path.display()));
    report.print();
    Ok(())
}

/// Runs one row: a round of checks (a faulty allocator's speed means nothing), then the measured
/// rounds.
fn measure(
    row: &'static Row,
    report: &mut Report,
    csv: &mut Csv,
    progress: &mut Progress,
) -> Result<()> {
    let mut fit = vec![true; report.entrants.len()];
    for round in 0..=report.rounds {
        progress.step(row.name, round);
        for index in turns(round, report.entrants.len()) {
            if !fit[index] {
                continue;
            }
            let entrant = &mut report.entrants[index];
            let name = &entrant.ready.name;
            let check = round == 0;
            match worker(row, &entrant.ready, if check { 0.02 } else { report.seconds }, check) {
                Ok(outcome) if check => entrant.version = outcome.version,
                Ok(outcome) => {
                    csv.write(row, name, round, &outcome)?;
                    report.measured.push(Measured {
                        row: row.name,
                        entrant: index,
                        round,
                        outcome,
                    });
                }
                Err(error) => {
                    report.notes.push(format!("{name} failed {}: {error:#}", row.name));
                    report.measured.retain(|m| m.row != row.name || m.entrant != index);
                    fit[index] = false;
                }
            }
        }
    }
    Ok(())
}

/// Parses `PATH` or `NAME=PATH`.
fn under_test(library: &str) -> Result<Ready> {
    let (name, path) = match library.split_once('=') {
        Some((name, path)) => (name.to_string(), path),
        None => {
            let stem = Path::new(library).file_stem().unwrap_or_default().to_string_lossy();
            (stem.trim_start_matches("lib").to_string(), library)
        }
    };
    let path = fs::canonicalize(path).with_context(|| format!("--library {path}"))?;
    Ok(Ready { origin: path.display().to_string(), library: Some(path), name, env: &[] })
}

fn worker(row: &Row, ready: &Ready, seconds: f64, check: bool) -> Result<Outcome> {
    let mut command = Command::new(env::current_exe()?);
    command.args(["worker", "--row", row.name, "--seconds", &seconds.to_string()]);
    if check {
        command.arg("--check");
    }
    command.envs(ready.env.iter().copied()).env_remove("LD_PRELOAD");
    if let Some(library) = &ready.library {
        command.env("LD_PRELOAD", library);
    }
    let output = command.output().context("starting the worker")?;
    if !output.status.success() {
        let messages = String::from_utf8_lossy(&output.stderr);
        let end = match output.status.signal() {
            Some(libc::SIGALRM) => "hung until its time was up".to_string(),
            _ => output.status.to_string(),
        };
        bail!("{end}; {}", messages.trim().replace('\n', " / "));
    }
    let outcome: Outcome = serde_json::from_slice(&output.stdout).context("reading the worker")?;
    if let Some(library) = &ready.library {
        let wanted = fs::canonicalize(library)?;
        let found = fs::canonicalize(&outcome.malloc_from).unwrap_or_default();
        ensure!(
            wanted == found,
            "preloading {} had no effect, malloc comes from {} (a path with a space or colon \
             cannot be preloaded)",
            library.display(),
            outcome.malloc_from,
        );
    }
    Ok(outcome)
}

/// Writes every sample at once, so that an interrupted run leaves its results.
struct Csv(File);

impl Csv {
    fn create(path: &Path) -> Result<Csv> {
        let mut file = File::create(path).with_context(|| format!("--csv {}", path.display()))?;
        writeln!(file, "row,allocator,round,median_ns,mean_ns,pairs,peak_kib,end_kib")?;
        Ok(Csv(file))
    }

    fn write(&mut self, row: &Row, allocator: &str, round: u32, outcome: &Outcome) -> Result<()> {
        let Outcome { ns, mean_ns, pairs, peak_kib, end_kib, .. } = outcome;
        let row = row.name;
        writeln!(
            self.0,
            "{row},{allocator},{round},{ns:.3},{mean_ns:.3},{pairs},{peak_kib},{end_kib}"
        )
        .context("writing the CSV file")
    }
}

fn default_csv() -> Result<PathBuf> {
    let program = env::current_exe()?;
    let target = program.ancestors().nth(2).context("finding the build directory")?;
    Ok(target.join("micro.csv"))
}

/// Prints a line on standard error for each row and round; on a terminal it overwrites the last.
struct Progress {
    total: usize,
    done: usize,
    begin: Instant,
    terminal: bool,
}

impl Progress {
    fn new(total: usize) -> Progress {
        let terminal = std::io::stderr().is_terminal();
        Progress { total, done: 0, begin: Instant::now(), terminal }
    }

    fn step(&mut self, row: &str, round: u32) {
        let (done, total) = (self.done, self.total);
        let round = if round == 0 { "check".into() } else { format!("round {round}") };
        let left = match done {
            0 => String::new(),
            _ => {
                let left = self.begin.elapsed().as_secs() as usize * (total - done) / done;
                format!(", about {left} s left")
            }
        };
        let (before, after) = if self.terminal { ("\r\x1b[K", "") } else { ("", "\n") };
        eprint!("{before}[{done}/{total}] {row}, {round}{left}{after}");
        self.done += 1;
    }

    fn end(&self) {
        if self.terminal {
            eprint!("\r\x1b[K");
        }
    }
}
