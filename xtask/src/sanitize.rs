//! `cargo xtask sanitize`: the engine's tests under ThreadSanitizer and AddressSanitizer, by nightly Rust.
//!
//! Restartable sequences are assembly, which ThreadSanitizer does not see: it is given the modes without them. The
//! standard library is built anew for it, or it would not see how threads wait for each other.

use crate::cargo;
use crate::tally::Tally;
use crate::workspace;
use anyhow::Result;
use std::path::Path;

const TARGET: &str = "x86_64-unknown-linux-gnu";
/// What has threads, of the engine's tests.
const THREADED: [&str; 6] = ["fuzz::", "heaps::", "model::", "room::", "threads::", "transfer::"];

#[derive(clap::Args)]
pub struct Args {
    /// Only this sanitizer
    #[arg(long, value_parser = ["thread", "address"])]
    only: Option<String>,
}

/// Whether every test passed.
pub fn run(args: &Args) -> Result<bool> {
    let root = workspace::root()?;
    let mut total = Tally::default();
    for sanitizer in ["thread", "address"] {
        if args.only.as_ref().is_some_and(|only| only != sanitizer) {
            continue;
        }
        println!("sanitize: {sanitizer}");
        let result = cargo::install_nightly("rust-src");
        if let Err(error) = result {
            total.skip(sanitizer, format!("{error:#}"));
            continue;
        }
        total += test(&root, sanitizer)?;
    }
    println!("{total}");
    Ok(total.failed == 0)
}

fn test(root: &Path, sanitizer: &str) -> Result<Tally> {
    let mut command = cargo::nightly(root);
    command
        .args(["test", "--no-fail-fast", "--package", "ebbmalloc-testkit", "--target", TARGET])
        .arg("--target-dir")
        .arg(workspace::target(root).join("sanitize").join(sanitizer))
        .env("RUSTFLAGS", format!("-Zsanitizer={sanitizer}"));
    if sanitizer == "thread" {
        // Tests unwind. A profile that aborts has cargo build the standard library once for each, and they do not mix.
        command.env("CARGO_PROFILE_DEV_PANIC", "unwind");
        command.args(["-Zbuild-std", "--test", "engine", "--"]).args(THREADED);
        command.args(["--skip", "percpu"]);
    } else {
        // Some tests leak a text on purpose, which has to live as long as they do.
        command.arg("--tests").env("ASAN_OPTIONS", "detect_leaks=0");
    }
    cargo::test(sanitizer, &mut command)
}
