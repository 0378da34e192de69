//! The results, by case, figure and allocator, with what is asked of them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Result;
use ebb::stats::{Comparison, Quartiles, geometric_mean};

use crate::case::{CPU, END, FAULTS, KERNEL, Kind, PEAK, Series, TIME};
use crate::conditions::{Conditions, Described};
use crate::results::{self, FAILED, Failure, Record};

/// Above this relative spread (interquartile range over median) a figure is noisy.
pub const NOISY: f64 = 0.10;

/// What ratios to one allocator are taken to.
pub const BASE: &str = "glibc";

/// A figure's values by round.
type Rounds = BTreeMap<u32, f64>;

pub struct Data {
    pub conditions: Conditions,
    pub failures: Vec<Failure>,
    /// Memory over time by case, then allocator.
    pub series: BTreeMap<String, BTreeMap<String, Series>>,
    /// By case and figure, then allocator.
    values: BTreeMap<(String, String), BTreeMap<String, Rounds>>,
}

impl Data {
    pub fn read(out: &Path) -> Result<Self> {
        let mut data =
            Self::new(Conditions::read(out)?, results::read(out)?, results::read_failures(out)?);
        for ((case, allocator), series) in results::read_series(out)? {
            data.series.entry(case).or_default().insert(allocator, series);
        }
        Ok(data)
    }

    pub fn new(conditions: Conditions, records: Vec<Record>, failures: Vec<Failure>) -> Self {
        let mut values = BTreeMap::<_, BTreeMap<_, Rounds>>::new();
        for Record { case, allocator, round, figure, value } in records {
            let rounds = values.entry((case, figure)).or_default().entry(allocator).or_default();
            rounds.insert(round, value);
        }
        Self { conditions, failures, series: BTreeMap::new(), values }
    }

    /// The cases in order.
    pub fn cases(&self) -> impl Iterator<Item = &str> {
        self.conditions.cases.iter().map(|case| case.name.as_str())
    }

    fn names(&self, of: impl Fn(Kind) -> bool) -> Vec<&str> {
        let wanted = |allocator: &&Described| of(allocator.kind);
        self.conditions.allocators.iter().filter(wanted).map(|a| a.name.as_str()).collect()
    }

    /// All allocators that took part, in the order of the tables.
    pub fn everybody(&self) -> Vec<&str> {
        self.names(|_| true)
    }

    pub fn peers(&self) -> Vec<&str> {
        self.names(|kind| kind == Kind::Peer)
    }

    /// The peers and the allocator under test in the mode that it chooses: those that run all
    /// cases.
    pub fn regulars(&self) -> Vec<&str> {
        self.names(|kind| matches!(kind, Kind::Peer | Kind::Ours))
    }

    /// The same with the guests of some cases.
    pub fn everyone(&self) -> Vec<&str> {
        self.names(|kind| matches!(kind, Kind::Peer | Kind::Ours | Kind::Guest))
    }

    /// The allocator under test in the mode that it chooses, and in forced modes.
    pub fn modes(&self) -> Vec<&str> {
        self.names(|kind| matches!(kind, Kind::Ours | Kind::OurMode))
    }

    /// The allocator under test, and where it looks for mistakes.
    pub fn cares(&self) -> Vec<&str> {
        self.names(|kind| matches!(kind, Kind::Ours | Kind::OurCare))
    }

    /// The allocator under test.
    pub fn ours(&self) -> &str {
        self.names(|kind| kind == Kind::Ours).first().copied().unwrap_or_default()
    }

    /// The build before the one under test, if it took part.
    pub fn before(&self) -> Option<&str> {
        self.names(|kind| kind == Kind::Before).first().copied()
    }

    /// Figures of a case that its program reported beside its time and peak.
    pub fn other_figures(&self, case: &str) -> Vec<&str> {
        let known = BTreeSet::from([TIME, PEAK, CPU, KERNEL, FAULTS, END, FAILED]);
        let names = self.values.keys().filter(|(of, _)| of == case);
        names.map(|(_, figure)| figure.as_str()).filter(|name| !known.contains(name)).collect()
    }

