//! Phases of work: each fills memory with blocks of all sizes and frees them, on threads that start
//! with it and end after it, as where a program works on one file or frame after the other.

use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;

use crate::block::{self, Block};
use crate::report::Report;
use crate::{crew, resident};

#[derive(clap::Args)]
pub struct Args {
    /// Threads of each phase; 0: the first thread works alone
    #[arg(long, default_value_t = 4)]
    threads: usize,
    /// MiB that a phase fills, on all of its threads together
    #[arg(long, default_value_t = 100)]
    mib: usize,
    /// Number of phases
    #[arg(long, default_value_t = 30)]
    phases: u64,
    /// Milliseconds between two phases
    #[arg(long, default_value_t = 0)]
    pause: u64,
}

pub fn run(args: &Args) -> Report {
    let began = Instant::now();
    let share = (args.mib << 20) / args.threads.max(1);
    for phase in 0..args.phases {
        match args.threads {
            0 => work(share, phase),
            threads => thread::scope(|scope| {
                let seeds = (0..threads as u64).map(|nth| phase * threads as u64 + nth);
                seeds.for_each(|seed| crew::start(scope, move || work(share, seed)));
            }),
        }
        thread::sleep(Duration::from_millis(args.pause));
    }
    crew::report(began.elapsed().as_secs_f64(), resident::kib())
}

/// Fills `bytes` with blocks from 16 bytes to 16 KiB, and frees them all in another order.
fn work(bytes: usize, seed: u64) {
    let (mut rng, mut held) = (Rng::with_seed(seed), 0);
    let mut blocks = Vec::new();
    while held < bytes {
        let block = Block::new(block::any_size(&mut rng, block::LEAST, 10));
        held += block.size();
        blocks.push(block);
    }
    rng.shuffle(&mut blocks);
}
