//! Shows on standard error how far a comparison is. It changes only between runs, so as not to
//! disturb them.

use std::io::{self, IsTerminal};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output;

pub struct Progress {
    bar: ProgressBar,
    /// Without a terminal: one line per round, collected here.
    line: Option<String>,
}

impl Progress {
    /// `drawn`: whether a bar may be drawn; the program's own output would tear it.
    pub fn new(runs: u64, drawn: bool) -> Self {
        let drawn = drawn && io::stderr().is_terminal();
        let target =
            if drawn { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(runs), target).with_style(style(""));
        Self { bar, line: (!drawn).then(String::new) }
    }

    /// Shows the begin of a run.
    pub fn begin(&self, round: &str, allocator: &str) {
        self.bar.set_message(format!("{round}: {allocator}"));
        self.bar.tick();
    }

    /// Shows the end of a run.
    pub fn end(&mut self, allocator: &str, wall: Duration) {
        self.bar.inc(1);
        // There is a basis for an estimate only now.
        self.bar.set_style(style(", {eta} left"));
        if let Some(line) = &mut self.line {
            let comma = if line.is_empty() { "" } else { ", " };
            line.push_str(&format!("{comma}{allocator} {:.3} s", wall.as_secs_f64()));
        }
    }

    /// Ends a round, in which each allocator has run.
    pub fn round(&mut self, round: &str) {
        if let Some(line) = &mut self.line {
            output::remark(format_args!("{round}: {line}"));
            line.clear();
        }
    }
}

fn style(left: &str) -> ProgressStyle {
    let template = format!("{{bar:24.cyan/dim}} {{pos}} of {{len}} runs{left}  {{msg:.dim}}");
    let style = ProgressStyle::with_template(&template);
    style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("━━─")
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
