//! `cargo xtask examples`: builds `examples/extensions` without and with ebbmalloc, and tests that several copies of
//! it live together in a process.

use crate::tally::Tally;
use crate::{cargo, on_disk, process, unittest};
use anyhow::{Context as _, Result, ensure};
use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(900);

/// The most, in KiB, that an extension may grow by on disk (docs/extensions.md).
const GROWTH: u64 = 100;

#[derive(clap::Args)]
pub struct Args {
    /// Then measure what ebbmalloc costs and brings them, this many rounds (docs/extensions.md)
    #[arg(long, value_name = "ROUNDS", num_args = 0..=1, default_missing_value = "7")]
    measure: Option<u32>,
}

/// Whether every test passed.
pub fn run(args: &Args) -> Result<bool> {
    let root = cargo::root()?;
    let target = cargo::target(&root);
    let source = root.join("examples/extensions");
    let built = target.join("extensions");
    let mut tally = Tally::default();
    if let Err(error) = fetch(&source, &built) {
        tally.skip("examples", format!("{error:#}"));
        println!("{tally}");
        return Ok(true);
    }
    cargo::build_release(&root)?;
    build(&source, &built, "without", &["--no-default-features"])?;
    build(&source, &built, "with", &[])?;
    for name in ["words_python.so", "words_node.node"] {
        match grown(&built, name) {
            Ok(()) => tally.pass(),
            Err(error) => tally.fail(&format!("examples {name}"), format!("{error:#}")),
        }
    }
    let mut tests = Command::new("python3");
    tests
        .args(["-m", "unittest", "-v"])
        .current_dir(source.join("tests"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("EXTENSIONS", &built)
        .env("RELEASE", target.join("release"));
    let run = process::run(&mut tests, LIMIT, &built.join("tests"), None)?;
    unittest::count(&run, &mut tally);
    println!("{tally}");
    if let Some(rounds) = args.measure {
        let measured = Command::new("python3")
            .arg(source.join("measure.py"))
            .args([built.as_os_str(), OsStr::new(&rounds.to_string())])
            .status()?;
        ensure!(measured.success(), "measuring failed");
    }
    Ok(tally.failed == 0)
}

/// Whether an extension is at most so much larger with ebbmalloc than without.
fn grown(built: &Path, name: &str) -> Result<()> {
    let bytes =
        |variant| Ok::<_, anyhow::Error>(fs::metadata(built.join(variant).join(name))?.len());
    on_disk::ensure_growth(bytes("without")?, bytes("with")?, GROWTH)
}

fn fetch(source: &Path, built: &Path) -> Result<()> {
    fs::create_dir_all(built)?;
    let fetched = process::run(
        cargo_in(source, built).args(["fetch", "--locked"]),
        LIMIT,
        &built.join("fetch"),
        None,
    )?;
    ensure!(fetched.success(), "no crates can be had: {}", fetched.describe());
    Ok(())
}

/// Builds all three, and copies them into a folder under the names that Python and Node know.
fn build(source: &Path, built: &Path, variant: &str, features: &[&str]) -> Result<()> {
    let folder = built.join(variant);
    fs::create_dir_all(&folder)?;
    let status =
        cargo_in(source, built).args(["build", "--release", "--locked"]).args(features).status()?;
    ensure!(status.success(), "building the extensions failed");
    for (from, to) in
        [("libwords_python.so", "words_python.so"), ("libwords_node.so", "words_node.node")]
    {
        fs::copy(built.join("release").join(from), folder.join(to)).context(from)?;
    }
    let bench = ["bench", "--locked", "--package", "words", "--no-run", "--message-format=json"];
    let output = cargo_in(source, built).args(bench).args(features).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout)?;
    let benchmark = text
        .lines()
        .filter_map(|line| line.split_once(r#""executable":""#)?.1.split_once('"'))
        .map(|(path, _)| path)
        .find(|path| path.contains("/followers-"))
        .context("cargo names no benchmark")?;
    fs::copy(benchmark, folder.join("followers"))?;
    Ok(())
}

fn cargo_in(source: &Path, built: &Path) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // What this repository passes to the compiler is not the user's.
    command.current_dir(source).env("CARGO_TARGET_DIR", built).env("RUSTFLAGS", "");
    command
}
