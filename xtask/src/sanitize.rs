//! `cargo xtask sanitize`: runs the engine's tests under ThreadSanitizer and AddressSanitizer, by
//! nightly Rust.
//!
//! Restartable sequences are assembly, which ThreadSanitizer does not see, so it tests only the
//! modes without them. It needs a standard library built for it, or it would not see how threads
//! wait for each other.

use crate::cargo;
use crate::tally::Tally;
use crate::workspace;
use anyhow::Result;
use std::path::Path;

const TARGET: &str = "x86_64-unknown-linux-gnu";
/// The engine's tests with threads.
const THREADED: [&str; 6] = ["fuzz::", "heaps::", "model::", "room::", "threads::", "transfer::"];

#[derive(clap::Args)]
pub struct Args {
    /// Only this sanitizer
    #[arg(long, value_parser = ["thread", "address"])]
    only: Option<String>,
}

/// Returns whether every test passed.
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
        // Tests unwind. With a profile that aborts, cargo builds the standard library in both ways,
        // and they do not mix.
        command.env("CARGO_PROFILE_DEV_PANIC", "unwind");
        command.args(["-Zbuild-std", "--test", "engine", "--"]).args(THREADED);
        command.args(["--skip", "percpu"]);
    } else {
        // Some tests leak a text on purpose, which must live as long as they do.
        command.arg("--tests").env("ASAN_OPTIONS", "detect_leaks=0");
    }
    cargo::test(sanitizer, &mut command)
}
