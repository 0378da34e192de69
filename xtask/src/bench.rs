//! `cargo xtask bench`: builds the library and starts the suite in `bench/`, which is a workspace
//! of its own.

use crate::cargo;
use anyhow::{Context as _, Result};
use std::env;
use std::ffi::OsString;
use std::path::{self, Path};
use std::process::Command;

#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub struct Args {
    /// Options of the suite; `cargo xtask bench --help` tells them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    options: Vec<OsString>,
}

/// The suite's options whose value is a path, relative to where the command was given.
const PATHS: [&str; 3] = ["--library", "--before", "--out"];

/// Returns whether the suite ran to its end.
pub fn run(args: &Args) -> Result<bool> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the workspace's root")?;
    let target = env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), Into::into);
    let mut options = args.options.clone();
    let only_tells = |option: &OsString| ["--list", "--help", "-h"].iter().any(|o| option == o);
    if !options.iter().any(only_tells) {
        cargo::build_libraries(root)?;
    }
    // The suite starts in another directory.
    for at in 1..options.len() {
        if PATHS.iter().any(|path| options[at - 1] == *path) {
            options[at] = path::absolute(&options[at])?.into();
        }
    }
    let status = Command::new(env::var_os("CARGO").unwrap_or("cargo".into()))
        .args(["run", "--quiet", "--release", "--locked", "--package", "suite", "--", "run"])
        .args([OsString::from("--library"), target.join("release/libebbmalloc.so").into()])
        .args([OsString::from("--out"), target.join("bench").into()])
        .args(options)
        .current_dir(root.join("bench"))
        .status()
        .context("cannot start cargo")?;
    Ok(status.success())
}
