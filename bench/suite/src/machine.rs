//! Where and with what a run was made: everything that a figure depends on and that can be told.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::case::Allocator;

/// Kept as `run.json` beside the results.
#[derive(Serialize, Deserialize)]
pub struct Conditions {
    pub machine: String,
    pub load_before: String,
    pub load_after: String,
    pub rounds: u32,
    pub quick: bool,
    /// Size, time and place of the library under test: to tell builds apart.
    pub library: String,
    /// How the library under test says that it works here.
    pub mode: String,
    /// Allocators in the order of the tables.
    pub allocators: Vec<Described>,
    /// Cases in the order of the tables.
    pub cases: Vec<DescribedCase>,
    /// Peers and groups that could not be had, and why.
    pub missing: Vec<String>,
}

#[derive(Serialize, Deserialize, Clone)]
pub struct Described {
    pub name: String,
    pub origin: String,
    pub peer: bool,
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

    pub fn write(&self, out: &Path) -> Result<()> {
        Ok(fs::write(out.join("run.json"), serde_json::to_vec_pretty(self)?)?)
    }
}

/// Processor, cores, memory and kernel in a line.
pub fn describe() -> String {
    let line = |path: &str, field: &str| {
        let text = fs::read_to_string(path).unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with(field)).unwrap_or_default();
        line.split(':').nth(1).unwrap_or_default().trim().to_string()
    };
    let memory: u64 =
        line("/proc/meminfo", "MemTotal").trim_end_matches(" kB").parse().unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!(
        "{}, {cores} cores, {} GiB, Linux {}, {}",
        line("/proc/cpuinfo", "model name"),
        memory.div_ceil(1 << 20),
        kernel.trim(),
        allocators::libc_version(),
    )
}

/// The load averages.
pub fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}

/// What tells one build of a library from another.
pub fn fingerprint(library: &Path) -> Result<String> {
    let meta = fs::metadata(library).with_context(|| library.display().to_string())?;
    let built = meta.modified()?.duration_since(std::time::UNIX_EPOCH)?.as_secs();
    Ok(format!("{}, {} bytes, built {built}", library.display(), meta.len()))
}

/// The first line of the exit statistics: mode, and why.
pub fn mode(allocator: &Allocator) -> String {
    let mut command = std::process::Command::new("/bin/ls");
    command.arg("/").env("EBB_STATS", "1");
    if let Some(library) = &allocator.library {
        command.env("LD_PRELOAD", library);
    }
    let output = command.output().map(|output| output.stderr).unwrap_or_default();
    let text = String::from_utf8_lossy(&output).into_owned();
    text.lines().find(|line| line.contains(" mode ")).unwrap_or("says nothing of its mode").into()
}
