//! Runs the steps that are a cargo command: `unit`, `loom` and `miri`.

use crate::context::Context;
use crate::pool;
use crate::process::last_lines;
use crate::tally::Tally;
use anyhow::{Context as _, Result, anyhow, ensure};
use std::env;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The package whose tests run under loom and Miri.
const KIT: &str = "ebbmalloc-testkit";
/// Programs that take Miri a minute or more each; they run only with `--long`.
const SLOW: [&str; 13] = [
    "blocks_pass_beside_their_spans",
    "caches_are_emptied_by_others",
    "caches_are_handed_on",
    "heaps_come_and_go",
    "one_of_every_kind_at_other_alignments",
    "one_thread",
    "one_thread_with_its_cache",
    "sampled_for_a_heap_profile",
    "statistics_meanwhile",
    "two_threads_hand_over",
    "two_threads_start_it",
    "two_threads_with_caches_hand_over",
    "two_threads_with_sampled_blocks",
];
/// The program whose borrows Miri checks also without `--long`.
const BORROWED: &str = "one_of_every_kind";
const NO_BORROWS: &str = "-Zmiri-disable-stacked-borrows";
/// What shortens the engine's tests: the distance between refused calls, of which one test refuses
/// five in a row; seconds for random programs.
const SHORT: [(&str, &str); 2] = [("EBB_TEST_STEP", "3"), ("EBB_FUZZ_SECONDS", "1")];
/// Tests that Miri must stop, because they read memory that has no owner.
const MUTANTS: [&str; 2] = ["a_freed_block_is_read", "purged_memory_is_read"];

/// Installs the standard library of a target if it is missing.
pub fn add_target(target: &str) -> Result<()> {
    let add = Command::new("rustup")
        .args(["target", "add", target])
        .stdin(Stdio::null())
        .output()
        .context("the target needs rustup, which cannot be started")?;
    ensure!(add.status.success(), "rustup could not install the target {target}");
    Ok(())
}

/// Builds the command and the libraries into the release directory.
pub fn build_release(root: &Path) -> Result<()> {
    succeed(cargo(root).args(["build", "--release"]))
}

/// Builds the C libraries into the release directory.
pub fn build_libraries(root: &Path) -> Result<()> {
    let packages = ["--package", "ebbmalloc-capi", "--package", "ebbmalloc-capi-static"];
    succeed(cargo(root).args(["build", "--release"]).args(packages))
}

/// Builds the command and returns its path. Without `--long` it is the one that the step `unit`
/// tests: link-time optimization of all that it consists of takes minutes.
pub fn build_command(context: &Context) -> Result<PathBuf> {
    if context.long {
        build_release(&context.root)?;
        return Ok(context.target.join("release/ebb"));
    }
    succeed(test_workspace(&context.root).args(["--no-run", "--test", "run"]))?;
    Ok(context.target.join("debug/ebb"))
}

fn succeed(command: &mut Command) -> Result<()> {
    let status = command.status().context("cannot start cargo")?;
    ensure!(status.success(), "{command:?} failed");
    Ok(())
}

/// Builds packages into the release directory.
pub fn build_packages(root: &Path, packages: &[String]) -> Result<()> {
    let mut command = cargo(root);
    command.args(["build", "--release"]);
    packages.iter().for_each(|package| {
        command.args(["--package", package]);
    });
    let status = command.status().context("cannot start cargo")?;
    ensure!(status.success(), "cargo build --release of {} failed", packages.join(", "));
    Ok(())
}

/// Links the shared library once more, into a directory of its own, with the soname that installed
/// programs look for. Returns its path. (The library in the release directory has no soname, so
/// that programs find it by its path.)
pub fn build_shared(root: &Path, target: &Path, soname: &str) -> Result<PathBuf> {
    let status = cargo(root)
        .args(["rustc", "--release", "--package", "ebbmalloc-capi", "--target-dir"])
        .arg(target)
        .args(["--", "-C", &format!("link-arg=-Wl,-soname,{soname}")])
        .status()
        .context("cannot start cargo")?;
    ensure!(status.success(), "building libebbmalloc.so for installation failed");
    Ok(target.join("release/libebbmalloc.so"))
}

pub fn build_unit(context: &Context) -> Result<()> {
    succeed(test_workspace(&context.root).arg("--no-run"))
}

