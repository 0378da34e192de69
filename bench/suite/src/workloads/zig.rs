//! Cases with Zig's own front end, in process: parses and lowers Zig's standard library on a
//! `std.mem.Allocator`. That is Zig's `SmpAllocator`, the C library's functions (any peer), or
//! ebbmalloc by its package for Zig (`zig/`).

use std::ffi::{OsStr, OsString};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::case::{Case, Job, Kind};
use crate::kit::{self, Kit};

const VERSION: &str = "0.17.1";

/// AST nodes and ZIR instructions of this version's standard library, by which the program checks
/// itself.
const SUM: &str = "3502735";

pub fn cases(kit: &Kit) -> Result<Vec<Case>> {
    let zig = Zig::install(kit)?;
    let library = kit.library.as_os_str();
    let build = ["build-exe", "-OReleaseFast"];
    let plain = zig.make(kit, &kit.source("zig/ast_check.zig"), &build, None)?;
    // Tested first: a lost or truncated block would falsify the figures.
    zig.make(kit, &kit.repository.join("zig/tests.zig"), &["test"], Some(library))?;
    let with_ebb = zig.make(kit, &kit.source("zig/ast_check_ebb.zig"), &build, Some(library))?;

    let load = |threads: u32, frees: &str| {
        // As many rounds as threads: about a second on any number of CPUs.
        let count = threads.to_string();
        let arguments = [count.clone(), count, frees.into(), SUM.into()];
        arguments.map(OsString::from).into_iter().chain([zig.standard_library().into()])
    };
    let as_usual = |name: &str, about: &str, threads, frees| {
        let job = |program: &PathBuf, allocator: &str| {
            Job::new(program).arg(allocator).args(load(threads, frees))
        };
        let c = job(&plain, "c");
        let smp = job(&plain, "smp").built_in();
        let ebb = job(&with_ebb, "ebb").built_in();
        Case::chosen(format!("zig/{name}"), about, move |allocator| {
            Ok(match allocator.kind {
                Kind::Guest => smp.clone(),
                Kind::Ours | Kind::OurCare => ebb.clone(),
                Kind::Peer | Kind::OurMode | Kind::Before => c.clone(),
            })
        })
        .ours_built_in()
        .guest("zig-smp", format!("std.heap.smp_allocator of Zig {VERSION}"))
    };
    let by_c = |name: &str, about: &str, threads, frees| {
        let job = Job::new(&plain).arg("c").args(load(threads, frees));
        Case::new(format!("zig/{name}"), about, job)
    };
    let all = kit.cpus;
    Ok(vec![
        as_usual("ast-check-1", "parse, lower and drop each file, 1 thread", 1, "drop"),
        as_usual("ast-check-all", "the same, a thread for each CPU", all, "drop"),
        as_usual("lower-1", "the same, but keep the ZIR of all, 1 thread", 1, "keep").quick(),
        as_usual("lower-all", "the same, a thread for each CPU", all, "keep"),
        by_c("ast-check-1-c", "ast-check-1, all through malloc", 1, "drop"),
        by_c("lower-all-c", "lower-all, all through malloc", all, "keep"),
    ])
}

/// The directory of a Zig from PyPI.
struct Zig(PathBuf);

impl Zig {
    fn install(kit: &Kit) -> Result<Self> {
        let python = kit.python("zig", &[&format!("ziglang=={VERSION}")])?;
        let script = "import os, ziglang; print(os.path.dirname(ziglang.__file__))";
        let home = kit.output_of(&python, &["-c", script])?;
        Ok(Self(home.trim().into()))
    }

    fn standard_library(&self) -> PathBuf {
        self.0.join("lib/std")
    }

    /// Runs a command of Zig on a source file, with ebbmalloc's package if its library is given.
    /// Does nothing if the result exists and nothing has changed since: Zig itself would build
    /// again. Returns the built program.
    fn make(
        &self,
        kit: &Kit,
        source: &Path,
        command: &[&str],
        library: Option<&OsStr>,
    ) -> Result<PathBuf> {
        let package = kit.repository.join("zig");
        let stem = source.file_stem().context("a source file")?.to_string_lossy();
        let made_of = digest(&[&kit.source("zig"), &package], &(command, library))?;
        kit.once(&format!("zig-{stem}-{made_of:016x}"), |to| {
            let cache = kit.work.join("zig-cache");
            let mut zig = Command::new(self.0.join("zig"));
            zig.args(command).args(["-lc", "--name", &stem]);
            if let Some(library) = library {
                let module = package.join("ebbmalloc.zig");
                zig.args(["--dep", "ebbmalloc"]).arg(format!("-Mroot={}", source.display()));
                // Options such as `-OReleaseFast` apply to one module, so they are repeated.
                zig.args(&command[1..]);
                zig.arg(format!("-Mebbmalloc={}", module.display())).arg(library);
            } else {
                zig.arg(source);
            }
            kit::run(
                zig.arg(format!("-femit-bin={}", to.display()))
                    .env("ZIG_LOCAL_CACHE_DIR", &cache)
                    .env("ZIG_GLOBAL_CACHE_DIR", &cache),
            )
        })
    }
}

/// Returns a digest of what a program is made of: sources, commands, compiler.
fn digest(directories: &[&Path], what: &impl Hash) -> Result<u64> {
    let mut hasher = DefaultHasher::new();
    (VERSION, what).hash(&mut hasher);
    for directory in directories {
        let entries = fs::read_dir(directory).with_context(|| directory.display().to_string())?;
        let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
        paths.sort();
        for path in paths {
            fs::read(path)?.hash(&mut hasher);
        }
    }
    Ok(hasher.finish())
}
