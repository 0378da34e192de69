//! Measures: rounds outermost, then cases, then allocators in rotated order (A B C, B C A, …), so that
//! what is compared ran close together and no allocator always comes first.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use allocators::Peer;
use anyhow::{Context, Result, bail, ensure};
use ebb::measure::{Failed, Setting, measure};
use ebb::perf::Perf;
use ebb::{interrupt, spawn};

use crate::case::{Allocator, Case, Figures, Job, Kind, PEAK, Series, TIME};
use crate::kit::Kit;
use crate::machine::{self, Conditions, Described, DescribedCase};
use crate::plan::{self, Plan};
use crate::report;
use crate::results::Results;

/// A run that takes longer is ended and fails.
const LIMIT: Duration = Duration::from_secs(300);

#[derive(clap::Args)]
pub struct Options {
    /// The library under test
    #[arg(long, value_name = "FILE")]
    library: PathBuf,
    /// Where results, tables and pictures go
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Only cases with one of these in their name (comma-separated), for example `python,threads/larson`
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    only: Vec<String>,
    /// Only these peers (comma-separated; default: all)
    #[arg(long, value_delimiter = ',', value_parser = allocators::parse, value_name = "NAMES")]
    peers: Vec<&'static Peer>,
    /// Rounds, each of which runs every case on every allocator
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    /// One or two cases of each group, three rounds: under 3 minutes once set up
    #[arg(long)]
    quick: bool,
    /// Go on with an interrupted run
    #[arg(long)]
    resume: bool,
}

pub fn run(options: &Options) -> Result<()> {
    fs::create_dir_all(&options.out).with_context(|| options.out.display().to_string())?;
    let library = plan::library(&options.library)?;
    let kit = Kit::new(&options.out, &library)?;
    let plan = Plan::make(&kit, &allocators::select(&options.peers), &options.only, options.quick)?;
    let rounds = if options.quick { options.repeat.min(3) } else { options.repeat };
    let mut conditions = conditions(&plan, &library, rounds, options.quick)?;
    if options.resume {
        let before = Conditions::read(&options.out)?;
        ensure!(
            before.library == conditions.library,
            "the interrupted run measured another build ({}); run without --resume",
            before.library
        );
    }
    let mut results = Results::open(&options.out, !options.resume)?;
    conditions.write(&options.out)?;
    interrupt::install()?;
    let bench = Bench { perf: Perf::probe(), output: options.out.join("output.txt") };
    let mut progress = Progress::new(&plan, rounds, &results);
    for round in 1..=rounds {
        for case in &plan.cases {
            let contenders = contenders(&plan, case);
            for turn in 0..contenders.len() {
                let allocator = contenders[(round as usize + turn) % contenders.len()];
                if results.has(&case.name, &allocator.name, round) {
                    continue;
                }
                progress.begin(case, allocator, round);
                let measured = (case.job)(allocator).and_then(|job| bench.run(&job, allocator));
                if interrupt::asked().is_some() {
                    bail!("interrupted; --resume goes on from here");
                }
                match measured {
                    Ok((figures, series)) => {
                        results.add(&case.name, &allocator.name, round, &figures)?;
                        if let Some(series) = series.filter(|_| round == 1) {
                            results.add_series(&case.name, &allocator.name, &series)?;
                        }
                    }
                    Err(error) => {
                        eprintln!("{} failed {}: {error:#}", allocator.name, case.name);
                        results.fail(&case.name, &allocator.name, round, &format!("{error:#}"))?;
                    }
                }
                progress.end();
            }
        }
    }
    conditions.load_after = machine::load();
    conditions.write(&options.out)?;
    report::write(&options.out)
}

/// Who runs a case.
fn contenders<'a>(plan: &'a Plan, case: &Case) -> Vec<&'a Allocator> {
    let all = plan.allocators.iter();
    all.filter(|allocator| case.modes || allocator.kind != Kind::OurMode).collect()
}

fn conditions(plan: &Plan, library: &Path, rounds: u32, quick: bool) -> Result<Conditions> {
    let ours = plan.allocators.iter().find(|allocator| allocator.kind == Kind::Ours);
    let described = |allocator: &Allocator| Described {
        name: allocator.name.clone(),
        origin: allocator.origin.clone(),
        peer: allocator.kind == Kind::Peer,
    };
    let case = |case: &Case| DescribedCase {
        name: case.name.clone(),
        about: case.about.clone(),
        threads: case.threads.clone(),
    };
    Ok(Conditions {
        machine: machine::describe(),
        load_before: machine::load(),
        load_after: String::new(),
        rounds,
        quick,
        library: machine::fingerprint(library)?,
        mode: ours.map(machine::mode).unwrap_or_default(),
        allocators: plan.allocators.iter().map(described).collect(),
        cases: plan.cases.iter().map(case).collect(),
        missing: plan.missing.clone(),
    })
}