pub fn unit(context: &Context) -> Result<Tally> {
    let mut tally = Tally::default();
    let mut tests = test_workspace(&context.root);
    if !context.long {
        tests.envs(SHORT);
        tally.skip("unit: two of three calls that a test refuses one by one", "with --long");
    }
    // One more than there are CPUs: many tests wait.
    tests.env("RUST_TEST_THREADS", pool::workers().to_string());
    tally += test("unit", tests.arg("--no-fail-fast"))?;
    Ok(tally)
}

fn test_workspace(root: &Path) -> Command {
    let mut command = cargo(root);
    command.args(["test", "--workspace", "--features", "ebbmalloc/allocator-api2"]);
    command
}

pub fn loom(context: &Context) -> Result<Tally> {
    let mut command = cargo(&context.root);
    command
        .args(["test", "--package", KIT, "--release", "--test", "loom", "--target-dir"])
        .arg(context.target.join("loom"))
        // It builds in half the time and runs as fast. Only loom and its scheduler run for long.
        .args(["--config", "profile.release.lto=false", "--config", "profile.release.debug=false"])
        .args(["--config", "profile.release.codegen-units=16"])
        .args(["--config", "profile.release.package.'*'.opt-level=0"])
        .args(["--config", "profile.release.package.loom.opt-level=3"])
        .args(["--config", "profile.release.package.generator.opt-level=3"])
        .env("RUSTFLAGS", "--cfg loom");
    test("loom", &mut command)
}

pub fn miri(context: &Context) -> Result<Tally> {
    if let Err(error) = install_miri() {
        let mut tally = Tally::default();
        tally.skip("miri", format!("{error:#}"));
        return Ok(tally);
    }
    let mut tally = Tally::default();
    let mut programs = miri_test(context, "miri");
    programs.arg("--");
    if !context.long {
        for name in SLOW {
            programs.args(["--skip", name]);
            tally.skip(name, "takes Miri a minute; with --long");
        }
        // Most of the time goes into borrows of the whole engine.
        programs.args(["--skip", BORROWED]).env("MIRIFLAGS", NO_BORROWS);
        tally.skip(&format!("miri: borrows, except in {BORROWED}"), "with --long");
        let mut borrowed = miri_test(context, "miri");
        tally += test("miri", borrowed.args(["--", "--exact", BORROWED]))?;
    }
    tally += test("miri", &mut programs)?;
    // What reads tables of other programs' bytes.
    let mut unwinding = miri_command(context, "ebbmalloc");
    tally += test("miri", unwinding.args(["--lib", "--", "unwind"]))?;
    tally += test("miri forward", &mut miri_forward(context))?;
    for mutant in MUTANTS {
        let mut run = miri_test(context, "miri_mutants");
        run.args(["--", "--exact", mutant]).env("MIRIFLAGS", NO_BORROWS);
        let output = run.output().context("cannot start cargo")?;
        let said = String::from_utf8_lossy(&output.stderr);
        let stopped = !output.status.success() && said.contains("uninitialized");
        let why = || anyhow!("Miri does not stop it:\n{}", last_lines(&said, 15));
        tally.count(mutant, stopped.then_some(()).ok_or_else(why));
    }
    Ok(tally)
}

/// Prepares the run of one test file under Miri.
fn miri_test(context: &Context, file: &str) -> Command {
    let mut command = miri_command(context, KIT);
    command.args(["--test", file]);
    command
}

/// Prepares the run of tests of a package under Miri.
fn miri_command(context: &Context, package: &str) -> Command {
    let mut command = nightly(&context.root);
    command
        .args(["miri", "test", "--package", package, "--target-dir"])
        .arg(context.target.join("miri"));
    command
}

/// Prepares the test of heaps of the system's allocator under Miri, which also finds leaks.
fn miri_forward(context: &Context) -> Command {
    let mut command = nightly(&context.root);
    command
        .args(["miri", "test", "--package", "ebbmalloc", "--features", "allocator-api2"])
        .args(["--test", "anywhere", "--target-dir"])
        .arg(context.target.join("miri-forward"))
        .env("RUSTFLAGS", "--cfg ebbmalloc_forward")
        .env("MIRIFLAGS", "-Zmiri-permissive-provenance");
    command
}

