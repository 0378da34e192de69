//! `cargo xtask soak`: runs a mixed load for an hour, after which resident memory must be back at
//! its first value (`crates/testkit/examples/soak.rs`).

use crate::cargo;
use crate::workspace;
use anyhow::{Context as _, Result};

const MODES: [&str; 3] = ["percpu", "thread", "slot"];

#[derive(clap::Args)]
pub struct Args {
    /// How long, all modes together
    #[arg(long, default_value_t = 60, value_name = "N")]
    minutes: u64,
    /// Only this mode
    #[arg(long, value_parser = MODES)]
    mode: Option<String>,
}

/// Returns whether memory came back in each mode.
pub fn run(args: &Args) -> Result<bool> {
    let root = workspace::root()?;
    let chosen = |mode: &&str| args.mode.as_ref().is_none_or(|only| only == mode);
    let modes: Vec<&str> = MODES.into_iter().filter(chosen).collect();
    let seconds = args.minutes * 60 / modes.len() as u64;
    let mut ended_well = true;
    for mode in modes {
        println!("soak: {mode}, {seconds} s");
        let program = ["run", "--release", "--package", "ebbmalloc-testkit", "--example", "soak"];
        let status = cargo::cargo(&root)
            .args(program)
            .args(["--", &seconds.to_string()])
            .env("EBB_MODE", mode)
            .status()
            .context("cannot start cargo")?;
        ended_well &= status.success();
    }
    Ok(ended_well)
}
