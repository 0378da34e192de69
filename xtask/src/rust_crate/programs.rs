//! Tests users' programs, which must run on ebbmalloc, or be stopped by it.

use super::{HELLO, Outcome, User, VERSION, dependency};
use crate::cargo;
use crate::context::Context;
use crate::process::{self, last_lines};
use anyhow::{Context as _, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Dependencies of the programs with containers, from crates.io.
const CONTAINERS: &str = r#"allocator-api2 = "0.2"
hashbrown = "0.17"
bump-scope = { version = "2", features = ["allocator-api2-02"] }
"#;

/// Minor version of Rust in which the standard library's `Allocator` became stable: 1.100.
const STD_ALLOCATOR: u32 = 100;

/// Errors that `tests/crate/wrong.rs` makes, and how the one line about each begins.
const WRONG: [(&str, &str); 5] = [
    ("size", "ebbmalloc: wrong size: 0x"),
    ("large size", "ebbmalloc: wrong size: 0x"),
    ("twice", "ebbmalloc: double free: 0x"),
    ("interior", "ebbmalloc: interior pointer: 0x"),
    ("foreign", "ebbmalloc: invalid free: 0x"),
];

/// Version of ripgrep, a well-known real program.
const RIPGREP: &str = "14.1.1";

impl User {
    /// Builds and runs a program, which must print hello and be served by ebbmalloc.
    fn runs(&self, name: &str, project: &Path) -> Result<Outcome> {
        self.run(name, &mut self.cargo(project, "build"))?;
        self.says_hello(name)
    }

    fn says_hello(&self, name: &str) -> Result<Outcome> {
        let run = self.run(name, Command::new(self.built(name)).env("EBB_STATS", "json"))?;
        ensure!(run.stdout == "Hello, world!\n", "it printed {:?}", run.stdout);
        ensure!(served(&run.stderr), "not served by ebbmalloc: {}", run.describe());
        Ok(Outcome::Passed)
    }

    fn built(&self, name: &str) -> PathBuf {
        self.target.join("debug").join(name)
    }

    pub(super) fn hello(&self) -> Result<Outcome> {
        self.runs("hello", &self.program("hello", &dependency(""), HELLO)?)
    }

    pub(super) fn containers(&self, context: &Context) -> Result<Outcome> {
        let from = dependency(", features = [\"allocator-api2\"]") + CONTAINERS;
        let main = fs::read_to_string(context.root.join("tests/crate/containers.rs"))?;
        let project = self.program("containers", &from, &main)?;
        let fetched = self.try_run("fetch", &mut self.cargo(&project, "fetch"))?;
        if !fetched.success() {
            return Ok(no_crates(&fetched));
        }
        self.runs("containers", &project)
    }

    /// Tests the trait that is stable since Rust 1.100, by nightly Rust: the Rust that builds the
    /// rest may be older.
    pub(super) fn std_containers(&self, context: &Context) -> Result<Outcome> {
        self.with_nightly(context, "std_containers", "allocator-api")
    }

    /// Tests an interface that is not stable yet and may change at any time.
    pub(super) fn nightly_containers(&self, context: &Context) -> Result<Outcome> {
        self.with_nightly(context, "nightly_containers", "nightly")
    }

    fn with_nightly(&self, context: &Context, name: &str, feature: &str) -> Result<Outcome> {
        if let Err(why) = cargo::install_nightly("rust-src") {
            return Ok(Outcome::Skipped(format!("{why:#}")));
        }
        let from = dependency(&format!(", features = [\"{feature}\"]"));
        let main = fs::read_to_string(context.root.join(format!("tests/crate/{name}.rs")))?;
        let project = self.program(name, &from, &main)?;
        let version = self.run("nightly", cargo::nightly(&project).arg("--version"))?.stdout;
        if minor(&version).is_none_or(|minor| minor < STD_ALLOCATOR) {
            let version = version.trim_end();
            return Ok(Outcome::Skipped(format!("needs Rust 1.{STD_ALLOCATOR}: {version}")));
        }
        let mut build = cargo::nightly(&project);
        build.arg("build").env("CARGO_TARGET_DIR", &self.target);
        let built = self.try_run(name, build.env("CARGO_PROFILE_DEV_DEBUG", "0"))?;
        // The names of unstable features change.
        if let Some(unknown) = built.stderr.lines().find(|line| line.starts_with("error[E0635]")) {
            return Ok(Outcome::Skipped(format!("{}: {unknown}", version.trim_end())));
        }
        ensure!(built.success(), "{}\n{}", built.describe(), last_lines(&built.stderr, 12));
        self.says_hello(name)
    }

    /// Checks that a program as `cargo build` makes it stops wrong use with one line.
    pub(super) fn stops(&self, context: &Context) -> Result<Outcome> {
        let main = fs::read_to_string(context.root.join("tests/crate/wrong.rs"))?;
        self.runs("wrong", &self.program("wrong", &dependency(""), &main)?)?;
        for (way, message) in WRONG {
            let run = self.try_run("wrong", Command::new(self.built("wrong")).arg(way))?;
            run.ensure_stopped(message).with_context(|| way.to_string())?;
        }
        Ok(Outcome::Passed)
    }

    /// Tests another project's program with the README's two lines: it must find all lines, with
    /// several threads.
    pub(super) fn ripgrep(&self) -> Result<Outcome> {
        let from = format!("[dependencies]\nripgrep = \"={RIPGREP}\"\n");
        let project = self.program("of-ripgrep", &from, HELLO)?;
        let vendor = ["--quiet", "--versioned-dirs", "vendor"];
        let fetched = self.try_run("fetch", self.cargo(&project, "vendor").args(vendor))?;
        if !fetched.success() {
            return Ok(no_crates(&fetched));
        }
        let source = project.join(format!("vendor/ripgrep-{RIPGREP}"));
        let project = self.dir.join("ripgrep");
        fs::rename(source, &project)?;
        append(
            &project.join("Cargo.toml"),
            &format!(
                "\n[dependencies.ebbmalloc]\npath = \"../ebbmalloc-{VERSION}\"\n\n[workspace]\n"
            ),
        )?;
        let (lines, _) = HELLO.split_once("fn main").unwrap_or_default();
        append(&project.join("crates/core/main.rs"), lines)?;
        self.run("rg", &mut self.cargo(&project, "build"))?;

        let source = self.package.join("src");
        let mut search = Command::new(self.built("rg"));
        search.args(["--no-config", "--threads=4", "--no-filename", "--fixed-strings", "unsafe {"]);
        let run = self.run("rg", search.arg(&source).env("EBB_STATS", "json"))?;
        let mut expected = lines_with(&source, "unsafe {")?;
        let mut found: Vec<_> = run.stdout.lines().map(str::to_string).collect();
        expected.sort();
        found.sort();
        ensure!(!expected.is_empty() && found == expected, "it found {} lines", found.len());
        ensure!(served(&run.stderr), "not served by ebbmalloc: {}", run.describe());
        Ok(Outcome::Passed)
    }
}

fn no_crates(fetched: &process::Finished) -> Outcome {
    Outcome::Skipped(format!("no crates from crates.io: {}", fetched.describe()))
}

fn append(file: &Path, text: &str) -> Result<()> {
    Ok(fs::write(file, fs::read_to_string(file)? + text)?)
}

/// Returns the lines of all files below a directory that contain the words.
fn lines_with(directory: &Path, words: &str) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            lines.extend(lines_with(&path, words)?);
        } else {
            let text = fs::read_to_string(&path)?;
            lines.extend(text.lines().filter(|line| line.contains(words)).map(str::to_string));
        }
    }
    Ok(lines)
}

/// Returns the second number in `cargo 1.95.0 (...)`.
fn minor(version: &str) -> Option<u32> {
    version.split(' ').nth(1)?.split('.').nth(1)?.parse().ok()
}

/// Returns whether a program's statistics say that it got memory from this version.
fn served(stderr: &str) -> bool {
    let stats: Option<serde_json::Value> =
        stderr.lines().last().and_then(|line| serde_json::from_str(line).ok());
    stats.is_some_and(|stats| {
        stats["version"] == VERSION
            && stats["allocated_bytes"].as_u64().is_some_and(|bytes| bytes > 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_version_with_memory_in_use_has_served() {
        let line = |version, bytes| {
            format!("noise\n{{\"version\":\"{version}\",\"allocated_bytes\":{bytes}}}\n")
        };
        assert!(served(&line(VERSION, 1)));
        assert!(!served(&line(VERSION, 0)) && !served(&line("9.9.9", 1)));
        assert!(!served("") && !served("Hello, world!"));
    }

    #[test]
    fn the_minor_version_is_read() {
        assert_eq!(minor("cargo 1.101.0-nightly (92b5b8c87 2026-10-29)\n"), Some(101));
        assert_eq!(minor("cargo"), None);
    }
}
