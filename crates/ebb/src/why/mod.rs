//! `ebb why`: where a process's resident memory is.

mod memory;
mod picture;
mod program;
mod pymalloc;
mod report;
mod smaps;
mod text;
mod watch;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use crate::library::LibraryOption;
use crate::stop::Stop;
use report::Report;

#[derive(Args)]
#[command(
    override_usage = "ebb why [OPTIONS] PID\n       ebb why [OPTIONS] -- PROGRAM [ARGS]...",
    after_help = "\
Each line of the ledger says how much memory is resident for one reason, and all lines add up to what the \
kernel counts. Nothing is stopped or changed: the process's tables are read from outside (/proc/PID/mem), so a \
process that works hard meanwhile may be off by a little. It takes the right to debug the process: be its user \
or root.

With a PROGRAM, it runs on ebbmalloc, its output goes to standard error, and the report is of the moment when the \
most memory was resident, as seen by looking every 20 ms; --at-end reports the moment of its exit instead. Only \
the program itself is looked at, not those that it starts.

docs/why.md explains how to read it."
)]
pub struct Options {
    /// The process
    #[arg(value_name = "PID", required_unless_present = "command", conflicts_with = "command")]
    pid: Option<libc::pid_t>,
    /// Everything, for machines
    #[arg(long)]
    json: bool,
    /// Look again every so many seconds, and draw how each line went, until the process ends
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true, default_missing_value = "1", value_parser = watch::seconds, conflicts_with = "command")]
    watch: Option<std::time::Duration>,
    /// With --watch: also draw a picture of all of it, renewed as time goes on
    #[arg(long, value_name = "FILE.svg", requires = "watch")]
    svg: Option<PathBuf>,
    /// With a program: report the moment when it exits, not that of its peak
    #[arg(long, requires = "command")]
    at_end: bool,
    #[command(flatten)]
    library: LibraryOption,
    /// The program and its arguments
    #[arg(last = true, value_name = "PROGRAM [ARGS]")]
    command: Vec<OsString>,
}

pub fn why(options: Options) -> anyhow::Result<()> {
    match options.pid {
        Some(pid) => match options.watch {
            Some(interval) => watch::watch(pid, interval, options.json, options.svg.as_deref()),
            None => {
                let report = Report::of(pid)?;
                print(&report, options.json)?;
                readable(&report)
            }
        },
        None => program::run(&options),
    }
}

fn print(report: &Report, json: bool) -> anyhow::Result<()> {
    if json {
        println!("{}", serde_json::to_string_pretty(report)?);
    } else {
        print!("{}", text::whole(report));
    }
    Ok(())
}

/// An error where the process has no ebbmalloc, so that scripts notice.
fn readable(report: &Report) -> anyhow::Result<()> {
    match report.heaps.is_empty() {
        true => Err(Stop::with(
            1,
            format!(
                "no ebbmalloc (that this version can read) is in process {}: only what the kernel knows is told",
                report.pid
            ),
        )),
        false => Ok(()),
    }
}
