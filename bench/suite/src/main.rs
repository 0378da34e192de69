//! `suite`: compares allocators side by side, in one run, on workloads that none was tuned for.
//!
//! From the command line down: `plan` (which cases, which allocators), `run` (interleaved,
//! resumable), `results` (the CSV file), `report` (tables and pictures). The cases are in
//! `workloads/`.

mod bench;
mod case;
mod conditions;
mod kit;
mod plan;
mod progress;
mod report;
mod results;
mod run;
mod workloads;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(about = "Allocators side by side on real programs and classic workloads")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Set up peers and workloads, measure, and draw the result
    #[command(after_help = workloads::list())]
    Run(run::Options),
    /// Draw the result of a run again
    Report(report::Options),
    /// Print the version that the allocator of this process reports
    #[command(hide = true)]
    Version,
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Run(options) => run::run(&options),
        Command::Report(options) => report::write(&options.out),
        Command::Version => {
            println!("{}", allocators::own_version().unwrap_or_default());
            Ok(())
        }
    }
}
