//! Implements `ebb why --watch`: repeats the report and charts each line over time.

use std::collections::VecDeque;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use console::Term;

use super::report::Report;
use super::text;
use crate::interrupt;

/// The number of points in a line's chart.
const POINTS: usize = 48;
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Parses an interval.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("`{text}` is not a number of seconds"))?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(interval) if seconds >= 0.05 => Ok(interval),
        _ => Err("give at least 0.05 seconds, and at most a few thousand".into()),
    }
}

pub fn watch(
    pid: libc::pid_t,
    interval: Duration,
    json: bool,
    svg: Option<&Path>,
) -> anyhow::Result<()> {
    interrupt::install()?;
    let started = Instant::now();
    let terminal = Term::stdout();
    let drawn = io::stdout().is_terminal() && !json;
    let mut history: VecDeque<Report> = VecDeque::new();
    let mut all = Vec::new();
    while interrupt::asked().is_none() {
        let mut report = match Report::of(pid) {
            Ok(report) => report,
            Err(error) if history.is_empty() => return Err(error),
            Err(error) => {
                eprintln!("ebb: {error:#}");
                break;
            }
        };
        report.at_seconds = Some(started.elapsed().as_secs_f64());
        if history.len() == POINTS {
            history.pop_front();
        }
        history.push_back(report.clone());
        if let Some(file) = svg {
            all.push(report.clone());
            super::picture::draw(&all, file)?;
        }
        if json {
            println!("{}", serde_json::to_string(&report)?);
        } else if drawn {
            terminal.clear_screen()?;
            let most = history.iter().map(|report| report.resident_bytes).max().unwrap_or(0);
            print!(
                "{}",
                text::brief(&report, &|name| picture(
                    history.iter().map(|report| report.bytes(name)),
                    most
                ))
            );
            println!(
                "\n{:.0} s; one bar is {:?}, full height is {}; Ctrl-C ends",
                started.elapsed().as_secs_f64(),
                interval,
                text::mib(most)
            );
        } else {
            println!("{}", line(&report));
        }
        io::stdout().flush()?;
        let next = started.elapsed() + interval;
        while started.elapsed() < next && interrupt::asked().is_none() {
            thread::sleep((next - started.elapsed().min(next)).min(Duration::from_millis(100)));
        }
    }
    Ok(())
}

/// Bars as high as the numbers are relative to `most`; a blank for zero.
fn picture(numbers: impl Iterator<Item = u64>, most: u64) -> String {
    let bar = |number: u64| match number * BARS.len() as u64 / most.max(1) {
        _ if number == 0 => ' ',
        height => BARS[(height as usize).min(BARS.len() - 1)],
    };
    numbers.map(bar).collect()
}

/// A report in one line, for output that is no terminal.
fn line(report: &Report) -> String {
    let parts = report.lines.iter().filter(|line| line.bytes > 0);
    let parts: Vec<_> =
        parts.map(|line| format!("{} {}", line.label, text::mib(line.bytes))).collect();
    let at = report.at_seconds.unwrap_or(0.0);
    format!("{at:.1} s: {} resident: {}", text::mib(report.resident_bytes), parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars() {
        assert_eq!(picture([0, 1, 50, 100].into_iter(), 100), " ▁▅█");
        assert_eq!(picture([0].into_iter(), 0), " ");
    }

    #[test]
    fn intervals() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["x", "-1", "0", "NaN", "1e300"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
