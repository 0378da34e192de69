//! The tables, as Markdown.

use std::iter::repeat_with;

use comfy_table::{CellAlignment, Table, presets};
use ebb::stats::{Comparison, Verdict};

use super::data::{Data, more_is_better};
use super::means::{Mean, Ratio};
use super::unit::Unit;

/// A figure of a case.
pub struct Row<'a> {
    pub label: String,
    pub case: &'a str,
    pub figure: &'a str,
}

/// One row for each case that has the figure, or should have.
pub fn rows<'a>(data: &'a Data, figure: &'a str) -> Vec<Row<'a>> {
    let row = |case: &'a str| Row { label: case.into(), case, figure };
    let has = |row: &Row| {
        let all = data.everyone();
        all.iter().any(|name| data.median(row.case, figure, name).is_some())
            || all.iter().all(|name| data.failed(row.case, name) > 0)
    };
    data.cases().map(row).filter(has).collect()
}

/// Rows by allocators, with the best peer and how the allocator under test compares to it.
pub fn against_peers(data: &Data, rows: &[Row]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let allocators = data.everyone();
    let ours = data.ours();
    let mut header = vec!["case".to_string(), "unit".into()];
    header.extend(allocators.iter().map(|name| name.to_string()));
    header.extend(["best peer".into(), format!("{ours} / best peer"), "verdict".into()]);
    let body = rows.iter().map(|row| {
        let mut cells = cells(data, row, &allocators);
        let standing = Standing::of(data, row.case, row.figure);
        cells.extend(match standing {
            Some(standing) => [standing.peer.into(), standing.ratio(), standing.verdict()],
            None => ["-".into(), "-".into(), "-".into()],
        });
        cells
    });
    table(header, body)
}

/// Rows by modes of the allocator under test, which is the first of them: only those that have
/// some.
pub fn of_modes(data: &Data, figure: &str, modes: &[&str]) -> Option<String> {
    let forced =
        |row: &Row| modes[1..].iter().any(|mode| data.median(row.case, figure, mode).is_some());
    let rows: Vec<_> =
        rows(data, figure).into_iter().filter(|row| modes.len() > 1 && forced(row)).collect();
    let mut header = vec!["case".to_string(), "unit".into()];
    header.extend(modes.iter().map(|name| name.to_string()));
    let body: Vec<_> = rows.iter().map(|row| cells(data, row, modes)).collect();
    (!body.is_empty()).then(|| table(header, body))
}

/// Label, unit, and a figure for each allocator.
pub fn cells(data: &Data, row: &Row, allocators: &[&str]) -> Vec<String> {
    let medians = allocators.iter().filter_map(|name| data.median(row.case, row.figure, name));
    let unit = Unit::of(row.figure, medians.min_by(f64::total_cmp).unwrap_or_default());
    let cell = |name: &&str| {
        let failed = data.failed(row.case, name);
        match data.quartiles(row.case, row.figure, name) {
            None if failed > 0 => "failed".into(),
            None => "-".into(),
            Some(q) => {
                let noisy = if data.noisy(row.case, row.figure, name) { "~" } else { "" };
                let spread = if q.median == 0.0 { 0.0 } else { 100.0 * q.spread() };
                let failed = if failed > 0 { format!(", {failed} failed") } else { String::new() };
                format!("{noisy}{} ({spread:.0} %){failed}", unit.show(q.median))
            }
        }
    };
    let figures: Vec<String> = allocators.iter().map(cell).collect();
    [row.label.clone(), unit.name].into_iter().chain(figures).collect()
}

/// How the allocator under test stands to the best peer in a case.
pub struct Standing<'a> {
    pub case: &'a str,
    pub peer: &'a str,
    pub comparison: Comparison,
    noisy: bool,
    more_is_better: bool,
}

impl<'a> Standing<'a> {
    pub fn of(data: &'a Data, case: &'a str, figure: &str) -> Option<Self> {
        Self::to(data, case, figure, data.best_peer(case, figure)?)
    }