    fn rounds(&self, case: &str, figure: &str, allocator: &str) -> Option<&Rounds> {
        self.values.get(&(case.into(), figure.into()))?.get(allocator)
    }

    pub fn quartiles(&self, case: &str, figure: &str, allocator: &str) -> Option<Quartiles> {
        Quartiles::of(self.rounds(case, figure, allocator)?.values().copied())
    }

    pub fn median(&self, case: &str, figure: &str, allocator: &str) -> Option<f64> {
        Some(self.quartiles(case, figure, allocator)?.median)
    }

    pub fn noisy(&self, case: &str, figure: &str, allocator: &str) -> bool {
        self.quartiles(case, figure, allocator).is_some_and(|q| q.spread() > NOISY)
    }

    /// An allocator against another, by pairs of runs of one round: a slow spell of the machine
    /// cancels out.
    pub fn ratio(&self, case: &str, figure: &str, of: &str, to: &str) -> Option<Comparison> {
        let (_, to, of) = self.pairs(case, figure, of, to)?;
        Comparison::of(&to, &of)
    }

    /// The rounds that both have, with the values of `to` and of `of`.
    fn pairs(
        &self,
        case: &str,
        figure: &str,
        of: &str,
        to: &str,
    ) -> Option<(Vec<u32>, Vec<f64>, Vec<f64>)> {
        let (of, to) = (self.rounds(case, figure, of)?, self.rounds(case, figure, to)?);
        let pairs = of.iter().filter_map(|(&round, &value)| Some((round, *to.get(&round)?, value)));
        Some(pairs.collect())
    }

    /// The geometric mean of these ratios over cases that all have one. It is taken in each
    /// round, so that the rounds give its confidence interval. In a round that a case does not
    /// run in, its median ratio counts.
    pub fn mean_ratio(
        &self,
        cases: &[&str],
        figure: &str,
        of: &str,
        to: &str,
    ) -> Option<Comparison> {
        let ratios = cases.iter().map(|case| {
            let median = self.ratio(case, figure, of, to)?.ratio;
            let (rounds, base, values) = self.pairs(case, figure, of, to)?;
            let ratios = values.iter().zip(base).map(|(value, base)| value / base);
            Some((rounds.into_iter().zip(ratios).collect::<Rounds>(), median))
        });
        let ratios: Vec<_> = ratios.collect::<Option<_>>()?;
        let rounds: BTreeSet<_> = ratios.iter().flat_map(|(by_round, _)| by_round.keys()).collect();
        let mean = |round| {
            let of_case =
                |(by_round, median): &(Rounds, f64)| *by_round.get(round).unwrap_or(median);
            geometric_mean(&ratios.iter().map(of_case).collect::<Vec<_>>())
        };
        let means: Vec<_> = rounds.into_iter().filter_map(mean).collect();
        Comparison::of(&vec![1.0; means.len()], &means)
    }

    /// The peer, or guest, with the best median.
    pub fn best_peer(&self, case: &str, figure: &str) -> Option<&str> {
        let sign = if more_is_better(figure) { -1.0 } else { 1.0 };
        let medians = self
            .names(|kind| matches!(kind, Kind::Peer | Kind::Guest))
            .into_iter()
            .filter_map(|peer| Some((sign * self.median(case, figure, peer)?, peer)));
        Some(medians.min_by(|a, b| a.0.total_cmp(&b.0))?.1)
    }

    /// How many runs of a case failed on an allocator.
    pub fn failed(&self, case: &str, allocator: &str) -> usize {
        self.rounds(case, FAILED, allocator).map_or(0, Rounds::len)
    }
}

