//! Helpers for the checks of all languages.

use crate::context::Context;
use anyhow::Result;
use std::fs;
use std::path::{Path, PathBuf};

/// Makes an empty directory for a part of this step.
pub fn fresh(context: &Context, name: &str) -> Result<PathBuf> {
    let dir = context.work.join("faces").join(name);
    if dir.exists() {
        fs::remove_dir_all(&dir)?;
    }
    fs::create_dir_all(&dir)?;
    Ok(dir)
}

/// Returns whether exactly `programs` programs said that an allocator served them, and each named
/// ebbmalloc.
pub fn served(stdout: &str, programs: usize) -> bool {
    let said: Vec<&str> =
        stdout.lines().filter_map(|line| line.strip_prefix("served by ")).collect();
    said.len() == programs && said.iter().all(|by| by.starts_with("ebbmalloc 0."))
}

/// Returns the path as a string for a command line.
pub fn text(path: &Path) -> String {
    path.display().to_string()
}