fn install_miri() -> Result<()> {
    let has = Command::new("rustup")
        .args(["run", "nightly", "cargo", "miri", "--version"])
        .output()
        .context("Miri needs rustup, which cannot be started")?;
    if has.status.success() {
        return Ok(());
    }
    install_nightly("miri,rust-src")
}

/// Installs a toolchain if it is missing.
pub fn install_toolchain(version: &str) -> Result<()> {
    let there = Command::new("rustup").args(["run", version, "cargo", "--version"]).output();
    if there.context("an older Rust needs rustup, which cannot be started")?.status.success() {
        return Ok(());
    }
    println!("  Rust {version}: installing it with rustup");
    let install = ["toolchain", "install", version, "--profile", "minimal"];
    let done = Command::new("rustup").args(install).stdout(Stdio::null()).status()?;
    ensure!(done.success(), "rustup could not install Rust {version}");
    Ok(())
}

/// Installs the nightly toolchain and these components if they are missing.
pub fn install_nightly(components: &str) -> Result<()> {
    let listed = Command::new("rustup")
        .args(["component", "list", "--installed", "--toolchain", "nightly"])
        .output()
        .context("nightly Rust needs rustup, which cannot be started")?;
    let installed = String::from_utf8_lossy(&listed.stdout).into_owned();
    if components.split(',').all(|name| installed.lines().any(|line| line.starts_with(name))) {
        return Ok(());
    }
    println!("  nightly: installing it with rustup, and {components}");
    let install =
        ["toolchain", "install", "nightly", "--profile", "minimal", "--component", components];
    let done = Command::new("rustup").args(install).stdout(Stdio::null()).status()?;
    ensure!(done.success(), "rustup could not install the nightly toolchain with {components}");
    Ok(())
}

/// Returns the command of the nightly toolchain's cargo.
pub fn nightly(root: &Path) -> Command {
    let mut command = Command::new("rustup");
    command.args(["run", "nightly", "cargo"]).current_dir(root);
    command
}

/// Returns the command of the cargo that started this task.
pub fn cargo(root: &Path) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root);
    command
}

/// Runs a `cargo test` command and reads its counts. What cargo itself prints goes to the terminal.
/// Of what the tests print, only failures, ignored tests and the totals of each binary are shown.
pub fn test(name: &str, command: &mut Command) -> Result<Tally> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start cargo")?;
    let mut tally = Tally::default();
    let mut output = String::new();
    for line in BufReader::new(child.stdout.take().context("no output")?).lines() {
        let line = line?;
        if let Some((test, why)) = ignored(&line) {
            tally.skip(test, why);
        }
        if let Some((passed, failed)) = totals(&line) {
            tally.passed += passed;
            tally.failed += failed;
            if passed + failed > 0 {
                println!("  {name}: {line}");
            }
        }
        output.push_str(&line);
        output.push('\n');
    }
    let status = child.wait()?;
    if !status.success() {
        print!("{output}");
        if tally.failed == 0 {
            tally.fail(name, format!("the command ended with {status}"));
        }
    }
    Ok(tally)
}

/// Reads the counts in `test result: ok. 3 passed; 0 failed; ...`.
fn totals(line: &str) -> Option<(usize, usize)> {
    let (_, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let count = |word: &str| {
        let part = counts.split("; ").find(|part| part.ends_with(word))?;
        part.split(' ').next()?.parse().ok()
    };
    Some((count(" passed")?, count(" failed")?))
}

/// Reads name and reason in `test name ... ignored, reason`.
fn ignored(line: &str) -> Option<(&str, &str)> {
    let (test, outcome) = line.strip_prefix("test ")?.split_once(" ... ")?;
    let why = outcome.strip_prefix("ignored")?;
    Some((test, why.strip_prefix(", ").unwrap_or("no reason given")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_from_the_result_line() {
        let line = "test result: FAILED. 12 passed; 3 failed; 1 ignored; \
                    0 measured; 0 filtered out; finished in 0.1s";
        assert_eq!(totals(line), Some((12, 3)));
        assert_eq!(totals("test engine::walk ... ok"), None);
    }

    #[test]
    fn ignored_tests_are_seen_with_their_reason() {
        assert_eq!(
            ignored("test a::b ... ignored, needs a terminal"),
            Some(("a::b", "needs a terminal"))
        );
        assert_eq!(ignored("test a::b ... ignored"), Some(("a::b", "no reason given")));
        assert_eq!(ignored("test a::b ... ok"), None);
    }
}
