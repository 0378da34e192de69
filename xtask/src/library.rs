//! Selects the allocator under test, and the modes in which it can run here.

use crate::process;
use anyhow::{Context, Result, bail};
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Names another allocator for the C contract programs and the real programs: the path of a shared
/// library, or `glibc` for none. It serves to check the tests themselves.
pub const VARIABLE: &str = "EBB_TEST_LIBRARY";

pub enum Library {
    /// ebbmalloc, as built in this directory.
    Ours(PathBuf),
    /// Another allocator's shared library: only preloaded, and without modes.
    Peer(PathBuf),
    /// The C library's own allocator.
    Glibc,
}

/// One way to run a program on the library: a front end, or an option on top of the default one.
#[derive(Clone)]
pub struct Mode {
    pub name: &'static str,
    /// The environment variable that selects it, and its value.
    pub setting: (&'static str, &'static str),
    /// Why this mode is not available here; its tests are skipped.
    pub unavailable: Option<String>,
}

/// An option: its name and its variable.
pub type Care = (&'static str, &'static str);

impl Library {
    /// Options beside the mode that change how each block is handled: their names in tests, and
    /// their variables.
    pub const CHECK: Care = ("check", "EBB_CHECK");
    pub const HARDEN: Care = ("harden", "EBB_HARDEN");
    pub const OPTIONS: [Care; 2] = [Self::CHECK, Self::HARDEN];

    /// Finds the library that `VARIABLE` names; ebbmalloc from the build directory `release` if it
    /// is not set.
    pub fn find(release: &Path) -> Result<Library> {
        match env::var_os(VARIABLE) {
            None => Ok(Library::Ours(release.to_path_buf())),
            Some(name) if name == "glibc" => Ok(Library::Glibc),
            Some(path) => {
                let path = PathBuf::from(path);
                match path.canonicalize() {
                    Ok(path) => Ok(Library::Peer(path)),
                    Err(error) => bail!("{VARIABLE}={}: {error}", path.display()),
                }
            }
        }
    }

    /// Returns the value for `LD_PRELOAD`; empty for none.
    pub fn preload(&self) -> PathBuf {
        match self {
            Library::Ours(dir) => dir.join("libebbmalloc.so"),
            Library::Peer(path) => path.clone(),
            Library::Glibc => PathBuf::new(),
        }
    }

    pub fn is_ours(&self) -> bool {
        matches!(self, Library::Ours(_))
    }

    /// Returns the modes to run everything in, each tried on a small program first.
    pub fn modes(&self, work: &Path) -> Result<Vec<Mode>> {
        if !self.is_ours() {
            return Ok(vec![Mode { name: "peer", setting: ("", ""), unavailable: None }]);
        }
        ["percpu", "thread", "slot"].into_iter().map(|name| self.probe(name, work)).collect()
    }

    /// Returns the options as modes, for programs that work with them, on the default front end.
    pub fn options(&self) -> Vec<Mode> {
        let mode = |(name, variable)| Mode { name, setting: (variable, "1"), unavailable: None };
        Self::OPTIONS.into_iter().filter(|_| self.is_ours()).map(mode).collect()
    }

    /// Sets the variables that make a program run in `mode` and print statistics at its end. The
    /// caller preloads.
    pub fn environment(&self, command: &mut Command, mode: &Mode) {
        if self.is_ours() {
            command.env(mode.setting.0, mode.setting.1).env("EBB_STATS", "1");
        }
    }

    /// Returns whether the statistics in `stderr` prove that the library was active in `mode`.
    pub fn proves(&self, stderr: &str, mode: &Mode) -> bool {
        let asked = match mode.setting {
            ("EBB_MODE", _) => format!(" mode {} ", mode.name),
            _ => " mode ".to_string(),
        };
        !self.is_ours() || mode_line(stderr).is_some_and(|line| line.contains(&asked))
    }

    fn probe(&self, name: &'static str, work: &Path) -> Result<Mode> {
        let mut mode = Mode { name, setting: ("EBB_MODE", name), unavailable: None };
        let mut command = Command::new("/bin/ls");
        self.environment(&mut command, &mode);
        command.env("LD_PRELOAD", self.preload());
        let run = process::run(&mut command, Duration::from_secs(10), &work.join("probe"), None)?;
        let line = mode_line(&run.stderr).with_context(|| {
            format!(
                "{} prints no statistics in /bin/ls: {}",
                self.preload().display(),
                run.describe()
            )
        })?;
        if !self.proves(&run.stderr, &mode) {
            mode.unavailable = Some(format!("not available here: {line}"));
        }
        Ok(mode)
    }
}

/// Returns the first line of the statistics: `ebbmalloc: <version> mode <mode> (<why>)`.
fn mode_line(stderr: &str) -> Option<&str> {
    stderr.lines().find(|line| line.starts_with("ebbmalloc: ") && line.contains(" mode "))
}
