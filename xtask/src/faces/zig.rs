//! Tests the Zig package: its own tests and wrong use with each C library, without one and where
//! the engine does not run, and with `--long` the way that users get it.

use super::shared::{fresh, served, text};
use crate::context::Context;
use crate::cross::musl_library;
use crate::packages;
use crate::process::{self, Finished, last_lines};
use crate::tally::Tally;
use anyhow::{Context as _, Result, ensure};
use std::env::consts::ARCH;
use std::fmt::{self, Display, Formatter};
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

/// What programs run on.
struct Target {
    name: &'static str,
    arguments: &'static [&'static str],
    /// The engine's library; none where it does not run.
    library: Option<PathBuf>,
}

/// How to compile programs.
struct Mode<'a> {
    name: &'static str,
    target: &'a Target,
    arguments: &'static [&'static str],
    /// Whether the environment has to ask that every size is checked.
    trusts: bool,
}

const DEBUG: &[&str] = &["-ODebug"];
const SINGLE: &[&str] = &["-ODebug", "-fsingle-threaded"];

/// Zig's own code generator, where there is one, takes a second or two, LLVM half a minute.
const RELEASE: &[&str] =
    if cfg!(target_arch = "x86_64") { &["-OReleaseFast", "-fno-llvm"] } else { &["-OReleaseFast"] };

/// A target where Zig's allocator serves, and whose programs run here without a C library.
const FORWARDED: &[&str] = &["-target", "x86_64-linux-android"];

