//! The result of a comparison. Serialised unchanged, it is the output of `ebb compare --json`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Serialize;

use crate::measure::Sample;
use crate::metrics::{END, METRICS, PEAK, TIME};
use crate::stats::{Comparison, Summary, Verdict};

/// The whole result. Times are in seconds, memory in bytes.
#[derive(Serialize)]
pub struct Findings {
    /// The version of ebb.
    pub ebb: &'static str,
    /// The program and its arguments.
    pub program: Vec<String>,
    /// Counted runs on each allocator, and uncounted ones before them.
    pub runs: u32,
    pub warmup: u32,
    /// The system's allocator first.
    pub allocators: Vec<Allocator>,
    /// The rule by which verdicts are reached.
    pub foundation: String,
    /// Failures of the program, if they were ignored.
    pub failures: Vec<String>,
    /// The remarks that a reader needs.
    pub notes: Vec<String>,
}

/// The results of one allocator.
#[derive(Serialize)]
pub struct Allocator {
    pub name: String,
    /// The preloaded library; `None` for the system's allocator.
    pub library: Option<PathBuf>,
    /// Whether the library was in the program's memory in every run; null if that could not be
    /// observed, and for the system's allocator.
    pub loaded: Option<bool>,
    /// By metric, as named in the samples. A metric that was not measured is left out.
    pub metrics: BTreeMap<&'static str, Measured>,
    /// Time and memory against the system's allocator in words; `None` for the system's allocator.
    pub verdict: Option<String>,
    /// One for each counted run, in order.
    pub samples: Vec<Sample>,
}

/// A metric over all runs.
#[derive(Serialize)]
pub struct Measured {
    #[serde(flatten)]
    pub summary: Summary,
    /// The comparison with the system's allocator.
    pub comparison: Option<Comparison>,
}

impl Allocator {
    /// Sums up the runs of an allocator. `system` has the runs of the system's allocator; it is
    /// `None` for that one.
    pub fn new(
        name: String,
        library: Option<PathBuf>,
        loaded: Option<bool>,
        samples: Vec<Sample>,
        system: Option<&[Sample]>,
    ) -> Self {
        let values = |of: fn(&Sample) -> Option<f64>, samples: &[Sample]| {
            samples.iter().map(of).collect::<Option<Vec<_>>>()
        };
        let metrics: BTreeMap<_, _> = METRICS
            .iter()
            .filter_map(|metric| {
                let ours = values(metric.of, &samples)?;
                let theirs = system.and_then(|system| values(metric.of, system));
                let comparison = theirs.and_then(|theirs| Comparison::of(&theirs, &ours));
                Some((metric.key, Measured { summary: Summary::of(&ours)?, comparison }))
            })
            .collect();
        let verdict = system.map(|_| match loaded {
            Some(false) => "was not loaded into the program, so its runs are not about it".into(),
            _ => verdict(&metrics),
        });
        Self { name, library, loaded, metrics, verdict, samples }
    }

    pub fn failed(&self) -> usize {
        self.samples.iter().filter(|run| run.exit_code != Some(0)).count()
    }
}

/// One line per allocator whose runs failed, with emphasis where the others' did not.
pub fn failures(allocators: &[Allocator]) -> Vec<String> {
    let clean = allocators
        .iter()
        .filter(|allocator| allocator.failed() == 0)
        .map(|allocator| allocator.name.as_str());
    let clean = clean.collect::<Vec<_>>().join(", ");
    let contrast =
        if clean.is_empty() { String::new() } else { format!(", and in none on {clean}") };
    let failing = allocators.iter().filter(|allocator| allocator.failed() > 0);
    failing
        .map(|allocator| {
            format!(
                "the program failed in {} of {} runs on {}{contrast}",
                allocator.failed(),
                allocator.samples.len(),
                allocator.name
            )
        })
        .collect()
}

fn verdict(metrics: &BTreeMap<&str, Measured>) -> String {
    let of = |key| metrics.get(key).and_then(|measured| measured.comparison);
    let (time, peak, end) = (of(TIME), of(PEAK), of(END));
    let all = || [time, peak, end].into_iter().flatten();
    if all().any(|comparison| comparison.verdict == Verdict::TooFewRuns) {
        return "too few runs for a verdict".into();
    }
    if all().all(|comparison| comparison.verdict == Verdict::Same) {
        return "no difference beyond noise".into();
    }
    // Memory at the end is mentioned only where it differs.
    let end = end.filter(|comparison| comparison.verdict != Verdict::Same);
    let clauses = [(time, "time"), (peak, "peak memory"), (end, "memory at end")];
    let clauses = clauses.into_iter().filter_map(|(comparison, of)| Some(clause(comparison?, of)));
    clauses.collect::<Vec<_>>().join(", ")
}

fn clause(comparison: Comparison, what: &str) -> String {
    let percent = (comparison.ratio - 1.0).abs() * 100.0;
    match comparison.verdict {
        Verdict::More if comparison.ratio >= 2.0 => format!("{:.1} × the {what}", comparison.ratio),
        Verdict::More => format!("{percent:.0} % more {what}"),
        Verdict::Less => format!("{percent:.0} % less {what}"),
        _ => format!("no difference in {what} beyond noise"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(wall: f64, peak: u64, count: usize) -> Vec<Sample> {
        let sample = Sample {
            wall_seconds: wall,
            peak_bytes: peak,
            exit_code: Some(0),
            ..Sample::default()
        };
        vec![sample; count]
    }

    fn judged(wall: f64, peak: u64, count: usize) -> String {
        let system = runs(1.0, 1000, count);
        Allocator::new("x".into(), None, Some(true), runs(wall, peak, count), Some(&system))
            .verdict
            .unwrap()
    }

    #[test]
    fn verdicts_in_words() {
        assert_eq!(judged(0.88, 920, 5), "12 % less time, 8 % less peak memory");
        assert_eq!(
            judged(1.01, 1300, 5),
            "no difference in time beyond noise, 30 % more peak memory"
        );
        assert_eq!(
            judged(2.5, 1000, 5),
            "2.5 × the time, no difference in peak memory beyond noise"
        );
        assert_eq!(judged(1.0, 1001, 5), "no difference beyond noise");
        assert!(judged(0.5, 500, 3).contains("too few runs"));
    }

    #[test]
    fn a_library_that_was_not_loaded_gets_no_verdict() {
        let system = runs(1.0, 1000, 5);
        let allocator =
            Allocator::new("x".into(), None, Some(false), runs(0.5, 500, 5), Some(&system));
        assert!(allocator.verdict.unwrap().contains("not loaded"));
    }

    #[test]
    fn metrics_that_were_not_measured_are_left_out() {
        let allocator = Allocator::new("x".into(), None, None, runs(1.0, 1000, 5), None);
        assert!(
            !allocator.metrics.contains_key("cycles")
                && !allocator.metrics.contains_key("end_bytes")
        );
        assert!(allocator.metrics["minor_faults"].comparison.is_none());
    }

    #[test]
    fn failures_on_one_side_only_are_told() {
        let good = Allocator::new("good".into(), None, None, runs(1.0, 1, 2), None);
        let mut samples = runs(1.0, 1, 2);
        samples[1].exit_code = None;
        let bad = Allocator::new("bad".into(), None, None, samples, None);
        assert_eq!(
            failures(&[good, bad]),
            ["the program failed in 1 of 2 runs on bad, and in none on good"]
        );
    }
}
