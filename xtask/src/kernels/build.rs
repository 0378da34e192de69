//! Builds the programs that run in the machines, for one architecture.

use super::target::Arch;
use crate::compiler::{Object, Way};
use crate::library::Library;
use anyhow::{Context as _, Result, ensure};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Test binaries that work on the real operating system.
const TESTS: [(&str, &[&str]); 2] = [
    ("ebbmalloc-testkit", &["--test", "interrupts", "--test", "moving"]),
    ("ebbmalloc", &["--test", "global"]),
];
/// Test binaries for musl, where threads register themselves; with the engine's unit tests.
const MUSL_TESTS: [(&str, &[&str]); 2] = [
    ("ebbmalloc-testkit", &["--test", "interrupts"]),
    ("ebbmalloc", &["--test", "global", "--lib"]),
];
/// The engine's other tests.
const ENGINE: [(&str, &[&str]); 2] =
    [("ebbmalloc-testkit", &["--test", "engine"]), ("ebbmalloc", &["--lib"])];
/// Suffix of the names of the musl binaries.
pub const MUSL: &str = "_musl";
/// Contract programs with threads, signals and forks, or whose pages move.
const C: [&str; 9] = [
    "migration",
    "stress",
    "signals",
    "fork_threads",
    "thread_exit",
    "unregistered",
    "scavenger",
    "group",
    "moves",
];
/// Name of the contract program `stress` when it is linked statically.
pub const STATIC: &str = "stress_static";

/// Programs by their names in the guest, with their files on this machine.
pub struct Programs {
    pub init: PathBuf,
    pub library: PathBuf,
    pub tests: Vec<String>,
    pub c: Vec<String>,
    /// Why there are no musl binaries, if there are none.
    pub no_musl: Option<String>,
    pub files: Vec<(String, PathBuf)>,
    /// The engine's tests of `--all`, among `files`.
    pub engine: Vec<String>,
    /// Files that lie in the guest where they lie here.
    pub in_place: Vec<PathBuf>,
}

/// Builds all for `arch`; objects of the contract programs go to `work`.
pub fn build(root: &Path, target: &Path, work: &Path, arch: &Arch, all: bool) -> Result<Programs> {
    println!("{}: building the programs", arch.name);
    add_rust_target(arch.rust)?;
    let cargo = Cargo { root, target, rust: arch.rust, compiler: arch.compiler };
    cargo
        .run(&["build", "--release", "-p", "ebbmalloc-capi", "-p", "ebbmalloc-capi-static"], "")?;
    // Its flags would make cargo rebuild everything else, so it gets a directory of its own.
    let apart = Cargo { target: &target.join("guest"), ..cargo };
    let fixed = "-C target-feature=+crt-static";
    let init = apart.executables(&["build", "--release", "-p", "ebbmalloc-guest"], fixed)?;
    let init = init.into_iter().next().context("cargo built no first process")?.1;

    let mut files = cargo.tests(&TESTS)?;
    let tests = files.iter().map(|(name, _)| name.clone()).collect();
    let musl = Cargo { rust: arch.musl, ..cargo };
    let with_musl = add_rust_target(arch.musl).and_then(|()| musl.tests(&MUSL_TESTS));
    let no_musl = with_musl.as_ref().err().map(|error| format!("{error:#}"));
    let with_musl = with_musl.unwrap_or_default().into_iter();
    files.extend(with_musl.map(|(name, file)| (name + MUSL, file)));

    let release = target.join(arch.rust).join("release");
    let library = Library::Ours(release.clone());
    for name in C {
        files.push((name.to_string(), compile(root, work, arch, &library, name, Way::Preload)?));
    }
    files.push((STATIC.to_string(), compile(root, work, arch, &library, "stress", Way::Static)?));
    let more = if all { cargo.tests(&ENGINE)? } else { Vec::new() };
    let engine = more.iter().map(|(name, _)| name.clone()).collect();
    files.extend(more);
    let c = C.map(str::to_string).to_vec();
    let (library, in_place) = (release.join("libebbmalloc.so"), Vec::new());
    Ok(Programs { init, library, tests, c, no_musl, files, engine, in_place })
}

/// Compiles a contract program; with the static library, nothing in it is dynamic.
fn compile(
    root: &Path,
    work: &Path,
    arch: &Arch,
    library: &Library,
    name: &str,
    way: Way,
) -> Result<PathBuf> {
    let dir = work.join(format!("{name}-{}", way.name()));
    fs::create_dir_all(&dir)?;
    let mut compiler = vec![arch.compiler.to_string()];
    if way == Way::Static {
        compiler.push("-static".to_string());
    }
    let source = root.join("tests/c").join(format!("{name}.c"));
    Object::compile(root, &source, &compiler, None, &dir)?.link(library, way)
}

fn add_rust_target(rust: &str) -> Result<()> {
    let done = Command::new("rustup")
        .args(["target", "add", rust])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    // Without rustup the toolchain may still have the target; if not, cargo reports it.
    if let Ok(status) = done {
        ensure!(status.success(), "rustup could not add the target {rust}");
    }
    Ok(())
}

/// The cargo that started this task, for another architecture or C library.
#[derive(Clone, Copy)]
struct Cargo<'a> {
    root: &'a Path,
    target: &'a Path,
    rust: &'a str,
    compiler: &'a str,
}

impl Cargo<'_> {
    fn run(&self, arguments: &[&str], flags: &str) -> Result<String> {
        let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        let linker = self.rust.to_uppercase().replace('-', "_");
        command
            .current_dir(self.root)
            .args(arguments)
            .args(["--quiet", "--target", self.rust, "--message-format=json"])
            .arg("--target-dir")
            .arg(self.target)
            .env(format!("CARGO_TARGET_{linker}_LINKER"), self.compiler)
            .env("RUSTFLAGS", flags)
            .stdin(Stdio::null())
            .stderr(Stdio::inherit());
        let output = command.output().context("cannot start cargo")?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(output.status.success(), "cargo {} failed\n{text}", arguments.join(" "));
        Ok(text)
    }

    /// Builds test binaries: packages, and the arguments that select their tests.
    fn tests(&self, packages: &[(&str, &[&str])]) -> Result<Vec<(String, PathBuf)>> {
        let mut found = Vec::new();
        for (package, tests) in packages {
            let arguments = [&["test", "--no-run", "-p", package], *tests].concat();
            found.extend(self.executables(&arguments, "")?);
        }
        Ok(found)
    }

    /// Returns the executables that cargo made, with the names of their targets.
    fn executables(&self, arguments: &[&str], flags: &str) -> Result<Vec<(String, PathBuf)>> {
        let mut found = Vec::new();
        for line in self.run(arguments, flags)?.lines() {
            let message: serde_json::Value = serde_json::from_str(line)?;
            let name = message["target"]["name"].as_str();
            if let (Some(path), Some(name)) = (message["executable"].as_str(), name) {
                found.push((name.to_string(), PathBuf::from(path)));
            }
        }
        Ok(found)
    }
}
