//! Implements `ebb set`: changes an option of ebbmalloc in a running process.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::ensure;
use clap::Args;
use ebbmalloc::internals::Beacon;

use crate::stop::Stop;
use crate::why::memory::{Heap, Process};
use crate::why::smaps::Mapping;
use crate::{output, process_name, run};

/// How long to wait for the process: it follows at its next allocation.
const FOLLOWING: Duration = Duration::from_secs(5);
const STEP: Duration = Duration::from_millis(20);

#[derive(Args)]
#[command(override_usage = "ebb set PID|NAME NAME=VALUE")]
pub struct Options {
    /// The process: its ID, or its name
    #[arg(value_name = "PID|NAME")]
    process: String,
    /// The option, and its value as in the environment: limit, purge_delay, huge or scavenger
    #[arg(value_name = "NAME=VALUE", value_parser = run::setting)]
    setting: (String, String),
}

pub fn set(options: &Options) -> anyhow::Result<()> {
    let pid = process_name::find(&options.process, "ebb set")?;
    let (variable, value) = &options.setting;
    let text = format!("{}={value}", variable[4..].to_lowercase());
    let mut process = Process::open_for_writing(pid)?;
    let heaps: Vec<_> = process
        .heaps(&Mapping::all_of(pid)?)
        .into_iter()
        .filter_map(|heap| if let Heap::Readable(beacon) = heap { Some(beacon) } else { None })
        .collect();
    ensure!(!heaps.is_empty(), "process {pid} has no heap of ebbmalloc {}", ebbmalloc::VERSION);
    for beacon in &heaps {
        set_in(&mut process, pid, beacon, &text)?;
    }
    Ok(())
}

fn set_in(
    process: &mut Process,
    pid: libc::pid_t,
    beacon: &Beacon,
    text: &str,
) -> anyhow::Result<()> {
    let Some(number) = beacon.request_setting(process, text) else {
        return Err(Stop::usage(format!(
            "cannot ask process {pid}: the value is longer than 40 bytes, or its ebbmalloc was \
             built without the feature `profile`, by which it is asked"
        )));
    };
    let asked = Instant::now();
    while beacon.has_followed(process, number) != Some(true) {
        if asked.elapsed() > FOLLOWING {
            output::remark(format_args!(
                "process {pid} has allocated nothing for {} seconds. It will set {text} at its \
                 next allocation",
                FOLLOWING.as_secs()
            ));
            return Ok(());
        }
        sleep(STEP);
    }
    match beacon.setting_error(process) {
        Some(error) => Err(Stop::usage(format!("{text}: {error}"))),
        None => Ok(()),
    }
}