/// Of most figures less is better, but not of rates.
pub fn more_is_better(figure: &str) -> bool {
    figure.ends_with("_per_s")
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::conditions::DescribedCase;

    /// Results of a few cases: case, allocator, and `time_s` by round (`peak_kib` is a thousand
    /// times that).
    pub fn data(runs: &[(&str, &str, &[f64])]) -> Data {
        let mut allocators: Vec<Described> = Vec::new();
        let mut cases: Vec<DescribedCase> = Vec::new();
        let mut records = Vec::new();
        for &(case, allocator, times) in runs {
            if !cases.iter().any(|known| known.name == case) {
                cases.push(DescribedCase {
                    name: case.into(),
                    about: "works".into(),
                    threads: None,
                });
            }
            if !allocators.iter().any(|known| known.name == allocator) {
                let kind = match allocator {
                    "ebbmalloc" => Kind::Ours,
                    "ebbmalloc-harden" => Kind::OurCare,
                    "before" => Kind::Before,
                    name if name.starts_with("ebbmalloc") => Kind::OurMode,
                    name if name.starts_with("guest") => Kind::Guest,
                    _ => Kind::Peer,
                };
                allocators.push(Described { name: allocator.into(), origin: "here".into(), kind });
            }
            for (round, &value) in (1..).zip(times) {
                for (figure, value) in [(TIME, value), (PEAK, 1000.0 * value)] {
                    let (case, allocator) = (case.into(), allocator.into());
                    records.push(Record { case, allocator, round, figure: figure.into(), value });
                }
            }
        }
        let conditions = Conditions {
            machine: "a machine".into(),
            load_before: "0".into(),
            load_after: "0".into(),
            rounds: 5,
            quick: false,
            library: "a library".into(),
            build_before: None,
            tuning: Vec::new(),
            mode: "mode percpu".into(),
            allocators,
            cases,
            missing: Vec::new(),
            draws: Vec::new(),
        };
        Data::new(conditions, records, Vec::new())
    }

    /// Adds further figures of one round.
    pub fn add(data: &mut Data, case: &str, allocator: &str, figures: &[(&str, f64)]) {
        for &(figure, value) in figures {
            let of_figure = data.values.entry((case.into(), figure.into())).or_default();
            of_figure.entry(allocator.into()).or_default().insert(1, value);
        }
    }

    #[test]
    fn ratios_pair_runs_of_one_round() {
        // The machine was ten times slower in round 2, for both; round 3 has no partner.
        let data = data(&[("a/b", "glibc", &[1.0, 10.0]), ("a/b", "ebbmalloc", &[2.0, 20.0, 9.0])]);
        let ratio = data.ratio("a/b", TIME, "ebbmalloc", "glibc").unwrap();
        assert!([ratio.low, ratio.ratio, ratio.high].iter().all(|r| (r - 2.0).abs() < 1e-9));
    }

    #[test]
    fn a_mean_is_taken_in_each_round() {
        let data = data(&[
            ("a/b", "before", &[1.0, 1.0, 1.0, 1.0, 1.0]),
            ("a/b", "ebbmalloc", &[2.0, 4.0, 2.0, 2.0, 2.0]),
            ("a/c", "before", &[1.0, 10.0]),
            ("a/c", "ebbmalloc", &[8.0, 80.0]),
        ]);
        let mean = data.mean_ratio(&["a/b", "a/c"], TIME, "ebbmalloc", "before").unwrap();
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(near(mean.low, 4.0) && near(mean.ratio, 4.0) && near(mean.high, 32f64.sqrt()));
        assert!(data.mean_ratio(&["a/b", "a/d"], TIME, "ebbmalloc", "before").is_none());
    }

    #[test]
    fn the_best_peer_is_a_peer() {
        let data = data(&[
            ("a/b", "glibc", &[3.0]),
            ("a/b", "snmalloc", &[2.0]),
            ("a/b", "ebbmalloc", &[1.0]),
            ("a/b", "ebbmalloc-slot", &[0.5]),
            ("a/c", "glibc", &[3.0]),
            ("a/c", "guest", &[2.0]),
        ]);
        assert_eq!(data.best_peer("a/b", TIME), Some("snmalloc"));
        assert_eq!(data.best_peer("a/c", TIME), Some("guest"));
        assert_eq!(data.regulars(), ["glibc", "snmalloc", "ebbmalloc"]);
        assert_eq!(data.everyone(), ["glibc", "snmalloc", "ebbmalloc", "guest"]);
        assert_eq!(data.modes(), ["ebbmalloc", "ebbmalloc-slot"]);
        assert!(more_is_better("mib_per_s") && !more_is_better("time_s"));
    }
}
