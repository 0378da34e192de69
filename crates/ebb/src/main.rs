//! `ebb` runs a program on ebbmalloc, or compares allocators on it.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use ebb::{compare, run, stop};

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
