//! `cargo xtask examples`: builds `examples/extensions` without and with ebbmalloc, and tests that
//! several copies of it work in one process.

use crate::tally::Tally;
use crate::wheel::Environment;
use crate::workspace;
use crate::{cargo, on_disk, process, unittest};
use anyhow::{Context as _, Result, ensure};
use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(900);

/// Maximum in KiB by which an extension may grow on disk: a tenth above the last measurement
/// (docs/extensions.md).
const GROWTH: u64 = 115;

#[derive(clap::Args)]
pub struct Args {
    /// Then measure what ebbmalloc costs and brings them, this many rounds (docs/extensions.md)
    #[arg(long, value_name = "ROUNDS", num_args = 0..=1, default_missing_value = "7")]
    measure: Option<u32>,
}

/// Returns whether every test passed.
pub fn run(args: &Args) -> Result<bool> {
    let root = workspace::root()?;
    let target = workspace::target(&root);
    let source = root.join("examples/extensions");
    let built = target.join("extensions");
    let mut tally = Tally::default();
    if let Err(error) = fetch(&source, &built) {
        tally.skip("examples", format!("{error:#}"));
        println!("{tally}");
        return Ok(true);
    }
    cargo::build_release(&root)?;
    // Without ebbmalloc the crate forwards to the system's allocator, as on other targets.
    build(&source, &built, "without", "--cfg ebbmalloc_forward")?;
    build(&source, &built, "with", "")?;
    for name in ["words_python.so", "words_node.node", "followers"] {
        tally.count(&format!("examples {name}"), grown(&built, name));
    }
    tally.count("examples: who uses the library", consumers(&source, &built));
    for target in ["aarch64-apple-darwin", "x86_64-pc-windows-msvc"] {
        let title = format!("examples for {target}");
        match cargo::add_target(target) {
            Ok(()) => tally.count(&title, elsewhere(&source, &built, target)),
            Err(why) => tally.skip(&title, format!("{why:#}")),
        }
    }
    match maturin(&built) {
        Ok(maturin) => tally.count("examples maturin", wheel(&maturin, &source, &built)),
        Err(error) => tally.skip("examples maturin", format!("{error:#}")),
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

/// Checks that an extension grows by at most `GROWTH` with ebbmalloc.
fn grown(built: &Path, name: &str) -> Result<()> {
    let bytes =
        |variant| Ok::<_, anyhow::Error>(fs::metadata(built.join(variant).join(name))?.len());
    on_disk::ensure_growth(bytes("without")?, bytes("with")?, GROWTH)
}

/// Checks that a package that depends on the library gets no allocator with it.
fn consumers(source: &Path, built: &Path) -> Result<()> {
    let tree = tree(source, built, &["--package", "words"])?;
    ensure!(tree.starts_with("words ") && !tree.contains("ebbmalloc"), "words brings:\n{tree}");
    Ok(())
}

/// Checks that the Python extension compiles where the system's allocator serves.
fn elsewhere(source: &Path, built: &Path, target: &str) -> Result<()> {
    let mut check = cargo_in(source, built);
    check.args(["check", "--locked", "--package", "words-python", "--target", target]);
    let run = process::run(&mut check, LIMIT, &built.join(target), None)?;
    ensure!(run.success(), "{}", run.describe());
    Ok(())
}

/// Returns what cargo builds for a package, without development dependencies.
fn tree(source: &Path, built: &Path, arguments: &[&str]) -> Result<String> {
    let mut tree = cargo_in(source, built);
    tree.args(["tree", "--locked", "--edges", "normal", "--prefix", "none"]).args(arguments);
    let output = tree.output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

/// Makes a Python environment with maturin from PyPI.
fn maturin(built: &Path) -> Result<Environment> {
    let home = built.join("maturin");
    if home.join("bin/maturin").exists() {
        return Ok(Environment::at(&home));
    }
    let environment = Environment::new(Path::new("python3"), &home)?;
    environment.pip(&["install", "maturin>=1.9"])?;
    Ok(environment)
}

/// Checks that the wheel that `maturin build` makes can be installed and runs on ebbmalloc.
fn wheel(maturin: &Environment, source: &Path, built: &Path) -> Result<()> {
    let wheels = built.join("wheels");
    let mut build = maturin.command("maturin");
    build.args(["build", "--release", "--locked", "--out"]).arg(&wheels);
    build.current_dir(source.join("python")).env("CARGO_TARGET_DIR", built).env("RUSTFLAGS", "");
    let made = process::run(&mut build, LIMIT, &built.join("wheel"), None)?;
    ensure!(made.success(), "{}", made.describe());
    let wheels = wheels.to_string_lossy();
    maturin.pip(&[
        "install",
        "--no-index",
        "--force-reinstall",
        "--find-links",
        &wheels,
        "words-python",
    ])?;
    let uses = "import words_python as w; print(len(w.followers(w.sample(3000))) > 1000)";
    let mut python = maturin.command("python");
    let python = python.args(["-c", uses]).env("EBB_STATS", "1");
    let used = process::run(python, LIMIT, &built.join("wheel"), None)?;
    ensure!(used.success() && used.stdout == "True\n", "{}", used.describe());
    ensure!(used.stderr.contains("ebbmalloc's feature `stats`"), "no ebbmalloc: {}", used.stderr);
    Ok(())
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

/// Builds all three, and copies them into a folder under the names that Python and Node expect.
fn build(source: &Path, built: &Path, variant: &str, flags: &str) -> Result<()> {
    let folder = built.join(variant);
    fs::create_dir_all(&folder)?;
    let mut build = cargo_in(source, built);
    let status = build.args(["build", "--release", "--locked"]).env("RUSTFLAGS", flags).status()?;
    ensure!(status.success(), "building the extensions failed");
    for (from, to) in
        [("libwords_python.so", "words_python.so"), ("libwords_node.so", "words_node.node")]
    {
        fs::copy(built.join("release").join(from), folder.join(to)).context(from)?;
    }
    let bench = ["bench", "--locked", "--package", "words", "--no-run", "--message-format=json"];
    let output = cargo_in(source, built).args(bench).env("RUSTFLAGS", flags).output()?;
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
    // The user's compiler does not get this repository's flags.
    command.current_dir(source).env("CARGO_TARGET_DIR", built).env("RUSTFLAGS", "");
    command
}
