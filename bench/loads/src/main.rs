//! `loads`: runs one load, a subcommand each, and prints its figures as one line of JSON
//! (`report`).
//!
//! The loads call malloc and free through the dynamic symbols (Rust's system allocator does too),
//! so that `LD_PRELOAD` selects the allocator.

mod block;
mod crew;
mod idle;
mod lot;
mod mixed;
mod phases;
mod replace;
mod report;
mod resident;
mod tables;
mod threads;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(about = "Programs that do to an allocator what real ones do")]
struct Cli {
    #[command(subcommand)]
    load: Load,
}

#[derive(Subcommand)]
enum Load {
    /// Nothing at all: the cost of a process
    Nothing,
    /// Small blocks in random order, some kept for long
    Mixed,
    /// Random blocks of a working set, one after the other
    Replace(replace::Args),
    /// Tables of tables that grow together
    Tables,
    /// Phases of work, each on threads of its own
    Phases(phases::Args),
    #[command(flatten)]
    Threads(threads::Load),
    /// Stages of work drawn by lot
    Lot(lot::Args),
    /// A load, and then nothing: memory over time
    Idle(idle::Args),
}

fn main() -> anyhow::Result<()> {
    end_on_panic();
    let report = match Cli::parse().load {
        Load::Nothing => report::Report::new(),
        Load::Mixed => mixed::run()?,
        Load::Replace(args) => replace::run(&args),
        Load::Tables => tables::run()?,
        Load::Phases(args) => phases::run(&args),
        Load::Threads(load) => threads::run(&load)?,
        Load::Lot(args) => lot::run(&args),
        Load::Idle(args) => idle::run(&args),
    };
    report.print();
    Ok(())
}

/// Ends the process when any thread panics: the others would wait for it for ever.
fn end_on_panic() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        print(panic);
        std::process::exit(1);
    }));
}
