//! `cargo xtask wheel` makes the Python wheel. The step `wheel` installs it as a user would, and
//! runs `python/tests`.

use crate::context::Context;
use crate::install::Tree;
use crate::process;
use crate::tally::Tally;
use crate::workspace;
use crate::{cargo, packages, unittest};
use anyhow::{Context as _, Result, bail, ensure};
use std::collections::BTreeSet;
use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Debian's Python, which the step `programs` uses too.
const PYTHON: &str = "/usr/bin/python3";
/// Packages that the tests use if they can be installed; many programs use them.
const USED: [&str; 4] = ["numpy", "pandas", "mypy", "gunicorn"];
const LIMIT: Duration = Duration::from_secs(900);

/// Returns the packages that the step needs, also for the program that contains Python and for an
/// installed tree.
pub fn packages() -> BTreeSet<String> {
    ["python3-venv", "python3-dev", "gcc", "libc6-dev", "binutils"].map(str::to_string).into()
}

#[derive(clap::Args)]
pub struct Args {
    /// Make one for each target, by cargo-zigbuild from PyPI, such as x86_64-unknown-linux-gnu.2.17
    /// (with the oldest glibc) or aarch64-unknown-linux-musl; `all` are these two on both machines
    #[arg(long, value_delimiter = ',', value_name = "TARGETS")]
    target: Vec<String>,
}

/// What `--target all` stands for: glibc 2.17 (manylinux2014) and musl.
const ALL: [&str; 4] = [
    "x86_64-unknown-linux-gnu.2.17",
    "aarch64-unknown-linux-gnu.2.17",
    "x86_64-unknown-linux-musl",
    "aarch64-unknown-linux-musl",
];

/// Makes wheels and prints their paths.
pub fn make(args: &Args) -> Result<bool> {
    let root = workspace::root()?;
    let work = workspace::target(&root).join("wheel");
    let tools = Tools::new(Path::new("python3"), &work)?;
    let targets: Vec<&str> = match &args.target[..] {
        [] => {
            println!("{}", tools.wheel(&root, "", Path::new(""))?.display());
            return Ok(true);
        }
        [all] if all == "all" => ALL.to_vec(),
        named => named.iter().map(String::as_str).collect(),
    };
    tools.0.pip(&["install", "cargo-zigbuild", "ziglang"])?;
    for target in targets {
        let (triple, _) = target.split_once('.').unwrap_or((target, ""));
        cargo::add_target(triple)?;
        println!("{}", tools.wheel(&root, target, Path::new(""))?.display());
    }
    Ok(true)
}

pub fn test(context: &Context) -> Result<Tally> {
    let mut tally = Tally::default();
    if !context.library.is_ours() {
        tally.skip("wheel", "it holds ebbmalloc only");
        return Ok(tally);
    }
    if let Some(package) = packages::missing(&packages()) {
        tally.skip("wheel", format!("package {package} is not installed"));
        return Ok(tally);
    }
    let work = context.work.join("wheel");
    let tools = match Tools::new(Path::new(PYTHON), &work) {
        Ok(tools) => tools,
        Err(error) => {
            tally.skip("wheel", format!("no build tools from PyPI: {error:#}"));
            return Ok(tally);
        }
    };
    let command = cargo::build_command(context)?;
    if !context.long {
        tally.skip("wheel: the command with all optimizations", "takes minutes; with --long");
    }
    let wheel = tools.wheel(&context.root, "", &command)?;
    let user = Environment::new(Path::new(PYTHON), &work.join("user"))?;
    user.pip(&["install", "--no-index", &wheel.to_string_lossy()])?;
    // If this fails, the tests that need these packages are skipped and say so.
    let used = user.pip(&[&["install", "--only-binary=:all:"], &USED[..]].concat());
    if let Err(error) = used {
        println!("  wheel: {error:#}");
    }
    // The program that contains Python is linked against a tree that `cargo xtask install` makes.
    let tree = Tree::new(&work.join("prefix"), Path::new("lib"), None)?;
    tree.install(&context.root, &context.target, &command)?;
    let mut command = user.command("python");
    command
        .args(["-m", "unittest", "-v"])
        .current_dir(context.root.join("python/tests"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("EBB_TEST_PREFIX", &tree.prefix);
    let run = process::run(&mut command, LIMIT, &work.join("tests"), None)?;
    unittest::count(&run, &mut tally);
    Ok(tally)
}

/// An environment with the tools that build wheels.
struct Tools(Environment);

impl Tools {
    fn new(python: &Path, work: &Path) -> Result<Tools> {
        let tools = Environment::new(python, &work.join("tools"))?;
        tools.pip(&["install", "hatchling>=1.24"])?;
        Ok(Tools(tools))
    }

    /// Builds the wheel for a target, or for this machine, alone in a folder. It builds the command
    /// too, unless the path of one is given.
    fn wheel(&self, root: &Path, target: &str, command: &Path) -> Result<PathBuf> {
        let folder = self.0.folder.with_file_name(format!("dist{target}"));
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        let source = root.join("python");
        let words = [
            "wheel",
            "--no-deps",
            "--no-build-isolation",
            "--wheel-dir",
            &folder.to_string_lossy(),
            &source.to_string_lossy(),
        ];
        let settings =
            [("EBB_WHEEL_TARGET", OsStr::new(target)), ("EBB_WHEEL_COMMAND", command.as_os_str())];
        self.0.pip_with(&settings, &words)?;
        let mut made = fs::read_dir(&folder)?;
        let Some(wheel) = made.next() else { bail!("no wheel in {}", folder.display()) };
        Ok(wheel?.path())
    }
}

/// A virtual environment.
pub struct Environment {
    folder: PathBuf,
}

impl Environment {
    /// Makes a fresh one.
    pub fn new(python: &Path, folder: &Path) -> Result<Environment> {
        fs::create_dir_all(folder)?;
        let environment = Environment::at(folder);
        let mut command = Command::new(python);
        command.args(["-m", "venv", "--clear"]).arg(folder);
        environment
            .run(command)
            .context("python3 -m venv (Debian: apt-get install python3-venv)")?;
        Ok(environment)
    }

    /// Returns one that exists already.
    pub fn at(folder: &Path) -> Environment {
        Environment { folder: folder.to_path_buf() }
    }

    pub fn pip(&self, arguments: &[&str]) -> Result<()> {
        self.pip_with(&[], arguments)
    }

    /// Runs pip, with settings of `python/hatch_build.py`, by which it builds wheels.
    fn pip_with(&self, settings: &[(&str, &OsStr)], arguments: &[&str]) -> Result<()> {
        let mut command = self.command("python");
        command.args(["-m", "pip", "--disable-pip-version-check", "--quiet"]).args(arguments);
        command.env("CARGO", env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        let path = env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}/bin:{path}", self.folder.display()));
        command.envs(settings.iter().copied());
        self.run(command).with_context(|| format!("pip {}", arguments.join(" ")))
    }

    pub fn command(&self, program: &str) -> Command {
        Command::new(self.folder.join("bin").join(program))
    }

    fn run(&self, mut command: Command) -> Result<()> {
        let run = process::run(&mut command, LIMIT, &self.folder.with_extension("log"), None)?;
        ensure!(run.success(), "{}", run.describe());
        Ok(())
    }
}