    /// The same to any other allocator.
    pub fn to(data: &'a Data, case: &'a str, figure: &str, peer: &'a str) -> Option<Self> {
        let comparison = data.ratio(case, figure, data.ours(), peer)?;
        let noisy = [peer, data.ours()].iter().any(|name| data.noisy(case, figure, name));
        Some(Self { case, peer, comparison, noisy, more_is_better: more_is_better(figure) })
    }

    /// The median of the paired ratios and its confidence interval.
    pub fn ratio(&self) -> String {
        ratio_of(&self.comparison, 2)
    }

    pub fn verdict(&self) -> String {
        let word = verdict_of(&self.comparison, self.more_is_better);
        format!("{word}{}", if self.noisy { ", noisy" } else { "" })
    }
}

/// A ratio with that many decimals, and its confidence interval.
pub fn ratio_of(comparison: &Comparison, decimals: usize) -> String {
    let Comparison { ratio, low, high, .. } = comparison;
    format!("{ratio:.decimals$} ({low:.decimals$}..{high:.decimals$})")
}

pub fn verdict_of(comparison: &Comparison, more_is_better: bool) -> &'static str {
    match (comparison.verdict, more_is_better) {
        (Verdict::Less, false) | (Verdict::More, true) => "better",
        (Verdict::More, false) | (Verdict::Less, true) => "worse",
        (Verdict::Same, _) => "same",
        (Verdict::TooFewRuns, _) => "too few rounds",
    }
}

/// Where the allocator under test needs more than `above` times what the best peer needs, worst
/// first.
pub fn losses(data: &Data, figure: &str, above: f64) -> Option<String> {
    let standings = data.cases().filter_map(|case| Standing::of(data, case, figure));
    let mut worse: Vec<_> = standings.filter(|s| s.comparison.ratio > above).collect();
    worse.sort_by(|a, b| b.comparison.ratio.total_cmp(&a.comparison.ratio));
    let ours = data.ours();
    let header = ["case", "unit", ours, "best peer", "its figure", "ratio", "verdict"];
    let body: Vec<_> = worse
        .iter()
        .map(|standing| {
            let row = Row { label: standing.case.into(), case: standing.case, figure };
            let mut cells = cells(data, &row, &[ours, standing.peer]);
            cells.insert(3, standing.peer.into());
            cells.extend([standing.ratio(), standing.verdict()]);
            cells
        })
        .collect();
    (!body.is_empty()).then(|| table(header.map(String::from).into(), body))
}

/// Means of time and of peak memory, by what they are over and allocator.
pub fn of_means(allocators: &[&str], time: &[Mean], memory: &[Mean]) -> String {
    let header = ["over", "allocator", "cases", "time", "peak memory"].map(str::to_string);
    let parts = time.iter().zip(memory).flat_map(|(time, memory)| {
        let ratios = time.ratios.iter().zip(&memory.ratios);
        let cells = ratios.map(|(time, memory)| [time.to_string(), memory.to_string()]);
        part(&time.over, time.cases, allocators, cells)
    });
    table(header.into(), parts)
}

/// A row for each allocator. The first one tells what they are over.
pub fn part<const N: usize>(
    over: &str,
    cases: usize,
    allocators: &[&str],
    cells: impl IntoIterator<Item = [String; N]>,
) -> Vec<Vec<String>> {
    let first = (over.to_string(), cases.to_string());
    let labels = [first].into_iter().chain(repeat_with(Default::default));
    let row = |((name, (over, cases)), cells): ((&&str, (String, String)), [String; N])| {
        [over, name.to_string(), cases].into_iter().chain(cells).collect()
    };
    allocators.iter().zip(labels).zip(cells).map(row).collect()
}

