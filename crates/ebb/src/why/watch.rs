//! Implements `ebb why --watch`: repeats the report and charts each line over time.

use std::collections::VecDeque;
use std::io::{self, IsTerminal};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::report::Report;
use super::text;
use crate::screen::Screen;
use crate::{interrupt, output};

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
    let is_drawn = io::stdout().is_terminal() && !json;
    let mut screen = None;
    let mut farewell = None;
    let mut history: VecDeque<Report> = VecDeque::new();
    let mut all = Vec::new();
    while interrupt::asked().is_none() {
        let mut report = match Report::of(pid) {
            Ok(report) => report,
            Err(error) if history.is_empty() => return Err(error),
            Err(error) => {
                farewell = Some(error);
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
            output::print_line(serde_json::to_string(&report)?)?;
        } else if is_drawn {
            if screen.is_none() {
                screen = Some(Screen::open().map_err(output::refused)?);
            }
            let most = history.iter().map(|report| report.resident_bytes).max().unwrap_or(0);
            let footer = format!(
                "{:.0} s; one bar is {interval:?}, full height is {}; Ctrl-C ends",
                started.elapsed().as_secs_f64(),
                text::mib(most)
            );
            let text = drawing(&history, most, Screen::columns());
            if let Some(screen) = &mut screen {
                screen.show(&text, &footer).map_err(output::refused)?;
            }
        } else {
            output::print_line(line(&report))?;
        }
        let next = started.elapsed() + interval;
        while started.elapsed() < next && interrupt::asked().is_none() {
            thread::sleep((next - started.elapsed().min(next)).min(Duration::from_millis(100)));
        }
    }
    drop(screen);
    // What was last seen stays on the usual screen.
    if is_drawn {
        let most = history.iter().map(|report| report.resident_bytes).max().unwrap_or(0);
        output::print(drawing(&history, most, Screen::columns()))?;
    }
    if let Some(error) = farewell {
        output::remark(format_args!("{error:#}"));
    }
    Ok(())
}

/// The newest report, with a chart of each line that fits into the columns.
fn drawing(history: &VecDeque<Report>, most: u64, columns: usize) -> String {
    let points = POINTS.min(columns.saturating_sub(text::ROW_COLUMNS));
    let shown = history.len().saturating_sub(points);
    let chart =
        |name: &str| picture(history.iter().skip(shown).map(|report| report.bytes(name)), most);
    history.back().map_or(String::new(), |report| text::brief(report, &chart))
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