/// More such targets, and how to compile for them. WebAssembly has no threads.
const OTHERS: [(&str, &str); 7] = [
    ("aarch64-macos", "-fno-single-threaded"),
    ("riscv64-linux-musl", "-fno-single-threaded"),
    ("riscv64-linux-musl", "-fsingle-threaded"),
    ("wasm32-wasi", "-fsingle-threaded"),
    ("x86-linux-musl", "-fno-single-threaded"),
    ("x86_64-windows-gnu", "-fno-single-threaded"),
    ("x86_64-windows-gnu", "-fsingle-threaded"),
];

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
    let library = Some(context.target.join("release/libebbmalloc.a"));
    let glibc = Target { name: "glibc", arguments: &["-lc"], library };
    zig.all(&glibc.mode("debug", DEBUG), &mut tally);
    zig.all(&Mode { trusts: true, ..glibc.mode("release", RELEASE) }, &mut tally);
    zig.package_tests(&glibc.mode("single-threaded", SINGLE), &mut tally);
    match musl_library(context) {
        Ok(folder) => {
            let library = Some(folder.join("libebbmalloc.a"));
            let arguments = &["-target", "x86_64-linux-musl", "-lc"];
            let musl = Target { name: "musl", arguments, library: library.clone() };
            let arguments = &["-target", "x86_64-linux-none"];
            let none = Target { name: "no libc", arguments, library };
            zig.package_tests(&musl.mode("debug", DEBUG), &mut tally);
            zig.package_tests(&musl.mode("single-threaded", SINGLE), &mut tally);
            zig.package_tests(&none.mode("debug", DEBUG), &mut tally);
            zig.all(&none.mode("single-threaded", SINGLE), &mut tally);
        }
        Err(error) => tally.skip("faces/zig musl, and no libc", format!("{error:#}")),
    }
    if cfg!(target_arch = "x86_64") {
        let other = Target { name: "forwarded", arguments: FORWARDED, library: None };
        zig.package_tests(&other.mode("debug", DEBUG), &mut tally);
        zig.package_tests(&other.mode("single-threaded", SINGLE), &mut tally);
    } else {
        tally.skip("faces/zig forwarded", "the target is for x86-64");
    }
    for (target, threads) in OTHERS {
        let result = zig.compiles_for(target, threads);
        tally.count(&format!("faces/zig compiles for {target} {threads}"), result);
    }
    if context.long {
        tally.count("faces/zig fetched by another project", zig.fetched());
        tally.count("faces/zig zig build test", zig.build_test());
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

impl Target {
    fn mode(&self, name: &'static str, arguments: &'static [&'static str]) -> Mode<'_> {
        Mode { name, target: self, arguments, trusts: false }
    }
}

impl Mode<'_> {
    /// A name for a file of this mode.
    fn file(&self, name: &str) -> String {
        format!("{name}-{self}").replace(", ", "-").replace(' ', "-")
    }

    /// The environment in which every size is checked.
    fn checked(&self) -> Option<(&'static str, &'static str)> {
        self.trusts.then_some(("EBB_STATS", "1"))
    }
}

impl Display for Mode<'_> {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        write!(f, "{}, {}", self.target.name, self.name)
    }
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

    /// Runs the tests, the program with options, and the one with errors.
    fn all(&self, mode: &Mode, tally: &mut Tally) {
        self.package_tests(mode, tally);
        tally.count(&format!("faces/zig options in code, {mode}"), self.options(mode));
        match self.compile("build-exe", &self.context.root.join("tests/zig/wrong.zig"), mode) {
            Ok(program) => {
                for (way, message) in WRONG {
                    let result = self.stops(&program, mode, way, message);
                    tally.count(&format!("faces/zig wrong {way}, {mode}"), result);
                }
                let result = self.faults(&program, mode);
                tally.count(&format!("faces/zig wrong access, {mode}"), result);
            }
            Err(error) => tally.count(&format!("faces/zig wrong use, {mode}"), Err(error)),
        }
    }

    /// Runs the tests as usual, and where it is a choice also with every size checked: correct
    /// sizes must pass.
    fn package_tests(&self, mode: &Mode, tally: &mut Tally) {
        let test = || -> Result<()> {
            let program = self.compile("test", &self.context.root.join("zig/tests.zig"), mode)?;
            self.run(&mode.file("tests"), &mut Command::new(&program))?;
            if mode.trusts {
                let mut command = Command::new(&program);
                self.run(&mode.file("tests-checked"), command.envs(mode.checked()))?;
            }
            Ok(())
        };
        tally.count(&format!("faces/zig tests of the package, {mode}"), test());
    }

    /// Compiles a program that uses the package, as `zig build` would. Returns its path.
    fn compile(&self, verb: &str, source: &Path, mode: &Mode) -> Result<PathBuf> {
        let stem = source.file_stem().context("no file name")?.to_string_lossy();
        let program = self.dir.join(mode.file(&stem));
        let mut command = self.compiler(verb, source, mode.target.arguments);
        command
            .args(mode.arguments)
            .args(&mode.target.library)
            .arg(format!("-femit-bin={}", text(&program)));
        if verb == "test" {
            command.arg("--test-no-exec");
        }
        self.run(&mode.file(&format!("{stem}-build")), &mut command)?;
        Ok(program)
    }

    /// The command that compiles a program with the package.
    fn compiler(&self, verb: &str, source: &Path, target: &[&str]) -> Command {
        let module = text(&self.context.root.join("zig/ebbmalloc.zig"));
        let mut command = self.zig();
        command
            .arg(verb)
            .args(target)
            .args(["--dep", "ebbmalloc"])
            .args([format!("-Mroot={}", text(source)), format!("-Mebbmalloc={module}")]);
        command
    }

    /// Checks that the tests compile for a target.
    fn compiles_for(&self, target: &str, threads: &str) -> Result<()> {
        let source = self.context.root.join("zig/tests.zig");
        let mut command = self.compiler("test", &source, &["-target", target]);
        command.args([threads, "-fno-emit-bin"]);
        self.run(&format!("{target}{threads}"), &mut command).map(drop)
    }

    /// The program checks its options itself. The environment tries to change one that is fixed,
    /// and asks for statistics at the end, which must come once.
    fn options(&self, mode: &Mode) -> Result<()> {
        let source = self.context.root.join("tests/zig/options.zig");
        let mut command = Command::new(self.compile("build-exe", &source, mode)?);
        command.envs([("EBB_LIMIT", "0"), ("EBB_STATS", "1")]);
        let run = self.run(&mode.file("options"), &mut command)?;
        let told = "EBB_LIMIT=0 is ignored: the program has fixed this option";
        ensure!(run.stderr.contains(told), "{}", run.describe());
        let statistics = run.stderr.matches("ebbmalloc: live_bytes").count();
        ensure!(statistics == 1, "{statistics} times statistics: {}", run.describe());
        Ok(())
    }

    fn stops(&self, program: &Path, mode: &Mode, way: &str, message: &str) -> Result<()> {
        let mut command = Command::new(program);
        command.arg(way).envs(mode.checked());
        let log = self.dir.join(mode.file(way));
        process::run(&mut command, LIMIT, &log, None)?.ensure_stopped(message)
    }

    /// An access to a freed block faults, and the engine says why before Zig's handler does.
    fn faults(&self, program: &Path, mode: &Mode) -> Result<()> {
        let mut command = Command::new(program);
        command.arg("access").env("EBB_SAMPLE", "1");
        let run = process::run(&mut command, LIMIT, &self.dir.join(mode.file("access")), None)?;
        let told = run.stderr.starts_with("ebbmalloc: use after free: 0x");
        ensure!(told && run.signal().is_some(), "{}", run.describe());
        Ok(())
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
        self.checks_the_standard_library(&project)
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

    /// Runs the package's own `zig build test` for each C library, which must have run every test
    /// with threads and without.
    fn build_test(&self) -> Result<()> {
        let mut tar = Command::new("tar");
        tar.args(["-xzf", &text(&self.archive()?), "-C", &text(&self.dir)]);
        self.run("unpack", &mut tar)?;
        let package = self.dir.join("ebbmalloc");
        let source = fs::read_to_string(package.join("zig/tests.zig"))?;
        let tests = 2 * source.lines().filter(|line| line.starts_with("test \"")).count();
        for libc in ["gnu", "musl", "none"] {
            let mut build = self.zig();
            let target = format!("-Dtarget={ARCH}-linux-{libc}");
            build.args(["build", "test", &target, "--summary", "all"]).current_dir(&package);
            let run = self.run(&format!("build-test-{libc}"), &mut build)?;
            let summary = format!("{tests}/{tests} tests passed");
            ensure!(tests > 0 && run.stderr.contains(&summary), "{}", run.describe());
        }
        Ok(())
    }
}
