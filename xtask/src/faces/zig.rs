//! Tests the Zig package: its own tests, wrong use, and with `--long` the way that users get it.

use super::shared::{fresh, served, text};
use crate::context::Context;
use crate::process::{self, Finished, last_lines};
use crate::tally::Tally;
use crate::{packages, process::run as run_program};
use anyhow::{Context as _, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The version that the benchmarks use (`bench/suite/src/workloads/zig.rs`).
const VERSION: &str = "0.17.1";

/// `zig build` compiles its own build system first, which takes minutes once.
const LIMIT: Duration = Duration::from_secs(900);

/// Errors that `tests/zig/wrong.zig` makes, and how the one line about each begins.
const WRONG: [(&str, &str); 4] = [
    ("size", "ebbmalloc: wrong size: 0x"),
    ("twice", "ebbmalloc: double free: 0x"),
    ("foreign", "ebbmalloc: invalid free: 0x"),
    ("resize", "ebbmalloc: double free: 0x"),
];

/// How to compile a program, and the environment in which every size is checked.
struct Mode {
    name: &'static str,
    arguments: &'static [&'static str],
    checked: Option<(&'static str, &'static str)>,
}

const DEBUG: Mode = Mode { name: "debug", arguments: &["-ODebug"], checked: None };

/// Zig's own code generator, where there is one, takes a second or two, LLVM half a minute.
const RELEASE: Mode = Mode {
    name: "release",
    arguments: if cfg!(target_arch = "x86_64") {
        &["-OReleaseFast", "-fno-llvm"]
    } else {
        &["-OReleaseFast"]
    },
    checked: Some(("EBB_STATS", "1")),
};

pub fn run(context: &Context) -> Result<Tally> {
    let mut tally = Tally::default();
    let dir = fresh(context, "zig")?;
    let zig = match Zig::install(context, dir) {
        Ok(zig) => zig,
        Err(error) => {
            tally.skip("faces/zig", format!("{error:#}"));
            return Ok(tally);
        }
    };
    let mut count =
        |test: &str, result: Result<()>| tally.count(&format!("faces/zig {test}"), result);
    for mode in [DEBUG, RELEASE] {
        count(&format!("tests of the package, {}", mode.name), zig.package_tests(&mode));
        count(&format!("options in code, {}", mode.name), zig.options(&mode));
        match zig.compile("build-exe", &context.root.join("tests/zig/wrong.zig"), &mode) {
            Ok(program) => {
                for (way, message) in WRONG {
                    let test = format!("wrong {way}, {}", mode.name);
                    count(&test, zig.stops(&program, &mode, way, message));
                }
            }
            Err(error) => count(&format!("wrong use, {}", mode.name), Err(error)),
        }
    }
    if context.long {
        count("fetched by another project", zig.fetched());
        count("zig build test", zig.build_test());
    } else {
        for test in ["fetched by another project", "zig build test"] {
            tally.skip(
                &format!("faces/zig {test}"),
                "`zig build` compiles its own build system first, which takes minutes; \
                 --long runs it",
            );
        }
    }
    Ok(tally)
}

struct Zig<'a> {
    context: &'a Context,
    program: PathBuf,
    dir: PathBuf,
}

impl<'a> Zig<'a> {
    /// Installs Zig from PyPI, unless that was done before.
    fn install(context: &'a Context, dir: PathBuf) -> Result<Self> {
        let wanted = ["python3", "python3-venv"].map(str::to_string);
        if let Some(package) = packages::missing(&wanted) {
            anyhow::bail!("package {package} is not installed");
        }
        let home = context.work.join(format!("zig-{VERSION}"));
        let python = home.join("bin/python");
        let where_is = "import os, ziglang; print(os.path.dirname(ziglang.__file__))";
        let find = || Command::new(&python).args(["-c", where_is]).output();
        let mut found = find();
        if !found.as_ref().is_ok_and(|output| output.status.success()) {
            println!("  faces/zig: installing Zig {VERSION} from PyPI");
            let venv = Command::new("/usr/bin/python3").args(["-m", "venv"]).arg(&home).output()?;
            ensure!(venv.status.success(), "python3 -m venv: {}", venv.status);
            let package = format!("ziglang=={VERSION}");
            let pip = Command::new(&python)
                .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", &package])
                .output()?;
            let said = String::from_utf8_lossy(&pip.stderr);
            ensure!(
                pip.status.success(),
                "pip cannot install {package}:\n{}",
                last_lines(&said, 2)
            );
            found = find();
        }
        let folder = String::from_utf8(found?.stdout)?;
        Ok(Self { context, program: Path::new(folder.trim()).join("zig"), dir })
    }

