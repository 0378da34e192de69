//! One thread fills memory with blocks from 16 bytes to 16 KiB and frees them all, several times.

use fastrand::Rng;

use super::blocks;
use super::watch::Watch;
use crate::report::Report;

const ROUNDS: u64 = 4;
/// About 250 MiB.
const BLOCKS: usize = 100_000;

pub fn run(watch: &Watch) -> Report {
    for round in 0..ROUNDS {
        let all = blocks::fill(watch, &mut Rng::with_seed(round), BLOCKS, 10);
        blocks::free(watch, all, None);
    }
    watch.rest()
}
