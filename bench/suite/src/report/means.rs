//! Geometric means over cases, of ratios to one allocator.

use ebb::stats::geometric_mean;

use super::data::{BASE, Data};
use crate::case::{PEAK, TIME, group_of};

/// Over some cases, for each of the compared allocators.
#[derive(Debug, PartialEq)]
pub struct Mean {
    /// A group, or "all".
    pub over: String,
    pub cases: usize,
    pub ratios: Vec<f64>,
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
            geometric_mean(&cases.iter().filter_map(ratio).collect::<Vec<_>>()).unwrap_or(f64::NAN)
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
            assert!(means[0].ratios.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-9));
        }
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
        let ours: Vec<_> = means.iter().map(|m| (m.over.as_str(), m.ratios[1].round())).collect();
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
            means[0].ratios.iter().map(|ratio| ratio.round()).collect::<Vec<_>>(),
            [1.0, 3.0]
        );
    }

    #[test]
    fn without_the_base_there_is_nothing_to_relate_to() {
        assert!(Compared::of(&data(&[("a/1", "ebbmalloc", &[1.0])])).is_none());
    }
}
