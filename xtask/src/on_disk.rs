//! Checks how much ebbmalloc adds to a program or an extension on disk.

use anyhow::{Result, ensure};

/// Minimum growth in KiB; with less, ebbmalloc is not in the file.
const LEAST: u64 = 50;

/// Fails unless the growth from `without` to `with` bytes is more than `LEAST` and at most `most`
/// KiB.
pub fn ensure_growth(without: u64, with: u64, most: u64) -> Result<()> {
    let growth = with.saturating_sub(without) / 1024;
    ensure!(growth > LEAST, "{growth} KiB more: ebbmalloc is not in it");
    ensure!(growth <= most, "{growth} KiB more on disk, but at most {most} were expected");
    Ok(())
}
