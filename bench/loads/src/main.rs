//! `loads`: one subcommand a load. Each prints its figures as one line of JSON (`report`).
//!
//! The loads call malloc and free through the dynamic symbols (Rust's system allocator does too), so
//! that `LD_PRELOAD` decides whose they are.

mod report;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(about = "Programs that do to an allocator what real ones do")]
struct Cli {
    #[command(subcommand)]
    load: Load,
}

#[derive(Subcommand)]
enum Load {
    /// Nothing at all: what a process costs
    Nothing,
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().load {
        Load::Nothing => report::Report::new().print(),
    }
    Ok(())
}
