//! Where the workspace lies.

use anyhow::{Context as _, Result};
use std::env;
use std::path::{Path, PathBuf};

/// The workspace's root, and cargo's target directory.
pub fn directories() -> Result<(PathBuf, PathBuf)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .context("xtask lies in no workspace")?
        .to_path_buf();
    let target =
        env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |dir| root.join(dir));
    Ok((root, target))
}
