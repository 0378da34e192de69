//! Runs one row on the allocator that this process was started with, and prints a line of JSON for
//! the driver.

use std::ffi::CStr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::heap;
use crate::rows::Row;

#[derive(clap::Args)]
pub struct Options {
    /// The row to run
    #[arg(long, value_parser = crate::rows::parse)]
    row: &'static Row,
    /// How long to run
    #[arg(long, default_value_t = 0.3)]
    seconds: f64,
    /// Verify every block instead of measuring: panics on the first fault
    #[arg(long)]
    check: bool,
}

/// The result of a worker.
#[derive(Serialize, Deserialize)]
pub struct Outcome {
    pub row: String,
    /// Median over chunks, nanoseconds per malloc and free.
    pub ns: f64,
    /// Mean over chunks.
    pub mean_ns: f64,
    /// Pairs of malloc and free that were timed.
    pub pairs: u64,
    /// Peak resident memory of the process, KiB.
    pub peak_kib: u64,
    /// Resident memory after the row freed everything, KiB.
    pub end_kib: u64,
    /// The file that `malloc` comes from: shows whether preloading worked.
    pub malloc_from: String,
    /// The version that the allocator itself reports, where a peer's crate has another.
    pub version: Option<String>,
}

pub fn run(options: &Options) -> Result<()> {
    let budget = Duration::try_from_secs_f64(options.seconds).context("--seconds")?;
    // An allocator that hangs must not hang the benchmark: the alarm's signal ends this process.
    let limit = 60.0 + 20.0 * options.seconds;
    // SAFETY: the call installs no handler and touches no memory.
    unsafe { libc::alarm(limit as u32) };
    let mut samples = if options.check {
        let samples = (options.row.check)(budget);
        let live = heap::live_blocks();
        ensure!(live == 0, "{}: {live} blocks were not freed", options.row.name);
        samples
    } else {
        (options.row.measure)(budget)
    };
    let outcome = Outcome {
        // First, because summing up the results takes memory.
        end_kib: resident("VmRSS:")?,
        peak_kib: resident("VmHWM:")?,
        row: options.row.name.into(),
        ns: samples.median_ns(),
        mean_ns: samples.mean_ns(),
        pairs: samples.pairs,
        malloc_from: malloc_from(),
        version: allocators::own_version(),
    };
    println!("{}", serde_json::to_string(&outcome)?);
    Ok(())
}

/// Reads a field of /proc/self/status, in KiB.
fn resident(field: &str) -> Result<u64> {
    let path = "/proc/self/status";
    let status = std::fs::read_to_string(path).context(path)?;
    let line = status.lines().find(|line| line.starts_with(field));
    let number = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
    number.with_context(|| format!("{path} has no {field}"))
}

fn malloc_from() -> String {
    // SAFETY: dladdr fills `info` if it returns non-zero; its strings live as long as the library.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        let malloc = libc::dlsym(libc::RTLD_DEFAULT, c"malloc".as_ptr());
        if libc::dladdr(malloc, &mut info) == 0 {
            return "unknown".into();
        }
        CStr::from_ptr(info.dli_fname).to_string_lossy().into_owned()
    }
}
