//! `cargo xtask misuse`: runs programs that misuse their allocator, on ebbmalloc and on its peers,
//! and prints how they end.

pub mod case;
pub mod expectation;
pub mod outcome;
pub mod step;
pub mod subjects;
mod table;

use crate::context::Context;
use crate::misuse::case::{Case, Subject};
use crate::misuse::expectation::SIZES;
use crate::misuse::outcome::Outcome;
use crate::{cargo, packages, pool};
use anyhow::{Context as _, Result, bail};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// The lines around the tables in docs/benchmarks/misuse.md, between which `--docs` writes.
const MARKS: (&str, &str) = ("<!-- begin: cargo xtask misuse --docs -->\n", "<!-- end -->\n");

#[derive(clap::Args)]
pub struct Args {
    /// One more allocator for the table; may be repeated
    #[arg(long, value_name = "NAME=PATH.so")]
    library: Vec<String>,
    /// Only these peers of the benchmarks' workspace; `none` for none
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    peers: Vec<String>,
    /// Run only what has this in its name
    #[arg(long, default_value = "", value_name = "TEXT")]
    matching: String,
    /// Write the tables into docs/benchmarks/misuse.md, and the matrix into misuse.txt, too
    #[arg(long)]
    docs: bool,
    /// Write into the programs what ebbmalloc does, as what is expected of it
    #[arg(long)]
    bless: bool,
}

/// Always returns true, as no outcome is wrong here.
pub fn run(args: &Args) -> Result<bool> {
    let context = Context::find(&args.matching)?;
    packages::install(&BTreeSet::from(["gcc".to_string()]));
    cargo::build_libraries(&context.root)?;
    let mut cases = case::cases(&context.root, &args.matching)?;
    let work = context.work.join("misuse");
    fs::create_dir_all(&work)?;
    let built = cases
        .iter()
        .map(|case| case.build(&context.root, "gcc", &work))
        .collect::<Result<Vec<_>>>()?;
    if args.bless {
        return bless(&context, &mut cases, &built);
    }
    let mut subjects = subjects::ours(&context);
    for library in &args.library {
        subjects.push(subjects::named(library)?);
    }
    if args.peers != ["none"] {
        subjects.extend(subjects::peers(&context, &args.peers)?);
    }
    let results: table::Results =
        subjects.iter().map(|subject| run_all(&cases, &built, subject)).collect();
    let table = table::markdown(&cases, &subjects, &results);
    let matrix = table::matrix(&cases, &subjects, &results);
    println!("{table}\n{matrix}");
    if args.docs {
        let folder = context.root.join("docs/benchmarks");
        write_between(&folder.join("misuse.md"), &table)?;
        fs::write(folder.join("misuse.txt"), &matrix).context("misuse.txt")?;
    }
    Ok(true)
}

/// Runs each case on blocks of each size.
fn run_all(cases: &[Case], built: &[PathBuf], subject: &Subject) -> Vec<Vec<Option<Outcome>>> {
    let jobs: Vec<(usize, usize)> =
        (0..cases.len()).flat_map(|case| (0..SIZES.len()).map(move |size| (case, size))).collect();
    let results = Mutex::new(vec![vec![None; SIZES.len()]; cases.len()]);
    let tally = pool::for_each(&jobs, |&(case, size)| {
        let mut tally = crate::tally::Tally::default();
        let outcome = cases[case].run(&built[case], subject, SIZES[size]);
        let test = format!("{} {} [{}]", cases[case].name, SIZES[size], subject.name);
        match outcome {
            Ok(outcome) => {
                results.lock().expect("no job panics")[case][size] = Some(outcome);
                tally.pass();
            }
            Err(error) => tally.fail(&test, format!("{error:#}")),
        }
        tally
    });
    println!("{}: {} runs", subject.name, tally.passed);
    results.into_inner().expect("no job panicked")
}

/// Runs ebbmalloc in all its modes and writes the outcomes into the programs.
fn bless(context: &Context, cases: &mut [Case], built: &[PathBuf]) -> Result<bool> {
    let (subjects, skipped) = subjects::modes(context)?;
    for (mode, why) in skipped {
        println!("left out: mode {mode}: {why}");
    }
    for subject in &subjects {
        let results = run_all(cases, built, subject);
        for (case, outcomes) in cases.iter_mut().zip(results) {
            for (size, outcome) in outcomes.into_iter().enumerate() {
                if let Some(outcome) = outcome {
                    case.expectation.bless(&subject.name, size, outcome);
                }
            }
        }
    }
    cases.iter().try_for_each(Case::write)?;
    Ok(true)
}

fn write_between(path: &Path, table: &str) -> Result<()> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let parts = text
        .split_once(MARKS.0)
        .and_then(|(before, rest)| rest.split_once(MARKS.1).map(|(_, after)| (before, after)));
    let Some((before, after)) = parts else {
        bail!("{} lacks the lines that the table stands between", path.display());
    };
    fs::write(path, format!("{before}{}{table}{}{after}", MARKS.0, MARKS.1))?;
    Ok(())
}
