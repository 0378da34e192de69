//! Replaces random blocks of a working set, so that what counts is where new blocks lie: near what
//! was just freed, or far from it (caches, and the processor's cache of page tables).

use crate::block::Block;
use crate::report::Report;

#[derive(clap::Args)]
pub struct Args {
    /// MiB in blocks
    #[arg(long, default_value_t = 50)]
    mib: usize,
    /// Blocks replaced, in thousands
    #[arg(long, default_value_t = 6000)]
    thousands: usize,
}

/// Sizes of blocks in bytes: 264 on average.
const SIZES: std::ops::Range<usize> = 16..512;
const SIZE_MEAN: usize = 264;

/// Replaces one block of the set by a new one, which is written whole, and reads another one, again
/// and again.
pub fn run(args: &Args) -> Report {
    let mut random = fastrand::Rng::with_seed(1);
    let count = (args.mib << 20) / SIZE_MEAN;
    let mut blocks: Vec<Block> = (0..count).map(|_| written(&mut random)).collect();
    let mut read = 0;
    for _ in 0..args.thousands * 1000 {
        blocks[random.usize(..count)] = written(&mut random);
        read += blocks[random.usize(..count)].size();
    }
    std::hint::black_box(read);
    Report::new()
}

fn written(random: &mut fastrand::Rng) -> Block {
    let mut block = Block::new(random.usize(SIZES));
    block.fill();
    block
}
