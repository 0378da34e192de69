//! Measures memory over time: how much stays resident during a load and while idle after it, beside
//! the live bytes.

mod blocks;
mod buffers;
mod comers;
mod consumer;
mod free_all;
mod pool;
mod survivors;
mod watch;

use std::thread;

use crate::report::Report;
use watch::Watch;

#[derive(clap::Args)]
pub struct Args {
    load: Load,
    /// Seconds to idle; there are figures after 1 and 10 of them
    #[arg(long, default_value_t = 10)]
    idle: u64,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Load {
    /// One thread fills memory with blocks of all sizes, and frees them all
    FreeAll,
    /// Small blocks up to 1 GiB, of which every 100th stays
    Survivors,
    /// A pool of 8 threads with bursts of work
    Pool,
    /// One thread allocates, the other frees
    Consumer,
    /// 10,000 threads, one after the other, each of which leaves some blocks behind
    Comers,
    /// Two threads replace buffers of 64 to 256 KiB, and keep some
    Buffers,
}

pub fn run(args: &Args) -> Report {
    let watch = Watch::new(args.idle);
    thread::scope(|scope| {
        scope.spawn(|| watch.sample());
        match args.load {
            Load::FreeAll => free_all::run(&watch),
            Load::Survivors => survivors::run(&watch),
            Load::Pool => pool::run(&watch),
            Load::Consumer => consumer::run(&watch),
            Load::Comers => comers::run(&watch),
            Load::Buffers => buffers::run(&watch),
        }
    })
}
