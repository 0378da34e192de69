//! Implements `ebb why -- PROGRAM`: reports a program's memory at its peak or at its end.

use libc::pid_t;

use super::report::Report;
use super::{Options, print, readable, text};
use crate::output::{print_line, remark};
use crate::peak::{self, Look};

impl Look for Report {
    fn at(pid: pid_t) -> Option<Self> {
        Self::of(pid).ok()
    }

    fn resident_bytes(&self) -> u64 {
        self.resident_bytes
    }

    fn took_seconds(&self) -> f64 {
        self.took_seconds
    }

    fn set_time(&mut self, seconds: f64) {
        self.at_seconds = Some(seconds);
    }
}

pub fn run(options: &Options) -> anyhow::Result<()> {
    let seen = peak::run::<Report>(&options.program, &[])?;
    let most = seen.most();
    let chosen = if options.program.at_end { seen.end.as_ref() } else { most };
    let Some(chosen) = chosen else {
        return Err(options.program.unseen(
            "no report: the program ended too soon, or cannot be traced. Try `ebb why PID` while \
             it runs",
        ));
    };
    print(chosen, options.json)?;
    if let (Some(most), Some(end), false) = (most, &seen.end, options.json) {
        print_line(format_args!(
            "\nHighest value seen: {} after {:.1} s. At the end, after {:.1} s: {}.",
            text::mib(most.resident_bytes),
            most.at_seconds.unwrap_or(0.0),
            end.at_seconds.unwrap_or(0.0),
            text::mib(end.resident_bytes)
        ))?;
    }
    if !seen.status.success() {
        remark(format_args!("the program ended with {}", seen.status));
    }
    readable(chosen)
}
