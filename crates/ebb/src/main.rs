//! The command `ebb`: runs a program on ebbmalloc, compares allocators on it, or reports its
//! memory.

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use ebb::{compare, generate, output, profile, run, set, stop, why};

#[derive(Parser)]
#[command(
    name = "ebb",
    version,
    about = "Run programs on ebbmalloc, compare allocators on them, and see where memory is",
    after_help = stop::exit_codes()
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
    /// Change an option of ebbmalloc in a running process
    Set(set::Options),
    /// Show where a process's resident memory is, and why
    Why(why::Options),
    /// Show who holds a process's memory, by call stack
    Profile(profile::Options),
    /// Write the man pages and the completions of shells, for packages
    #[command(hide = true)]
    Generate(generate::Options),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Run(options) => run::run(options),
        Command::Compare(options) => compare::compare(options),
        Command::Set(options) => set::set(&options),
        Command::Why(options) => why::why(options),
        Command::Profile(options) => profile::profile(options),
        Command::Generate(options) => generate::generate(&options, Cli::command()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if !stop::is_silent(&error) {
                output::remark(format_args!("{error:#}"));
            }
            ExitCode::from(stop::code(&error))
        }
    }
}