    fn zig(&self) -> Command {
        let mut command = Command::new(&self.program);
        // The global cache stays between runs, as Zig itself does it.
        command
            .env("ZIG_GLOBAL_CACHE_DIR", self.context.work.join("zig-cache"))
            .env("ZIG_LOCAL_CACHE_DIR", self.dir.join("cache"));
        command
    }

    fn run(&self, name: &str, command: &mut Command) -> Result<Finished> {
        let run = process::run(command, LIMIT, &self.dir.join(name), None)?;
        ensure!(run.success(), "{}\n{}", run.describe(), last_lines(&run.stdout, 12));
        Ok(run)
    }

    /// Compiles a program that uses the package, as `zig build` would. Returns its path.
    fn compile(&self, verb: &str, source: &Path, mode: &Mode) -> Result<PathBuf> {
        let stem = source.file_stem().context("no file name")?.to_string_lossy();
        let name = format!("{stem}-{}", mode.name);
        let program = self.dir.join(&name);
        let module = text(&self.context.root.join("zig/ebbmalloc.zig"));
        let mut command = self.zig();
        command
            .args([verb, "-lc"])
            .args(mode.arguments)
            .args(["--dep", "ebbmalloc"])
            .args([format!("-Mroot={}", text(source)), format!("-Mebbmalloc={module}")])
            .arg(self.context.target.join("release/libebbmalloc.a"))
            .arg(format!("-femit-bin={}", text(&program)));
        if verb == "test" {
            command.arg("--test-no-exec");
        }
        self.run(&format!("{name}-build"), &mut command)?;
        Ok(program)
    }

    /// Runs the tests as usual, and where it is a choice also with every size checked: correct
    /// sizes must pass.
    fn package_tests(&self, mode: &Mode) -> Result<()> {
        let program = self.compile("test", &self.context.root.join("zig/tests.zig"), mode)?;
        let name = format!("tests-{}", mode.name);
        self.run(&name, &mut Command::new(&program))?;
        if let Some((option, value)) = mode.checked {
            let mut command = Command::new(&program);
            let run = self.run(&format!("{name}-checked"), command.env(option, value))?;
            ensure!(run.stderr.contains("ebbmalloc: 0."), "no statistics: {}", run.describe());
        }
        Ok(())
    }

    /// The program checks its options itself. The environment tries to change one that is fixed.
    fn options(&self, mode: &Mode) -> Result<()> {
        let source = self.context.root.join("tests/zig/options.zig");
        let program = self.compile("build-exe", &source, mode)?;
        let name = format!("options-{}", mode.name);
        let run = self.run(&name, Command::new(&program).env("EBB_LIMIT", "0"))?;
        let told = "EBB_LIMIT=0 is ignored: the program has fixed this option";
        ensure!(run.stderr.contains(told), "{}", run.describe());
        Ok(())
    }

    fn stops(&self, program: &Path, mode: &Mode, way: &str, message: &str) -> Result<()> {
        let mut command = Command::new(program);
        command.arg(way).envs(mode.checked);
        let log = self.dir.join(format!("{way}-{}", mode.name));
        run_program(&mut command, LIMIT, &log, None)?.ensure_stopped(message)
    }

