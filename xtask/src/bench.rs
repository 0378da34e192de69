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

/// Returns whether the suite ran to its end.
pub fn run(args: &Args) -> Result<bool> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the workspace's root")?;
    let target = env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), Into::into);
    let mut options = args.options.clone();
    let only_tells = |option: &OsString| ["--list", "--help", "-h"].iter().any(|o| option == o);
    if !options.iter().any(only_tells) {
        cargo::build_release(root)?;
    }
    // The suite starts in another directory.
    let before = options.iter().position(|option| option == "--before");
    if let Some(file) = before.and_then(|at| options.get_mut(at + 1)) {
        *file = path::absolute(&*file).context("--before")?.into();
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
