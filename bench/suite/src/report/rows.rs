//! Every figure of the result as CSV, in the shape of `docs/benchmarks/*.csv`.
//!
//! A row is a figure of a case on an allocator, or how the allocator under test stands to the best
//! peer.

use anyhow::Result;
use serde::Serialize;

use super::data::Data;
use super::table::Standing;
use crate::case::{CPU, END, FAULTS, KERNEL, PEAK, TIME};

/// Figures that tell where the time goes.
const PARTS: [&str; 3] = [CPU, KERNEL, FAULTS];

#[derive(Serialize)]
struct Line<'a> {
    case: &'a str,
    allocator: &'a str,
    figure: &'a str,
    unit: &'a str,
    /// None if all runs failed.
    median: Option<f64>,
    /// The interquartile range in percent of the median.
    spread_percent: Option<f64>,
    /// Of a figure its quartiles, of a ratio its confidence interval.
    low: Option<f64>,
    high: Option<f64>,
    peer: &'a str,
    note: String,
}

/// The file's text.
pub fn write(data: &Data) -> Result<String> {
    let mut out = csv::Writer::from_writer(Vec::new());
    for case in data.cases() {
        for figure in [TIME, PEAK, END].into_iter().chain(PARTS).chain(data.other_figures(case)) {
            let (name, unit) = name_and_unit(figure);
            for allocator in data.everybody() {
                let failed = data.failed(case, allocator);
                let quartiles = data.quartiles(case, figure, allocator);
                let note = match (quartiles, failed) {
                    (None, 0) => continue,
                    // A case that failed has neither time nor peak; its other figures are unknown.
                    (None, _) if ![TIME, PEAK].contains(&figure) => continue,
                    (_, 0) => String::new(),
                    _ => format!("{failed} failed"),
                };
                let spread = quartiles.filter(|q| q.median != 0.0).map(|q| 100.0 * q.spread());
                out.serialize(Line {
                    case,
                    allocator,
                    figure: name,
                    unit,
                    median: quartiles.map(|q| q.median),
                    spread_percent: spread,
                    low: quartiles.map(|q| q.low),
                    high: quartiles.map(|q| q.high),
                    peer: "",
                    note,
                })?;
            }
            // A part of the time has no best peer: what counts is the whole.
            let standing = Standing::of(data, case, figure);
            if let Some(standing) = standing.filter(|_| !PARTS.contains(&figure)) {
                let comparison = standing.comparison;
                out.serialize(Line {
                    case,
                    allocator: data.ours(),
                    figure: name,
                    unit: "of best peer",
                    median: Some(comparison.ratio),
                    spread_percent: None,
                    low: Some(comparison.low),
                    high: Some(comparison.high),
                    peer: standing.peer,
                    note: standing.verdict(),
                })?;
            }
        }
    }
    Ok(String::from_utf8(out.into_inner()?)?)
}

/// `time_s` is the time in seconds.
fn name_and_unit(figure: &str) -> (&str, &str) {
    if figure.ends_with("_per_s") {
        return (figure, "per s");
    }
    let unit = [("_s", "s"), ("_kib", "KiB")];
    let of = |(end, unit)| Some((figure.strip_suffix(end)?, unit));
    unit.into_iter().find_map(of).unwrap_or((figure, ""))
}

#[cfg(test)]
mod tests {
    use super::super::data::tests::{add, data};
    use super::*;

    #[test]
    fn figures_and_ratios_have_rows() {
        let data = data(&[
            ("a/b", "glibc", &[2.0; 5]),
            ("a/b", "ebbmalloc", &[3.0; 5]),
            ("a/b", "ebbmalloc-slot", &[4.0; 5]),
        ]);
        let text = write(&data).unwrap();
        let lines: Vec<_> = text.lines().collect();
        let header = "case,allocator,figure,unit,median,spread_percent,low,high,peer,note";
        assert_eq!(lines[0], header);
        assert_eq!(lines[1], "a/b,glibc,time,s,2.0,0.0,2.0,2.0,,");
        assert!(
            lines.contains(&"a/b,ebbmalloc-slot,peak,KiB,4000.0,0.0,4000.0,4000.0,,"),
            "{text}"
        );
        let ratio = lines.iter().find(|line| line.contains("of best peer")).unwrap();
        assert!(ratio.starts_with("a/b,ebbmalloc,time,") && ratio.ends_with("glibc,worse"));
    }

    #[test]
    fn the_part_of_the_kernel_has_rows() {
        let mut data = data(&[("a/b", "glibc", &[2.0]), ("a/b", "ebbmalloc", &[2.0])]);
        for allocator in ["glibc", "ebbmalloc"] {
            add(&mut data, "a/b", allocator, &[(CPU, 2.0), (KERNEL, 0.5), (FAULTS, 1000.0)]);
        }
        let text = write(&data).unwrap();
        for row in ["cpu,s,2.0", "kernel,s,0.5", "page_faults,,1000.0"] {
            assert!(text.contains(&format!("a/b,glibc,{row},0.0,")), "{text}");
        }
    }

    #[test]
    fn units_stand_in_names() {
        assert_eq!(name_and_unit("time_s"), ("time", "s"));
        assert_eq!(name_and_unit("idle_1s_kib"), ("idle_1s", "KiB"));
        assert_eq!(name_and_unit("mib_per_s"), ("mib_per_s", "per s"));
    }
}
