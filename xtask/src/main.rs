//! The workspace's own tasks, started with `cargo xtask <task>`.

mod bench;
mod c;
mod cargo;
mod compiler;
mod header;
mod kernels;
mod library;
mod packages;
mod pool;
mod process;
mod programs;
mod tally;
mod test;
mod workspace;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "The workspace's own tasks")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Run every test there is, installing what they need
    Test(test::Args),
    /// Boot real kernels in virtual machines and test restartable sequences there: an hour
    Kernels(kernels::Args),
    /// Measure beside other allocators: tables and pictures in target/bench
    Bench(bench::Args),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().task {
        Task::Test(args) => test::run(&args),
        Task::Kernels(args) => kernels::run(&args),
        Task::Bench(args) => bench::run(&args),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
