//! Memory grows to 1 GiB of small blocks; all but every 100th are freed.

use fastrand::Rng;

use super::blocks;
use super::watch::Watch;
use crate::report::Report;

/// About 1 GiB.
const BLOCKS: usize = 4_300_000;

pub fn run(watch: &Watch) -> Report {
    let all = blocks::fill(watch, &mut Rng::with_seed(1), BLOCKS, 6);
    let kept = blocks::free(watch, all, Some(100));
    let report = watch.rest();
    drop(kept);
    report
}
