//! What ebbmalloc adds to a program or an extension on disk.

use anyhow::{Result, ensure};

/// Less than so many KiB more, and it is not in there.
const LEAST: u64 = 50;

/// Fails unless `with` bytes are more than `without`, as ebbmalloc's code has to go somewhere, but by at most so many KiB.
pub fn ensure_growth(without: u64, with: u64, most: u64) -> Result<()> {
    let growth = with.saturating_sub(without) / 1024;
    ensure!(growth > LEAST, "{growth} KiB more: ebbmalloc is not in it");
    ensure!(growth <= most, "{growth} KiB more on disk, but at most {most} were expected");
    Ok(())
}