    /// Tests another project: `zig fetch --save`, then its build, in which cargo makes the library.
    fn fetched(&self) -> Result<()> {
        let project = self.dir.join("project");
        fs::create_dir(&project)?;
        for file in ["build.zig", "build.zig.zon", "main.zig"] {
            fs::copy(self.context.root.join("examples/zig").join(file), project.join(file))?;
        }
        let manifest = project.join("build.zig.zon");
        let empty = fs::read_to_string(&manifest)?
            .replace(".{ .ebbmalloc = .{ .path = \"../..\" } }", ".{}");
        ensure!(!empty.contains("../.."), "the example's build.zig.zon is not as expected");
        fs::write(&manifest, empty)?;
        let archive = self.archive()?;
        let mut fetch = self.zig();
        fetch
            .args(["fetch", "--save=ebbmalloc", &format!("file://{}", text(&archive))])
            .current_dir(&project);
        self.run("fetch", &mut fetch)?;
        let run = self.run("build", self.zig().args(["build", "run"]).current_dir(&project))?;
        ensure!(served(&run.stdout, 1), "{}", last_lines(&run.stdout, 12));
        self.checks_the_standard_library(&project)?;
        self.refuses_other_systems(&project)
    }

    /// Runs Zig's own parser and AST lowering on all files of its standard library, by two threads.
    /// The check sum must be that of Zig's own allocator.
    fn checks_the_standard_library(&self, project: &Path) -> Result<()> {
        let sources = self.context.root.join("bench/zig");
        fs::copy(sources.join("ast_check.zig"), project.join("ast_check.zig"))?;
        fs::copy(sources.join("ast_check_ebb.zig"), project.join("main.zig"))?;
        self.run("ast-check-build", self.zig().arg("build").current_dir(project))?;
        let library = self.program.parent().context("zig lies in no folder")?.join("lib/std");
        let check = |allocator: &str, sum: &str| {
            let mut program = Command::new(project.join("zig-out/bin/example"));
            program.args([allocator, "2", "1", "keep", sum]).arg(&library).env("EBB_STATS", "json");
            process::run(&mut program, LIMIT, &self.dir.join("ast-check"), None)
        };
        // The program prints a wrong sum and the right one.
        let told = check("smp", "0")?;
        let sum = told.stderr.split(' ').nth(1).unwrap_or_default();
        ensure!(sum.parse().is_ok_and(|sum: u64| sum > 1_000_000), "{}", told.describe());
        let run = check("ebb", sum)?;
        ensure!(run.success(), "{}", run.describe());
        let stats: serde_json::Value = serde_json::from_str(run.stderr.trim_end())?;
        let allocated = stats["allocated_bytes"].as_u64().unwrap_or(0);
        ensure!(allocated > 10 << 20, "{allocated} bytes from ebbmalloc");
        Ok(())
    }

    /// Makes the archive that a server would send: the last commit.
    fn archive(&self) -> Result<PathBuf> {
        let archive = self.dir.join("ebbmalloc.tar.gz");
        let mut git = Command::new("git");
        git.args(["archive", "--prefix=ebbmalloc/", "-o", &text(&archive), "HEAD"]);
        self.run("archive", git.current_dir(&self.context.root))?;
        Ok(archive)
    }

    /// Runs the package's own `zig build test`, which must have run every test.
    fn build_test(&self) -> Result<()> {
        let mut tar = Command::new("tar");
        tar.args(["-xzf", &text(&self.archive()?), "-C", &text(&self.dir)]);
        self.run("unpack", &mut tar)?;
        let package = self.dir.join("ebbmalloc");
        let mut build = self.zig();
        build.args(["build", "test", "--summary", "all"]).current_dir(&package);
        let run = self.run("build-test", &mut build)?;
        let source = fs::read_to_string(package.join("zig/tests.zig"))?;
        let tests = source.lines().filter(|line| line.starts_with("test \"")).count();
        let summary = format!("{tests}/{tests} tests passed");
        ensure!(tests > 0 && run.stderr.contains(&summary), "{}", run.describe());
        Ok(())
    }

    fn refuses_other_systems(&self, project: &Path) -> Result<()> {
        let mut build = self.zig();
        build.args(["build", "-Dtarget=x86_64-linux-musl"]).current_dir(project);
        let run = process::run(&mut build, LIMIT, &self.dir.join("musl"), None)?;
        let message = "ebbmalloc is for Linux with glibc, not for linux-musl";
        ensure!(!run.success() && run.stderr.contains(message), "{}", run.describe());
        Ok(())
    }
}
