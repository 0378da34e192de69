//! Geometric means over cases, of ratios to one allocator, with their confidence intervals.

use std::fmt;

use ebb::stats::geometric_mean;
use statrs::distribution::{ContinuousCDF, StudentsT};
use statrs::statistics::Statistics;

use super::data::{BASE, Data};
use crate::case::{PEAK, TIME, group_of};

/// Means of fewer cases have no confidence interval.
const CASES_LEAST: usize = 3;

/// Over some cases, for each of the compared allocators.
pub struct Mean {
    /// A group, or "all".
    pub over: String,
    pub cases: usize,
    pub ratios: Vec<Ratio>,
}

/// The geometric mean of a ratio over cases.
#[derive(Clone, Copy)]
pub struct Ratio {
    /// NaN without cases.
    pub mean: f64,
    /// The 95 % confidence interval: Student's t interval of the mean of the logarithms. It says
    /// how far the mean depends on which cases were chosen. None for fewer than three cases, and
    /// for ratios that are all the same, as those of the base.
    pub interval: Option<(f64, f64)>,
}

impl Ratio {
    fn of(ratios: &[f64]) -> Self {
        let Some(mean) = geometric_mean(ratios) else {
            return Self { mean: f64::NAN, interval: None };
        };
        let logs: Vec<_> = ratios.iter().map(|ratio| ratio.ln()).collect();
        let error = (&logs).std_dev() / (logs.len() as f64).sqrt();
        let interval = (logs.len() >= CASES_LEAST && error > 0.0).then(|| {
            let t = StudentsT::new(0.0, 1.0, logs.len() as f64 - 1.0).expect("degrees of freedom");
            let factor = (t.inverse_cdf(0.975) * error).exp();
            (mean / factor, mean * factor)
        });
        Self { mean, interval }
    }
}

/// The mean, and in brackets its interval.
impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{:.2}", self.mean)?;
        match self.interval {
            Some((low, high)) => write!(f, " ({low:.2}..{high:.2})"),
            None => Ok(()),
        }
    }
}

/// Who is compared, on what.
pub struct Compared<'a> {
    pub base: &'a str,
    pub allocators: Vec<&'a str>,
    pub cases: Vec<&'a str>,
    /// Cases that do not count, with those who have no result there.
    pub left_out: Vec<(&'a str, Vec<&'a str>)>,
}

impl<'a> Compared<'a> {
    /// Everybody to the usual base. None without that.
    pub fn of(data: &'a Data) -> Option<Self> {
        Self::among(data, data.regulars(), BASE)
    }

    /// Only cases where all have a ratio count: leaving out what one fails at would flatter it.
    /// Who has none at all is not compared. None without the base.
    pub fn among(data: &'a Data, mut allocators: Vec<&'a str>, base: &'a str) -> Option<Self> {
        let has = |case: &str, allocator: &str| {
            let ratio = |figure| data.ratio(case, figure, allocator, base);
            ratio(TIME).is_some() && ratio(PEAK).is_some()
        };
        allocators.retain(|allocator| data.cases().any(|case| has(case, allocator)));
        if !allocators.contains(&base) {
            return None;
        }
        let mut compared = Self { base, allocators, cases: Vec::new(), left_out: Vec::new() };
        for case in data.cases() {
            let all = compared.allocators.iter().copied();
            let without: Vec<_> = all.filter(|allocator| !has(case, allocator)).collect();
            match without.is_empty() {
                true => compared.cases.push(case),
                false => compared.left_out.push((case, without)),
            }
        }
        Some(compared)
    }

    /// Over all cases, then over each group.
    pub fn means(&self, data: &Data, figure: &str) -> Vec<Mean> {
        let mean = |(over, cases): (&str, Vec<&str>)| self.mean(data, figure, over, &cases);
        all_and_groups(&self.cases).into_iter().map(mean).collect()
    }

    fn mean(&self, data: &Data, figure: &str, over: &str, cases: &[&str]) -> Mean {
        let ratios = self.allocators.iter().map(|allocator| {
            let ratio = |case: &&str| Some(data.ratio(case, figure, allocator, self.base)?.ratio);
            Ratio::of(&cases.iter().filter_map(ratio).collect::<Vec<_>>())
        });
        Mean { ratios: ratios.collect(), over: over.into(), cases: cases.len() }
    }
}

