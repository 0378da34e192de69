//! Measures: rounds outermost, then cases, then allocators in an order that is rotated and turned
//! round (A B C, C B A, B C A, …), so that what is compared ran close together, and no allocator
//! always comes first or after the same one.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use allocators::{Peer, machine, turns};
use anyhow::{Context, Result, bail, ensure};
use ebb::interrupt;
use ebb::perf::Perf;

use crate::bench::Bench;
use crate::case::{Allocator, Case, Kind, group_of};
use crate::conditions::{self, Conditions, Described, DescribedCase, Drawn};
use crate::kit::Kit;
use crate::plan::{CARES, Plan, Way};
use crate::progress::Progress;
use crate::report;
use crate::results::{Failure, Results};
use crate::workloads::drawn::{self, Draw};
use crate::workloads::lots;

// The last value of an option counts: `cargo xtask bench` gives `--library` and `--out` first.
#[derive(clap::Args)]
#[command(args_override_self = true)]
pub struct Options {
    /// The library under test
    #[arg(long, value_name = "FILE")]
    library: PathBuf,
    /// Another build of it, measured beside it as `before`
    #[arg(long, value_name = "FILE")]
    before: Option<PathBuf>,
    /// Where results, tables and pictures go
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Only cases with one of these in their name (comma-separated), for example
    /// `python,threads/larson`
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    only: Vec<String>,
    /// Also measure N programs and N loads that are drawn by lot: the groups `drawn` and `lots`
    #[arg(long, value_name = "N", default_value_t = 0)]
    draw: usize,
    /// Repeats a draw [default: from the time; with --resume that of the interrupted run]
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// Only these peers (comma-separated; default: all)
    #[arg(long, value_delimiter = ',', value_parser = allocators::parse, value_name = "NAMES")]
    peers: Vec<&'static Peer>,
    /// Rounds, each of which runs every case on every allocator [default: 5; with --quick 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    repeat: Option<u32>,
    /// One or two cases of each group, one round: a first impression in some minutes once set up
    #[arg(long)]
    quick: bool,
    /// Also measure what safety modes and profiles cost [sample, harden, check, profile; default:
    /// all]
    #[arg(
        long, num_args = 0.., require_equals = true, value_delimiter = ',', value_parser = way,
        value_name = "WAYS",
        default_missing_values = CARES.map(|(name, ..)| name))]
    careful: Vec<Way>,
    /// Go on with an interrupted run; other cases, peers or more rounds are added to it
    #[arg(long)]
    resume: bool,
    /// A program that runs longer is ended, and fails
    #[arg(
        long, default_value_t = 300, value_name = "SECONDS",
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    limit: u32,
    /// List the cases; set up and measure nothing
    #[arg(long)]
    list: bool,
}

/// The way that has this name.
fn way(name: &str) -> Result<Way> {
    let found = CARES.into_iter().find(|way| way.0 == name);
    found.with_context(|| format!("one of {}", CARES.map(|way| way.0).join(", ")))
}

pub fn run(options: &Options) -> Result<()> {
    if options.list {
        let kit = Kit::for_listing(draw(options)?)?;
        let plan = Plan::of_cases(&kit, &options.only, options.quick)?;
        for case in &plan.cases {
            println!("{:32} {}", case.name, case.about);
        }
        return Ok(());
    }
    let out = &options.out;
    fs::create_dir_all(out).with_context(|| format!("--out {}", out.display()))?;
    let _lock = lock(out)?;
    let peers = allocators::select(&options.peers);
    let kit = Kit::new(out, &keep("library", &options.library, out)?, &peers, draw(options)?)?;
    let before = options.before.as_ref().map(|file| keep("before", file, out)).transpose()?;
    let mut plan = Plan::of_cases(&kit, &options.only, options.quick)?;
    plan.set_up_allocators(&kit, &peers, &options.careful, before.as_deref());
    let rounds = options.repeat.unwrap_or(if options.quick { 1 } else { 5 });
    let mut conditions = conditions(&plan, &kit, rounds, options.quick)?;
    conditions.build_before = before.as_deref().map(conditions::fingerprint).transpose()?;
    if options.resume {
        conditions.continue_from(Conditions::read(out)?)?;
    }
    let mut results = Results::open(out, !options.resume)?;
    conditions.write(out)?;
    let bench = Bench { perf: Perf::probe(), output: out.join("output.txt"), limit: options.limit };
    measure(&plan, rounds, &bench, &mut results)?;
    conditions.load_after = machine::load();
    conditions.write(out)?;
    report::write(out)
}

