//! `ebb` runs a program on ebbmalloc, or compares allocators on it.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod compare;
mod contender;
mod inspect;
mod interrupt;
mod library;
mod measure;
mod metrics;
mod notebook;
mod notes;
mod perf;
mod procfs;
mod program;
mod progress;
mod report;
mod result;
mod run;
mod spawn;
mod stats;
mod stop;
mod tail;
mod trace;

#[derive(Parser)]
#[command(
    name = "ebb",
    version,
    about = "Run programs on ebbmalloc, and compare allocators on them"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a program on ebbmalloc
    Run(run::Options),
    /// Run a program on several allocators in turn and compare time and memory
    Compare(compare::Options),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Run(options) => run::run(options),
        Command::Compare(options) => compare::compare(options),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ebb: {error:#}");
            ExitCode::from(stop::code(&error))
        }
    }
}
