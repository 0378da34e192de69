//! Implements `ebb why`: reports where a process's resident memory is.

pub(crate) mod memory;
mod picture;
mod program;
mod pymalloc;
pub(crate) mod report;
pub(crate) mod smaps;
pub(crate) mod text;
mod watch;

use std::path::PathBuf;

use clap::Args;

use crate::peak::ProgramOptions;
use crate::stop::Stop;
use crate::{output, process_name};
use report::Report;

#[derive(Args)]
#[command(
    override_usage = "ebb why [OPTIONS] PID|NAME\n       ebb why [OPTIONS] -- PROGRAM [ARGS]...",
    after_help = "\
Each line says how much memory is resident for one reason. The lines add up to what the kernel \
counts. The process is not stopped or changed: ebb reads its tables from outside (/proc/PID/mem), \
so the figures of a busy process may be slightly off. ebb needs the right to debug the process: \
run it as the same user, or as root.

PROGRAM runs on ebbmalloc, with its output on standard error. The report shows the moment when the \
most memory was resident, sampled every 20 ms; with --at-end, the moment of its exit. It covers \
the program itself, not its children.

docs/why.md explains how to read it."
)]
pub struct Options {
    /// The process to look at: its ID, or its name if no other process has it
    #[arg(value_name = "PID|NAME", required_unless_present = "command")]
    #[arg(conflicts_with = "command", allow_negative_numbers = true)]
    process: Option<String>,
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
    /// Repeat every SECONDS, and chart each line, until the process ends
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "1", value_parser = watch::seconds, conflicts_with = "command")]
    watch: Option<std::time::Duration>,
    /// With --watch: also draw a chart of all lines into this file, updated each time
    #[arg(long, value_name = "FILE.svg", requires = "watch")]
    svg: Option<PathBuf>,
    #[command(flatten)]
    program: ProgramOptions,
}

pub fn why(options: Options) -> anyhow::Result<()> {
    let Some(process) = &options.process else {
        return program::run(&options);
    };
    let pid = process_name::find(process, "ebb why")?;
    if let Some(interval) = options.watch {
        return watch::watch(pid, interval, options.json, options.svg.as_deref());
    }
    let report = Report::of(pid)?;
    print(&report, options.json)?;
    readable(&report)
}

fn print(report: &Report, json: bool) -> anyhow::Result<()> {
    match json {
        true => output::print_line(serde_json::to_string_pretty(report)?),
        false => output::print(text::whole(report)),
    }
}

/// Returns an error if the process has no ebbmalloc, so that scripts notice.
fn readable(report: &Report) -> anyhow::Result<()> {
    match report.heaps.is_empty() {
        true => Err(Stop::with(
            1,
            format!(
                "process {} has no ebbmalloc that this version can read: the report shows only \
                 what the kernel knows",
                report.pid
            ),
        )),
        false => Ok(()),
    }
}
