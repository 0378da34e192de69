//! Finds the directories of the workspace.

use anyhow::{Context as _, Result};
use std::env;
use std::path::{Path, PathBuf};

/// Returns the workspace's root.
pub fn root() -> Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    Ok(root.context("xtask lies in no workspace")?.to_path_buf())
}

/// Returns cargo's target directory.
pub fn target(root: &Path) -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |dir| root.join(dir))
}
