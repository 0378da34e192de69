//! `cargo xtask fuzz`: runs libFuzzer on the engine, by cargo-fuzz and nightly Rust. Where these
//! cannot be installed, it uses random bytes on stable Rust.

use crate::cargo;
use crate::workspace;
use anyhow::{Context as _, Result, ensure};
use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Targets in `fuzz/targets`, and tests of the same names in `crates/testkit/tests/engine/fuzz.rs`.
const TARGETS: [&str; 4] = ["alternate", "alternate_percpu", "together", "together_percpu"];

#[derive(clap::Args)]
pub struct Args {
    /// How long for each target
    #[arg(long, default_value_t = 10, value_name = "N")]
    minutes: u64,
    /// Only this one; otherwise all, one after the other
    #[arg(long, value_parser = TARGETS)]
    target: Option<String>,
}

/// Returns whether no failure was found.
pub fn run(args: &Args) -> Result<bool> {
    let root = workspace::root()?;
    let dir = workspace::target(&root).join("fuzz");
    let chosen = |name: &&str| args.target.as_ref().is_none_or(|target| target == name);
    let names = TARGETS.into_iter().filter(chosen);
    let tool = install(&root, &dir);
    if let Err(error) = &tool {
        println!("fuzz: skipped libFuzzer: {error:#}");
        println!("fuzz: random bytes instead, which nothing guides to new code");
    }
    let mut found = Vec::new();
    for name in names {
        println!("fuzz: {name}, {} minutes", args.minutes);
        let ended_well = match &tool {
            Ok(tool) => fuzz(&root, &dir, tool, name, args.minutes)?,
            Err(_) => random(&root, name, args.minutes)?,
        };
        if !ended_well {
            found.push(name);
        }
    }
    match found.as_slice() {
        [] => println!("fuzz: nothing found"),
        found => println!("fuzz: FAILED in {}", found.join(", ")),
    }
    Ok(found.is_empty())
}

/// Installs cargo-fuzz if it is missing. Returns its path.
fn install(root: &Path, dir: &Path) -> Result<PathBuf> {
    cargo::install_nightly("rust-src")?;
    let tools = dir.join("tools");
    let tool = tools.join("bin/cargo-fuzz");
    if !tool.exists() {
        println!("fuzz: installing cargo-fuzz into {}", tools.display());
        let install = ["install", "--quiet", "--locked", "cargo-fuzz", "--root"];
        let done = cargo::cargo(root).args(install).arg(&tools).stdin(Stdio::null()).status()?;
        ensure!(done.success(), "cargo-fuzz cannot be installed");
    }
    Ok(tool)
}

/// Runs one target. Failures go to `artifacts`; the inputs that reached new code go to `corpus`,
/// from which the next run starts.
fn fuzz(root: &Path, dir: &Path, tool: &Path, name: &str, minutes: u64) -> Result<bool> {
    let (corpus, artifacts) = (dir.join("corpus").join(name), dir.join("artifacts").join(name));
    fs::create_dir_all(&artifacts)?;
    sow(&corpus)?;
    let status = Command::new("rustup")
        .args(["run", "nightly"])
        .arg(tool)
        .args(["run", "--fuzz-dir", "fuzz", "--target-dir"])
        .arg(dir.join("build"))
        .arg(name)
        .arg(&corpus)
        .args([
            "--",
            "-timeout=120",
            "-rss_limit_mb=4096",
            "-max_len=4096",
            "-len_control=0",
            "-print_final_stats=1",
        ])
        .arg(format!("-max_total_time={}", minutes * 60))
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .current_dir(root)
        .stdin(Stdio::null())
        .status()
        .context("cannot start rustup")?;
    Ok(status.success())
}

/// Gives the fuzzer long random inputs to begin with: from nothing it takes hours to find programs.
fn sow(corpus: &Path) -> Result<()> {
    fs::create_dir_all(corpus)?;
    if fs::read_dir(corpus)?.next().is_some() {
        return Ok(());
    }
    let mut random = File::open("/dev/urandom").context("cannot open /dev/urandom")?;
    for length in (1..=100).map(|nth| nth * 30) {
        let mut bytes = vec![0; length];
        random.read_exact(&mut bytes)?;
        fs::write(corpus.join(format!("random-{length}")), bytes)?;
    }
    Ok(())
}

fn random(root: &Path, name: &str, minutes: u64) -> Result<bool> {
    let test = ["test", "--release", "--package", "ebbmalloc-testkit", "--test", "engine", "--"];
    let status = cargo::cargo(root)
        .args(test)
        .args(["--exact", &format!("fuzz::{name}"), "--nocapture"])
        .env("EBB_FUZZ_SECONDS", (minutes * 60).to_string())
        .status()
        .context("cannot start cargo")?;
    Ok(status.success())
}