/// A name, how many cases count, and the means of time and peak memory.
pub fn of_cares(lines: &[(&str, usize, Ratio, Ratio)]) -> String {
    let header = ["", "cases", "time", "peak memory"].map(str::to_string);
    let row = |(name, cases, time, peak): &(&str, usize, Ratio, Ratio)| {
        vec![name.to_string(), cases.to_string(), time.to_string(), peak.to_string()]
    };
    table(header.into(), lines.iter().map(row))
}

pub fn table(header: Vec<String>, body: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header(header).add_rows(body);
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    format!("{table}\n")
}

#[cfg(test)]
mod tests {
    use super::super::data::tests::data;
    use super::*;
    use crate::case::{PEAK, TIME};

    #[test]
    fn rows_tell_best_peer_ratio_and_noise() {
        let data = data(&[
            ("a/b", "glibc", &[0.002; 5]),
            ("a/b", "slow", &[0.003, 0.004, 0.005, 0.006, 0.007]),
            ("a/b", "ebbmalloc", &[0.004; 5]),
            ("a/b", "ebbmalloc-slot", &[0.001; 5]),
        ]);
        let text = against_peers(&data, &rows(&data, TIME));
        let row: Vec<_> = text.lines().nth(2).unwrap().split('|').map(str::trim).collect();
        let expected = [
            "",
            "a/b",
            "ms",
            "2.00 (0 %)",
            "~5.00 (40 %)",
            "4.00 (0 %)",
            "glibc",
            "2.00 (2.00..2.00)",
            "worse",
            "",
        ];
        assert_eq!(row, expected);
        let modes = of_modes(&data, PEAK, &data.modes()).unwrap();
        assert!(modes.contains("ebbmalloc-slot") && !modes.contains("glibc"), "{modes}");
        let losses = losses(&data, TIME, 1.1).unwrap();
        assert!(losses.contains("| a/b  | ms"), "{losses}");
    }

    #[test]
    fn means_have_a_row_for_each_allocator_and_fit_a_terminal() {
        let means = |over: &str| {
            let ratio = |mean| Ratio { mean, interval: Some((0.9 * mean, 1.1 * mean)) };
            let base = Ratio { mean: 1.0, interval: None };
            Mean { over: over.into(), cases: 100, ratios: vec![base, ratio(1.0), ratio(2.0)] }
        };
        let means = [means("all"), means("allocating")];
        let text = of_means(&["glibc", "jemalloc-debian", "ebbmalloc"], &means, &means);
        let rows: Vec<Vec<_>> =
            text.lines().map(|line| line.split('|').map(str::trim).collect()).collect();
        assert_eq!(rows[2], ["", "all", "glibc", "100", "1.00", "1.00", ""]);
        let ratio = "2.00 (1.80..2.20)";
        assert_eq!(rows[4], ["", "", "ebbmalloc", "", ratio, ratio, ""]);
        assert_eq!((rows[5][1], rows.len()), ("allocating", 8));
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    }

    #[test]
    fn noise_and_few_rounds_are_said() {
        let data = data(&[("a/b", "glibc", &[1.0, 2.0]), ("a/b", "ebbmalloc", &[0.5, 1.0])]);
        let standing = Standing::of(&data, "a/b", TIME).unwrap();
        assert_eq!(standing.verdict(), "too few rounds, noisy");
        assert_eq!(standing.ratio(), "0.50 (0.50..0.50)");
        assert!(losses(&data, TIME, 1.1).is_none());
    }

    #[test]
    fn who_failed_is_seen() {
        let mut records = Vec::new();
        let mut base = data(&[("a/b", "glibc", &[1.0]), ("a/b", "ebbmalloc", &[1.0])]);
        for (allocator, figure) in [("glibc", TIME), ("ebbmalloc", crate::results::FAILED)] {
            let (case, allocator, figure) = ("a/b".into(), allocator.into(), figure.into());
            records.push(crate::results::Record { case, allocator, round: 1, figure, value: 1.0 });
        }
        base = Data::new(base.conditions, records, Vec::new());
        let text = against_peers(&base, &rows(&base, TIME));
        assert!(text.contains(" failed |"), "{text}");
    }
}
