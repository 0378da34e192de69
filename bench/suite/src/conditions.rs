//! With what a run was made, and where: everything that a figure depends on and that can be told.

use std::fs;
use std::hash::{DefaultHasher, Hasher};
use std::path::Path;

use allocators::Ready;
use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::case::{Allocator, Kind};

/// Kept as `run.json` beside the results.
#[derive(Serialize, Deserialize)]
pub struct Conditions {
    pub machine: String,
    pub load_before: String,
    pub load_after: String,
    pub rounds: u32,
    pub quick: bool,
    /// Tells builds of the library under test apart.
    pub library: String,
    /// The same for the build before it (`--before`), if it takes part.
    #[serde(default)]
    pub build_before: Option<String>,
    /// Variables of the environment that tune allocators.
    pub tuning: Vec<String>,
    /// How the library under test says that it works here.
    pub mode: String,
    /// Allocators in the order of the tables.
    pub allocators: Vec<Described>,
    /// Cases in the order of the tables.
    pub cases: Vec<DescribedCase>,
    /// Peers, groups and drawn programs that could not be had, and why.
    pub missing: Vec<String>,
    /// The draws of the group `drawn`: one, or more in a run that was resumed with another.
    #[serde(default)]
    pub draws: Vec<Drawn>,
}

/// A draw, which `--draw` and `--seed` repeat.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq)]
pub struct Drawn {
    pub count: usize,
    pub seed: u64,
    pub cases: Vec<String>,
}

#[derive(Serialize, Deserialize, Clone)]
pub struct Described {
    pub name: String,
    pub origin: String,
    pub kind: Kind,
}

#[derive(Serialize, Deserialize, Clone)]
pub struct DescribedCase {
    pub name: String,
    pub about: String,
    pub threads: Option<(String, u32)>,
}

impl Conditions {
    pub fn read(out: &Path) -> Result<Self> {
        let path = out.join("run.json");
        let text = fs::read(&path)
            .with_context(|| format!("{}: no run has left its results there", path.display()))?;
        Ok(serde_json::from_slice(&text)?)
    }

    /// Goes on with an earlier run of the same library: what was measured then belongs to the
    /// result.
    pub fn continue_from(&mut self, earlier: Conditions) -> Result<()> {
        let same = |option: &str, then: &str, now: &str| -> Result<()> {
            ensure!(
                then == now,
                "the interrupted run measured another build of the library ({option} was {then}; \
                 now it is {now}): run without --resume"
            );
            Ok(())
        };
        same("--library", &earlier.library, &self.library)?;
        if let (Some(then), Some(now)) = (&earlier.build_before, &self.build_before) {
            same("--before", then, now)?;
        }
        self.build_before = self.build_before.take().or(earlier.build_before);
        self.load_before = earlier.load_before;
        self.rounds = self.rounds.max(earlier.rounds);
        let known = |name: &str| self.allocators.iter().any(|other| other.name == name);
        let others: Vec<_> = earlier.allocators.into_iter().filter(|a| !known(&a.name)).collect();
        self.allocators.extend(others);
        let known = |name: &str| self.cases.iter().any(|other| other.name == name);
        let others: Vec<_> = earlier.cases.into_iter().filter(|case| !known(&case.name)).collect();
        self.cases.extend(others);
        let others: Vec<_> =
            earlier.draws.into_iter().filter(|d| !self.draws.contains(d)).collect();
        self.draws.splice(0..0, others);
        Ok(())
    }

    pub fn write(&self, out: &Path) -> Result<()> {
        Ok(fs::write(out.join("run.json"), serde_json::to_vec_pretty(self)?)?)
    }
}

/// Variables of the environment that tune an allocator: every program inherits them.
pub fn tuning() -> Vec<String> {
    const STARTS: [&str; 9] = [
        "EBB_",
        "GLIBC_TUNABLES",
        "MALLOC_",
        "MIMALLOC_",
        "_RJEM_",
        "TCMALLOC_",
        "TBB_MALLOC_",
        "SCUDO_",
        "PYTHONMALLOC",
    ];
    let set =
        std::env::vars().filter(|(name, _)| STARTS.iter().any(|start| name.starts_with(start)));
    set.map(|(name, value)| format!("{name}={value}")).collect()
}

/// What tells one build of a library from another.
pub fn fingerprint(library: &Path) -> Result<String> {
    let content = fs::read(library).with_context(|| library.display().to_string())?;
    let mut hasher = DefaultHasher::new();
    hasher.write(&content);
    Ok(format!("{} bytes, hash {:016x}", content.len(), hasher.finish()))
}

/// The repository's last commit, and whether there are changes beside it.
pub fn commit(repository: &Path) -> String {
    let directory = repository.to_string_lossy();
    let arguments =
        ["-C", &directory, "describe", "--always", "--dirty=, with changes", "--abbrev=12"];
    allocators::command_output("git", &arguments).unwrap_or("unknown".into())
}

/// The first line of the exit statistics: mode, and why.
pub fn mode(allocator: &Allocator) -> String {
    // A library that hangs must not hang the suite; `timeout` and `env` themselves run without it.
    let mut command = std::process::Command::new("timeout");
    command.args(["5", "env", "EBB_STATS=1"]);
    if let Some(library) = &allocator.library {
        command.arg(format!("LD_PRELOAD={}", library.display()));
    }
    command.args(allocator.env.iter().map(|(name, value)| format!("{name}={value}")));
    let output = command.args(["ls", "/"]).output().map(|output| output.stderr).unwrap_or_default();
    let text = String::from_utf8_lossy(&output).into_owned();
    text.lines().find(|line| line.contains(" mode ")).unwrap_or("says nothing of its mode").into()
}

/// Whether the library under test works in the mode that its environment asks for.
pub fn has_mode(allocator: &Allocator, asked: &str) -> Result<()> {
    let told = mode(allocator);
    ensure!(told.contains(&format!(" mode {asked} ")), "the library says `{told}`");
    Ok(())
}

/// What a peer says of its own version: this program asks it, with the peer preloaded.
pub fn own_version(peer: &Ready) -> Option<String> {
    let mut command = std::process::Command::new(std::env::current_exe().ok()?);
    command.arg("version").env("LD_PRELOAD", peer.library.as_ref()?).envs(peer.env.iter().copied());
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().into())
        .filter(|text: &String| !text.is_empty())
}
