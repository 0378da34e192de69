//! Collects the result of each kernel, as a row of the final table.

use super::console::Ended;
use super::jobs::{Planned, Verdict, mode_line};
use super::machine::Accelerator;
use super::target::{Arch, Kernel};
use crate::tally::Tally;
use std::fmt::Write;

pub struct Row {
    suite: &'static str,
    arch: &'static str,
    libc: String,
    accelerator: Option<Accelerator>,
    /// The kernel's release.
    pub release: String,
    pub seconds: u64,
    /// The mode and its reason, from the first statistics of a run that asks for no mode.
    mode: String,
    pub tally: Tally,
}

impl Row {
    pub fn new(kernel: &Kernel, arch: &Arch, libc: &str, accelerator: Accelerator) -> Self {
        Self {
            suite: kernel.name,
            arch: arch.name,
            libc: libc.to_string(),
            accelerator: Some(accelerator),
            release: "not up".to_string(),
            seconds: 0,
            mode: String::new(),
            tally: Tally::default(),
        }
    }

    /// Makes the row of a kernel that could not be booted.
    pub fn skipped(kernel: &Kernel, arch: &Arch, why: &str) -> Self {
        let mut row = Self::new(kernel, arch, "", Accelerator::Tcg);
        (row.accelerator, row.release) = (None, String::new());
        row.tally.skip(&format!("{}/{}", arch.name, kernel.name), why);
        row
    }

    /// Counts a verdict, and prints it unless it is a pass.
    pub fn count(&mut self, title: &str, planned: &Planned, verdict: Verdict) {
        let test = format!("{title} {}", planned.job.name);
        match verdict {
            Verdict::Passed => self.tally.pass(),
            Verdict::Failed(why) => self.tally.fail(&test, why),
            Verdict::Skipped(why) => self.tally.skip(&test, why),
        }
    }

    /// Notes the mode in an ended job's output, if it is the first.
    pub fn see(&mut self, ended: &Ended) {
        if let Some(mode) = mode_line(&ended.output).filter(|_| self.mode.is_empty()) {
            self.mode = mode.to_string();
        }
    }
}

/// Formats all rows in Markdown.
pub fn table(rows: &[Row]) -> String {
    let mut text = String::from(
        "| suite | kernel | C library | by | mode (why) | passed | failed | skipped | s |\n\
         |---|---|---|---|---|---:|---:|---:|---:|\n",
    );
    for row in rows {
        let Row { suite, arch, release, libc, mode, seconds, .. } = row;
        let Tally { passed, failed, skipped } = row.tally;
        let by = match row.accelerator {
            Some(accelerator) => format!("{accelerator:?}").to_uppercase(),
            None => String::new(),
        };
        let _ = writeln!(
            text,
            "| {suite}, {arch} | {release} | {libc} | {by} | {mode} \
             | {passed} | {failed} | {skipped} | {seconds} |"
        );
    }
    text
}