/// All cases, and if they are of several groups the cases of each, with their names.
pub fn all_and_groups<'a>(cases: &[&'a str]) -> Vec<(&'a str, Vec<&'a str>)> {
    let mut parts = vec![("all", cases.to_vec())];
    for case in cases {
        // Cases that were added to a run by another may stand apart from those of their group.
        match parts[1..].iter_mut().find(|(group, _)| *group == group_of(case)) {
            Some((_, cases)) => cases.push(case),
            None => parts.push((group_of(case), vec![case])),
        }
    }
    if parts.len() == 2 {
        parts.pop();
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::super::data::tests::data;
    use super::*;

    #[test]
    fn only_cases_that_all_have_count() {
        let data = data(&[
            ("a/1", "glibc", &[1.0, 2.0]),
            ("a/1", "slow", &[2.0, 4.0]),
            ("a/1", "ebbmalloc", &[0.5, 1.0]),
            ("a/2", "glibc", &[1.0]),
            ("a/2", "slow", &[8.0]),
            ("a/2", "ebbmalloc", &[2.0]),
            ("b/1", "glibc", &[1.0]),
            ("b/1", "ebbmalloc", &[0.1]),
        ]);
        let compared = Compared::of(&data).unwrap();
        assert_eq!(compared.allocators, ["glibc", "slow", "ebbmalloc"]);
        assert_eq!(compared.cases, ["a/1", "a/2"]);
        assert_eq!(compared.left_out, [("b/1", vec!["slow"])]);
        for figure in [TIME, PEAK] {
            let means = compared.means(&data, figure);
            assert_eq!((means[0].over.as_str(), means[0].cases, means.len()), ("all", 2, 1));
            let expected = [1.0, 4.0, 1.0];
            assert!(means[0].ratios.iter().zip(expected).all(|(a, b)| (a.mean - b).abs() < 1e-9));
        }
    }

    #[test]
    fn intervals_are_those_of_the_t_distribution() {
        // The logarithms to base 2 are 0, 1 and 2: their standard error is 1/√3, and t is 4.3027.
        let ratio = Ratio::of(&[1.0, 2.0, 4.0]);
        let (low, high) = ratio.interval.unwrap();
        let factor = 2f64.powf(4.302652729749 / 3f64.sqrt());
        assert!((low - 2.0 / factor).abs() < 1e-6 && (high - 2.0 * factor).abs() < 1e-6);
        assert_eq!(ratio.to_string(), "2.00 (0.36..11.19)");
        // Ten values of -0.1 and 0.1: t is 2.2622, the standard error 1/30.
        let ratios: Vec<_> = [-0.1f64, 0.1].repeat(5).into_iter().map(f64::exp).collect();
        let (low, high) = Ratio::of(&ratios).interval.unwrap();
        let half = 2.262157162741 / 30.0;
        assert!((low.ln() + half).abs() < 1e-6 && (high.ln() - half).abs() < 1e-6);
    }

    #[test]
    fn few_cases_and_the_base_have_no_interval() {
        assert_eq!(Ratio::of(&[1.0, 4.0]).to_string(), "2.00");
        assert_eq!(Ratio::of(&[1.0; 5]).to_string(), "1.00");
        assert!(Ratio::of(&[]).mean.is_nan());
    }

    #[test]
    fn groups_have_means_of_their_own() {
        let data = data(&[
            ("a/1", "glibc", &[1.0]),
            ("a/1", "ebbmalloc", &[2.0]),
            ("b/1", "glibc", &[1.0]),
            ("b/1", "ebbmalloc", &[8.0]),
            ("a/2", "glibc", &[1.0]),
            ("a/2", "ebbmalloc", &[32.0]),
        ]);
        let means = Compared::of(&data).unwrap().means(&data, TIME);
        let ours: Vec<_> =
            means.iter().map(|m| (m.over.as_str(), m.ratios[1].mean.round())).collect();
        assert_eq!(ours, [("all", 8.0), ("a", 8.0), ("b", 8.0)]);
    }

    #[test]
    fn what_looking_for_mistakes_costs_is_relative_to_not_looking() {
        let data = data(&[
            ("a/1", "glibc", &[1.0]),
            ("a/1", "ebbmalloc", &[2.0]),
            ("a/1", "ebbmalloc-harden", &[6.0]),
            ("a/2", "ebbmalloc", &[2.0]),
        ]);
        let compared = Compared::among(&data, data.cares(), data.ours()).unwrap();
        assert_eq!(compared.allocators, ["ebbmalloc", "ebbmalloc-harden"]);
        assert_eq!(compared.left_out, [("a/2", vec!["ebbmalloc-harden"])]);
        let means = compared.means(&data, TIME);
        assert_eq!(
            means[0].ratios.iter().map(|ratio| ratio.mean.round()).collect::<Vec<_>>(),
            [1.0, 3.0]
        );
    }

    #[test]
    fn without_the_base_there_is_nothing_to_relate_to() {
        assert!(Compared::of(&data(&[("a/1", "ebbmalloc", &[1.0])])).is_none());
    }
}
