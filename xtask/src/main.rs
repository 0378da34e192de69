//! The workspace's own tasks, started with `cargo xtask <task>`.

mod bench;
mod c;
mod cargo;
mod compiler;
mod context;
mod cross;
mod deb;
mod examples;
mod faces;
mod fuzz;
mod header;
mod install;
mod kernels;
mod library;
mod linking;
mod misuse;
mod object;
mod on_disk;
mod packages;
mod pool;
mod process;
mod programs;
mod release;
mod rust_crate;
mod sanitize;
mod shims;
mod soak;
mod tally;
mod targets;
mod test;
mod unittest;
mod wheel;
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
    /// Run the tests, installing what they need: some 15 minutes; with --long all there are
    Test(test::Args),
    /// Boot real kernels in virtual machines and test restartable sequences there: an hour
    Kernels(kernels::Args),
    /// Measure beside other allocators: tables and pictures in target/bench
    Bench(bench::Args),
    /// Look for errors in the engine with libFuzzer: 10 minutes for each of four
    /// targets, or hours
    Fuzz(fuzz::Args),
    /// Run the engine's tests under ThreadSanitizer and AddressSanitizer: half an hour
    Sanitize(sanitize::Args),
    /// A mixed load for an hour, after which memory must be what it was
    Soak(soak::Args),
    /// Misuse ebbmalloc and its peers, and print how each run ends
    Misuse(misuse::Args),
    /// Install the command, the libraries, the header and what pkg-config and CMake need below a
    /// directory
    Install(install::Args),
    /// Make Debian packages, and print where they are
    Deb,
    /// Make all that a release consists of, from the last commit, in target/release-artefacts
    Release(release::Args),
    /// Build the examples of extensions, and test that copies of ebbmalloc live together
    Examples(examples::Args),
    /// Check that the crate builds for 38 targets, and run a test of it on some: ten minutes
    Targets,
    /// Make the Python wheel, also for other systems, and print where it is
    Wheel(wheel::Args),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().task {
        Task::Test(args) => test::run(&args),
        Task::Kernels(args) => kernels::run(&args),
        Task::Bench(args) => bench::run(&args),
        Task::Fuzz(args) => fuzz::run(&args),
        Task::Sanitize(args) => sanitize::run(&args),
        Task::Soak(args) => soak::run(&args),
        Task::Misuse(args) => misuse::run(&args),
        Task::Install(args) => install::run(&args),
        Task::Deb => deb::run(),
        Task::Release(args) => release::run(&args),
        Task::Examples(args) => examples::run(&args),
        Task::Targets => targets::run(),
        Task::Wheel(args) => wheel::make(&args),
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
