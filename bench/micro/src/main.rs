//! `micro`: runs tight loops over malloc and free, for one allocator and its peers in the same run.

mod heap;
mod report;
mod rows;
mod run;
mod sample;
mod worker;

use clap::{Parser, Subcommand};

/// Microbenchmark of malloc and free, with its peers in the same run.
#[derive(Parser)]
// The list of rows is not wrapped.
#[command(after_help = rows::list(), term_width = 0)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Compare allocators on all rows, or on some
    Run(run::Options),
    /// Install and build the peers; prints which are not available and why
    Setup(allocators::Options),
    /// Run one row on the allocator of this process (LD_PRELOAD) and print one line of JSON
    Worker(worker::Options),
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Run(options) => run::run(&options),
        Command::Setup(options) => {
            allocators::setup(&options);
            Ok(())
        }
        Command::Worker(options) => worker::run(&options),
    }
}
