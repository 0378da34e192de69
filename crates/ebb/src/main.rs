//! The command `ebb`: runs a program on ebbmalloc, compares allocators on it, or reports its
//! memory.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use ebb::{compare, run, stop, why};

#[derive(Parser)]
#[command(
    name = "ebb",
    version,
    about = "Run programs on ebbmalloc, compare allocators on them, and see where memory is"
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
    /// Show where a process's resident memory is, and why
    Why(why::Options),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Run(options) => run::run(options),
        Command::Compare(options) => compare::compare(options),
        Command::Why(options) => why::why(options),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ebb: {error:#}");
            ExitCode::from(stop::code(&error))
        }
    }
}