struct Bench {
    perf: Perf,
    /// Holds what the program prints.
    output: PathBuf,
}

impl Bench {
    /// One run of a job on an allocator.
    fn run(&self, job: &Job, allocator: &Allocator) -> Result<(Figures, Option<Series>)> {
        let mut set: Vec<(&str, std::ffi::OsString)> = Vec::new();
        set.extend(allocator.env.iter().map(|(name, value)| (name.as_str(), value.into())));
        set.extend(job.env.iter().map(|(name, value)| (name.as_str(), value.clone())));
        let preload = allocator.library.as_ref().filter(|_| job.preload);
        let list = preload.map(|path| path.clone().into_os_string()).unwrap_or_default();
        set.push(("LD_PRELOAD", list));
        let arguments: Vec<_> = [job.program.clone().into_os_string()]
            .into_iter()
            .chain(job.arguments.clone())
            .collect();
        let command =
            spawn::Command::new(&job.program, &arguments, &set)?.limit(LIMIT.as_secs() as u32);
        let input = File::open("/dev/null")?;
        let output = File::create(&self.output)?;
        let setting =
            Setting { input: &input, output: &output, catch: true, perf: &self.perf, trace: true };
        let library = preload.map(|path| path.canonicalize()).transpose()?;
        let run = match measure(&command, library.as_deref(), &setting) {
            Ok(run) => run,
            Err(Failed::Refused(error)) => bail!("{}: {error}", job.program.display()),
            Err(Failed::Interrupted(_)) => bail!("interrupted"),
            Err(Failed::Measuring(error)) => return Err(error).context("measuring"),
        };
        let mut text = String::new();
        File::open(&self.output)?.read_to_string(&mut text).ok();
        if !run.status.success() {
            let messages = String::from_utf8_lossy(&run.stderr);
            let last: Vec<_> = messages.lines().rev().take(3).collect();
            bail!("{}; {}", run.status, last.into_iter().rev().collect::<Vec<_>>().join(" / "));
        }
        ensure!(run.loaded != Some(false), "preloading had no effect");
        let sample = &run.sample;
        let mut figures = Figures::from([
            (TIME.to_string(), sample.wall_seconds),
            ("cpu_s".to_string(), sample.user_seconds + sample.system_seconds),
            (PEAK.to_string(), sample.peak_bytes as f64 / 1024.0),
        ]);
        figures
            .extend(sample.end_bytes.map(|bytes| ("end_kib".to_string(), bytes as f64 / 1024.0)));
        let (reported, series) = reported(&text)?;
        figures.extend(reported);
        Ok((figures, series))
    }
}

/// What the program says of itself, on its last line.
fn reported(text: &str) -> Result<(Figures, Option<Series>)> {
    let last = text.trim_end().lines().next_back().unwrap_or_default();
    let Ok(serde_json::Value::Object(map)) = serde_json::from_str(last) else {
        return Ok(Default::default());
    };
    let series = map.get("series").map(|series| serde_json::from_value(series.clone()));
    let figures = map.iter().filter_map(|(name, value)| Some((name.clone(), value.as_f64()?)));
    Ok((figures.collect(), series.transpose().context("the program's series")?))
}

/// A line on standard error for each case and round.
struct Progress {
    total: usize,
    done: usize,
    ran: usize,
    begin: Instant,
    last: String,
}

impl Progress {
    fn new(plan: &Plan, rounds: u32, results: &Results) -> Self {
        let mut total = 0;
        let mut done = 0;
        for case in &plan.cases {
            for allocator in contenders(plan, case) {
                total += rounds as usize;
                done +=
                    (1..=rounds).filter(|&r| results.has(&case.name, &allocator.name, r)).count();
            }
        }
        Self { total, done, ran: 0, begin: Instant::now(), last: String::new() }
    }

    fn begin(&mut self, case: &Case, _allocator: &Allocator, round: u32) {
        let label = format!("round {round}, {}", case.name);
        if label == self.last {
            return;
        }
        let left = match self.ran {
            0 => String::new(),
            ran => {
                let each = self.begin.elapsed().as_secs_f64() / ran as f64;
                format!(", about {:.0} min left", each * (self.total - self.done) as f64 / 60.0)
            }
        };
        eprintln!("[{}/{}] {label}{left}", self.done, self.total);
        self.last = label;
    }

    fn end(&mut self) {
        self.done += 1;
        self.ran += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_may_hold_figures() {
        let (figures, series) = reported("hello\n{\"time_s\": 1.5, \"note\": \"x\"}\n").unwrap();
        assert_eq!(figures, Figures::from([("time_s".into(), 1.5)]));
        assert!(series.is_none());
        assert!(reported("no figures\n").unwrap().0.is_empty());
        let (_, series) = reported("{\"series\": [[0.5, 10, 4]]}").unwrap();
        assert_eq!(series, Some(vec![(0.5, 10.0, 4.0)]));
    }
}
