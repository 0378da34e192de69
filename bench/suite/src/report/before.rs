//! The library under test against the build before it: in the mean, and case by case.

use super::data::Data;
use super::means::Compared;
use super::table::{self, Row, Standing, cells, ratio_of, verdict_of};
use crate::case::{PEAK, TIME, group_of};

/// Ratios to a build that differs little need more digits than those to peers.
const DECIMALS: usize = 3;

/// The section of the document; nothing if no other build took part.
pub fn write(data: &Data) -> String {
    let ours = data.ours();
    let compared = data.before().and_then(|before| {
        Some((before, Compared::among(data, vec![before, ours], before)?.cases))
    });
    let Some((before, cases)) = compared else { return String::new() };
    let introduction = format!(
        "Ratios {ours} / {before}; below 1, {ours} is better. Programs that have {ours} built in \
         are \
         left out. A geometric mean is taken in each round; shown are the median of the rounds \
         and, \
         in brackets, its confidence interval.\n\n"
    );
    let times = format!("\nTime:\n\n{}", by_case(data, &cases, TIME, before));
    let peaks = format!("\nPeak memory:\n\n{}", by_case(data, &cases, PEAK, before));
    introduction + &means(data, &cases, before) + &times + &peaks
}

/// Over all cases, then over each group.
fn means(data: &Data, cases: &[&str], before: &str) -> String {
    let mut lines = vec![("all", cases.to_vec())];
    for case in cases {
        let group = group_of(case);
        match lines[1..].iter_mut().find(|(name, _)| *name == group) {
            Some((_, of_group)) => of_group.push(case),
            None => lines.push((group, vec![case])),
        }
    }
    let header = ["over", "cases", "time", "verdict", "peak memory", "verdict"];
    let body = lines.iter().map(|(name, cases)| {
        let mut row = vec![name.to_string(), cases.len().to_string()];
        for figure in [TIME, PEAK] {
            let mean = data.mean_ratio(cases, figure, data.ours(), before);
            row.extend(match mean {
                Some(mean) => [ratio_of(&mean, DECIMALS), verdict_of(&mean, false).into()],
                None => ["-".into(), "-".into()],
            });
        }
        row
    });
    table::table(header.map(String::from).into(), body)
}

fn by_case(data: &Data, cases: &[&str], figure: &str, before: &str) -> String {
    let header = ["case", "unit", data.ours(), before, "ratio", "verdict"];
    let body = cases.iter().filter_map(|&case| {
        let standing = Standing::to(data, case, figure, before)?;
        let mut row =
            cells(data, &Row { label: case.into(), case, figure }, &[data.ours(), before]);
        row.extend([ratio_of(&standing.comparison, DECIMALS), standing.verdict()]);
        Some(row)
    });
    table::table(header.map(String::from).into(), body)
}

#[cfg(test)]
mod tests {
    use super::super::data::tests::data;
    use super::*;

    #[test]
    fn cases_that_both_builds_ran_are_compared() {
        let data = data(&[
            ("a/1", "before", &[1.0; 5]),
            ("a/1", "ebbmalloc", &[0.5; 5]),
            ("b/1", "before", &[1.0; 5]),
            ("b/1", "ebbmalloc", &[2.0; 5]),
            ("b/2", "ebbmalloc", &[1.0; 5]),
        ]);
        let text = write(&data);
        let row = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(&format!("| {name} "))).unwrap();
            line.split('|').map(str::trim).map(String::from).collect::<Vec<_>>()
        };
        assert_eq!(row("all")[2..5], ["2", "1.000 (1.000..1.000)", "same"]);
        assert_eq!(row("a")[2..5], ["1", "0.500 (0.500..0.500)", "better"]);
        assert_eq!(row("b/1")[5..7], ["2.000 (2.000..2.000)", "worse"]);
        assert!(!text.contains("b/2"), "{text}");
    }

    #[test]
    fn without_another_build_there_is_no_section() {
        assert!(write(&data(&[("a/1", "ebbmalloc", &[1.0])])).is_empty());
    }
}
