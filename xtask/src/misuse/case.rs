//! Reads, builds and runs a program under `tests/misuse`, and writes its expectations.

use crate::compiler::{Object, Way};
use crate::header::Header;
use crate::library::Library;
use crate::misuse::expectation::{Expectation, KEYS};
use crate::misuse::outcome::Outcome;
use crate::process;
use anyhow::{Context as _, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The threats that the programs test, in the order of the table.
pub const THREATS: [&str; 6] =
    ["double free", "invalid free", "wrong size", "overflow", "write after free", "secrets"];

const RUN_LIMIT: Duration = Duration::from_secs(20);

pub struct Case {
    pub name: String,
    /// One of `THREATS`.
    pub threat: &'static str,
    pub expectation: Expectation,
    source: PathBuf,
}

/// An allocator, in one of its modes.
#[derive(Clone)]
pub struct Subject {
    pub name: String,
    /// The library to preload; None for the C library's allocator.
    pub library: Option<PathBuf>,
    pub environment: Vec<(String, String)>,
    /// Where it comes from, with its version.
    pub origin: String,
}

/// Returns all programs whose name contains `filter`, in order of name.
pub fn cases(root: &Path, filter: &str) -> Result<Vec<Case>> {
    let dir = root.join("tests/misuse");
    let mut cases = Vec::new();
    for entry in fs::read_dir(&dir).with_context(|| format!("cannot read {}", dir.display()))? {
        let source = entry?.path();
        let name = source.file_stem().context("no file name")?.to_string_lossy().into_owned();
        if source.extension().is_some_and(|ending| ending == "c") && name.contains(filter) {
            cases.push(
                Case::read(name, source.clone())
                    .with_context(|| format!("{}", source.display()))?,
            );
        }
    }
    cases.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(cases)
}

impl Case {
    fn read(name: String, source: PathBuf) -> Result<Case> {
        let text = fs::read_to_string(&source)?;
        let known: Vec<&str> = KEYS.into_iter().chain(["threat"]).collect();
        let header = Header::parse(&text, "//", &known)?;
        let threat = header.one("threat").context("the header has no `threat:`")?;
        let threat = THREATS.into_iter().find(|known| *known == threat);
        let threat = threat.context("the header names no threat that is known")?;
        let expectation = Expectation::read(&header)?;
        Ok(Case { name, threat, expectation, source })
    }

    /// Builds the program into a directory of its own.
    pub fn build(&self, root: &Path, compiler: &str, work: &Path) -> Result<PathBuf> {
        let dir = work.join(&self.name);
        fs::create_dir_all(&dir)?;
        let compiler = [compiler.to_string()];
        Object::compile(root, &self.source, &compiler, None, &dir)?
            .link(&Library::Glibc, Way::Preload)
    }

    /// Runs the executable on a block of `size` bytes.
    pub fn run(&self, executable: &Path, subject: &Subject, size: usize) -> Result<Outcome> {
        let log = executable.with_file_name(format!("{}-{size}.log", subject.name));
        Outcome::of(&process::run(&mut command(executable, subject, size), RUN_LIMIT, &log, None)?)
    }

    /// Returns an error unless this outcome is expected of the size at this index of `SIZES`.
    pub fn judge(&self, subject: &Subject, place: usize, found: &Outcome) -> Result<()> {
        let allowed = self.expectation.of(&subject.name, place);
        let wanted: Vec<String> = allowed.iter().map(|outcome| outcome.to_string()).collect();
        let wanted = wanted.join(" or ");
        ensure!(
            !wanted.is_empty(),
            "nothing is expected of this mode: `cargo xtask misuse --bless`"
        );
        // Harden mode places blocks at random, so which error it notices first is random too.
        let random =
            subject.name == "harden" && found.is_stop() && allowed.iter().any(Outcome::is_stop);
        ensure!(random || allowed.contains(found), "expected {wanted}, got {found}");
        Ok(())
    }

    /// Writes the expectations into the first comment.
    pub fn write(&self) -> Result<()> {
        let text = fs::read_to_string(&self.source)?;
        let is_expected = |line: &str| {
            let key = line.strip_prefix("// ").and_then(|line| line.split_once(": "));
            key.is_some_and(|(key, _)| KEYS.contains(&key))
        };
        let prose = text.lines().take_while(|line| line.starts_with("//"));
        let mut lines: Vec<String> =
            prose.filter(|line| !is_expected(line)).map(str::to_string).collect();
        lines.extend(self.expectation.lines().map(|line| format!("// {line}")));
        lines.extend(text.lines().skip_while(|line| line.starts_with("//")).map(str::to_string));
        fs::write(&self.source, lines.join("\n") + "\n")?;
        Ok(())
    }
}

/// Makes the command that runs an executable on a block of `size` bytes.
pub fn command(executable: &Path, subject: &Subject, size: usize) -> Command {
    let mut command = Command::new(executable);
    command.arg(size.to_string()).env_remove("LD_PRELOAD");
    for variable in ["EBB_MODE", "EBB_CHECK", "EBB_HARDEN", "EBB_STATS"] {
        command.env_remove(variable);
    }
    command.envs(subject.environment.iter().map(|(name, value)| (name, value)));
    if let Some(library) = &subject.library {
        command.env("LD_PRELOAD", library);
    }
    command
}