fn measure(plan: &Plan, rounds: u32, bench: &Bench, results: &mut Results) -> Result<()> {
    interrupt::install()?;
    let mut progress = Progress::new(plan, rounds, results);
    for round in 1..=rounds {
        for case in plan.cases.iter().filter(|case| round <= case.most_rounds) {
            let contenders = plan.contenders(case);
            for nth in turns(round, contenders.len()) {
                let allocator = contenders[nth];
                if !results.has(&case.name, &allocator.name, round) {
                    progress.begin(&case.name, round);
                    one(case, allocator, round, bench, results)?;
                    progress.end();
                }
            }
        }
    }
    Ok(())
}

/// One measurement, noted in the results whether it fails or not. An error ends the suite.
fn one(
    case: &Case,
    allocator: &Allocator,
    round: u32,
    bench: &Bench,
    results: &mut Results,
) -> Result<()> {
    let measured = (case.job)(allocator).and_then(|job| bench.measure(&job, allocator));
    if interrupt::asked().is_some() {
        bail!("interrupted; the same command with --resume goes on from here");
    }
    match measured {
        Ok((figures, series)) => {
            // One round's course is enough to look at.
            if let Some(series) = series.filter(|_| round == 1) {
                results.add_series(&case.name, &allocator.name, &series)?;
            }
            results.add(&case.name, &allocator.name, round, &figures)
        }
        Err(error) => {
            let (case, allocator) = (case.name.clone(), allocator.name.clone());
            let why = format!("{error:#}").replace('\n', " / ");
            eprintln!("{allocator} failed {case}: {why}");
            results.fail(Failure { case, allocator, round, why })
        }
    }
}

/// Keeps other runs out of the directory while the file is open.
fn lock(out: &Path) -> Result<File> {
    let file =
        File::create(out.join("lock")).with_context(|| format!("--out {}", out.display()))?;
    ensure!(file.try_lock().is_ok(), "another run is at work in {}", out.display());
    Ok(file)
}

/// Copies the file of an option, so that a new build cannot replace it while it is measured.
fn keep(option: &str, library: &Path, out: &Path) -> Result<PathBuf> {
    let shown = library.display();
    let content = fs::read(library).with_context(|| format!("--{option} {shown}"))?;
    let name = if option == "library" { "libebbmalloc.so" } else { "libebbmalloc-before.so" };
    let kept = out.canonicalize()?.join(name);
    if fs::read(&kept).ok().as_ref() != Some(&content) {
        // Not in place: a process that outlived an earlier run may still use the old one.
        let fresh = kept.with_extension("so.new");
        fs::write(&fresh, content)?;
        fs::rename(&fresh, &kept)?;
    }
    Ok(kept)
}

/// The draw that the options ask for. Its seed is printed, so that a run can be repeated.
fn draw(options: &Options) -> Result<Draw> {
    let (count, only) = (options.draw, options.only.clone());
    let earlier = || {
        let run = Conditions::read(&options.out).ok().filter(|_| options.resume && !options.list);
        Some(run?.draws.last()?.seed)
    };
    let now =
        || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map(|time| time.as_secs());
    let seed = match options.seed.or_else(earlier) {
        Some(seed) => seed,
        None => now()?,
    };
    if count > 0 {
        eprintln!("drawing {count} programs and loads; --seed {seed} draws the same again");
    }
    Ok(Draw { count, seed, only })
}

fn conditions(plan: &Plan, kit: &Kit, rounds: u32, quick: bool) -> Result<Conditions> {
    let ours = plan.allocators.iter().find(|allocator| allocator.kind == Kind::Ours);
    let described = |allocator: &Allocator| Described {
        name: allocator.name.clone(),
        origin: allocator.origin.clone(),
        kind: allocator.kind,
    };
    let case = |case: &Case| DescribedCase {
        name: case.name.clone(),
        about: case.about.clone(),
        threads: case.threads.clone(),
    };
    let drawn = plan.cases.iter().map(|case| case.name.clone());
    let drawn = Drawn {
        count: kit.draw.count,
        seed: kit.draw.seed,
        cases: drawn.filter(|name| [drawn::GROUP, lots::GROUP].contains(&group_of(name))).collect(),
    };
    Ok(Conditions {
        machine: machine::describe(),
        load_before: machine::load(),
        load_after: String::new(),
        rounds,
        quick,
        library: conditions::fingerprint(&kit.library)?,
        build_before: None,
        tuning: conditions::tuning(),
        mode: ours.map(conditions::mode).unwrap_or_default(),
        allocators: plan.allocators.iter().map(described).collect(),
        cases: plan.cases.iter().map(case).collect(),
        missing: plan.missing.clone(),
        draws: Some(drawn)
            .filter(|drawn| kit.draw.count > 0 && !drawn.cases.is_empty())
            .into_iter()
            .collect(),
    })
}
