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
    /// The shortest block, in bytes
    #[arg(long, default_value_t = 16)]
    shortest: usize,
    /// The longest block, in bytes
    #[arg(long, default_value_t = 511)]
    longest: usize,
}

/// Replaces one block of the set by a new one, which is written whole, and reads another one, again
/// and again.
pub fn run(args: &Args) -> Report {
    let mut random = fastrand::Rng::with_seed(1);
    let count = (args.mib << 20) * 2 / (args.shortest + args.longest + 1);
    let mut written = |random: &mut fastrand::Rng| {
        let mut block = Block::new(random.usize(args.shortest..=args.longest));
        block.fill();
        block
    };
    let mut blocks: Vec<Block> = (0..count).map(|_| written(&mut random)).collect();
    let mut read = 0;
    for _ in 0..args.thousands * 1000 {
        blocks[random.usize(..count)] = written(&mut random);
        read += blocks[random.usize(..count)].size();
    }
    std::hint::black_box(read);
    Report::new()
}
