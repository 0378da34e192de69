//! Runs loads on a number of threads. The work of all threads together is the same on any number,
//! unless `--times` asks for more.

mod cache_scratch;
mod larson;
mod mstress;
mod queue;
mod sh8bench;
mod xmalloc;

use std::num::NonZeroUsize;

use anyhow::Result;

use crate::report::Report;

#[derive(clap::Subcommand)]
pub enum Load {
    /// Threads allocate, keep and pass on objects through shared slots, generation by generation
    Mstress(Args),
    /// Objects allocated side by side are freed by workers, who then allocate and write (false
    /// sharing)
    CacheScratch(Args),
    /// Servers replace random objects in their slots, and hand them over to successors
    Larson(Args),
    /// Producers only allocate, consumers only free
    Xmalloc(Args),
    /// Like xmalloc, with objects of one size
    Pipe(Args),
    /// Bursts of small objects, freed in mixed orders
    Sh8bench(Args),
    /// A queue with many producers and one consumer
    Queue(Args),
}

#[derive(clap::Args)]
pub struct Args {
    /// Number of threads, all alive at once
    #[arg(long, value_name = "N")]
    threads: NonZeroUsize,
    /// Multiply the work of all threads together by this: for machines with more than two CPUs
    #[arg(long, value_name = "N", default_value = "1")]
    times: NonZeroUsize,
}

/// The number of threads, and the factor of their common work.
#[derive(Clone, Copy)]
struct Scale {
    threads: usize,
    times: usize,
}

pub fn run(load: &Load) -> Result<Report> {
    let scale = |args: &Args| Scale { threads: args.threads.get(), times: args.times.get() };
    Ok(match load {
        Load::Mstress(args) => mstress::run(scale(args)),
        Load::CacheScratch(args) => cache_scratch::run(scale(args)),
        Load::Larson(args) => larson::run(scale(args)),
        Load::Xmalloc(args) => xmalloc::run_mixed(scale(args)),
        Load::Pipe(args) => xmalloc::run_alike(scale(args)),
        Load::Sh8bench(args) => sh8bench::run(scale(args)),
        Load::Queue(args) => queue::run(scale(args))?,
    })
}
