//! Computes medians and paired ratios, and decides when a difference may be claimed.
//!
//! Allocators run in turn, so the runs of one round share the state of the machine: they form a
//! pair. Each pair gives a ratio. The median of the ratios is the effect. Its confidence interval
//! lies between two of the ordered ratios, as many places from either end as keep the chance of
//! missing the true median at 1 in 16 or less. This is the sign test, turned into an interval: the
//! number of ratios below the true median is that of heads among fair coin tosses, whatever the
//! distribution of times. So the test assumes no distribution, and outliers do no harm. With 5
//! pairs the interval is their whole range, so all five have to agree. With fewer, even that
//! happens too often by chance, and there is no verdict.
//!
//! A difference is claimed where the interval excludes 1 and the effect is at least 2 %. Less than
//! that is often due to address layout or a busy machine, however often it is repeated.

use serde::Serialize;

/// The smallest effect that counts as a difference.
const FLOOR: f64 = 0.02;
/// The highest accepted chance that an interval misses the true median.
const CHANCE: f64 = 1.0 / 16.0;

/// Median and range of one allocator's runs.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Summary {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl Summary {
    /// `None` without values.
    pub fn of(values: &[f64]) -> Option<Self> {
        let sorted = sorted(values);
        Some(Self { median: median(&sorted)?, min: *sorted.first()?, max: *sorted.last()? })
    }
}

/// Quartiles of a sample, interpolated.
#[derive(Clone, Copy, Debug)]
pub struct Quartiles {
    pub low: f64,
    pub median: f64,
    pub high: f64,
}

impl Quartiles {
    /// `None` without values.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let values = sorted(&values.into_iter().collect::<Vec<_>>());
        let last = values.len().checked_sub(1)? as f64;
        let at = |share: f64| {
            let place = share * last;
            let (below, above) = (values[place.floor() as usize], values[place.ceil() as usize]);
            below + (above - below) * place.fract()
        };
        Some(Self { low: at(0.25), median: at(0.5), high: at(0.75) })
    }

    /// Interquartile range over median.
    pub fn spread(&self) -> f64 {
        (self.high - self.low) / self.median
    }
}

/// The geometric mean of ratios: twice and half average to one. `None` without values.
pub fn geometric_mean(ratios: &[f64]) -> Option<f64> {
    let sum: f64 = ratios.iter().map(|ratio| ratio.ln()).sum();
    (!ratios.is_empty()).then(|| (sum / ratios.len() as f64).exp())
}

/// One allocator's runs against those of another, the base, in the same rounds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Comparison {
    /// The median of the paired ratios.
    pub ratio: f64,
    /// The confidence interval of that median.
    pub low: f64,
    pub high: f64,
    pub verdict: Verdict,
}

/// The verdict on a ratio.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Less than on the base.
    Less,
    More,
    /// No difference beyond noise.
    Same,
    /// Fewer than 5 pairs.
    TooFewRuns,
}

impl Comparison {
    /// Compares values of the same rounds, which must be equally many on both sides. `None` without
    /// values, or if one is zero: then ratios mean nothing.
    pub fn of(base: &[f64], other: &[f64]) -> Option<Self> {
        assert_eq!(base.len(), other.len(), "every round has one value a side");
        if base.iter().chain(other).any(|&value| value <= 0.0) {
            return None;
        }
        // Logarithms make the comparison symmetric: a ratio and its inverse are equally far from 1.
        let logs = sorted(
            &base.iter().zip(other).map(|(base, other)| (other / base).ln()).collect::<Vec<_>>(),
        );
        let middle = median(&logs)?;
        let rank = interval_rank(logs.len());
        let outermost = rank.unwrap_or(0);
        let (low, high) = (logs[outermost], logs[logs.len() - 1 - outermost]);
        let verdict = match rank {
            None => Verdict::TooFewRuns,
            Some(_) if middle.abs() < FLOOR.ln_1p() => Verdict::Same,
            Some(_) if high < 0.0 => Verdict::Less,
            Some(_) if low > 0.0 => Verdict::More,
            Some(_) => Verdict::Same,
        };
        Some(Self { ratio: middle.exp(), low: low.exp(), high: high.exp(), verdict })
    }
}

/// The sentence that explains the verdicts of this many pairs; `option` makes more pairs.
pub fn foundation(pairs: usize, option: &str) -> String {
    let Some(rank) = interval_rank(pairs) else {
        return format!(
            "No verdicts: fewer than 5 paired runs agree too easily by chance. Give {option} 5 or \
             more."
        );
    };
    let which = match rank {
        0 => format!("all {pairs} paired runs agree"),
        rank => format!("at least {} of {pairs} paired runs agree", pairs - rank),
    };
    format!(
        "A difference is claimed if {which} on its direction (by chance alone: {:.2} % of the \
         time) and their median is at least {} % away from 1.",
        100.0 * chance(pairs, rank),
        FLOOR * 100.0
    )
}

/// The number of ordered values to leave out at either end of the interval; `None` if even the
/// whole range misses the median too often.
fn interval_rank(pairs: usize) -> Option<usize> {
    (0..pairs.div_ceil(2)).take_while(|&rank| chance(pairs, rank) <= CHANCE).last()
}

/// The chance that an interval without the `rank` outermost values of either side misses the
/// median: the chance that at most `rank` of `pairs` coins fall on one side, times two sides.
fn chance(pairs: usize, rank: usize) -> f64 {
    let mut term = 0.5f64.powi(pairs as i32 - 1);
    let mut sum = 0.0;
    for heads in 0..=rank {
        sum += term;
        term *= (pairs - heads) as f64 / (heads + 1) as f64;
    }
    sum.min(1.0)
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// The median of ordered values.
fn median(sorted: &[f64]) -> Option<f64> {
    let upper = *sorted.get(sorted.len() / 2)?;
    Some(if sorted.len() % 2 == 1 { upper } else { (sorted[sorted.len() / 2 - 1] + upper) / 2.0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Multiplicative noise of about `spread` around 1, reproducible.
    struct Noise(u64);

    impl Noise {
        fn uniform(&mut self) -> f64 {
            self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (self.0 >> 11) as f64 / (1u64 << 53) as f64
        }

        fn runs(&mut self, count: usize, center: f64, spread: f64) -> Vec<f64> {
            // The sum of three uniform variables is close enough to a normal one; variance 1/4.
            let normal =
                |noise: &mut Self| 2.0 * ((0..3).map(|_| noise.uniform()).sum::<f64>() - 1.5);
            (0..count).map(|_| center * (spread * normal(self)).exp()).collect()
        }

        /// The share of 2000 comparisons that end in `verdict`.
        fn share(&mut self, verdict: Verdict, pairs: usize, effect: f64, spread: f64) -> f64 {
            let hits = (0..2000).filter(|_| {
                let (base, other) =
                    (self.runs(pairs, 1.0, spread), self.runs(pairs, effect, spread));
                Comparison::of(&base, &other).unwrap().verdict == verdict
            });
            hits.count() as f64 / 2000.0
        }
    }

    #[test]
    fn identical_distributions_show_no_difference() {
        for (pairs, spread) in [(5, 0.05), (6, 0.05), (10, 0.1), (20, 0.2)] {
            let same = Noise(7).share(Verdict::Same, pairs, 1.0, spread);
            assert!(same > 1.0 - CHANCE - 0.02, "{pairs} pairs: {same}");
        }
        // Noise far below the floor never makes a difference.
        assert_eq!(Noise(7).share(Verdict::Same, 5, 1.0, 0.003), 1.0);
    }

    #[test]
    fn a_shift_of_ten_percent_is_found() {
        assert!(Noise(1).share(Verdict::Less, 5, 0.9, 0.01) > 0.99);
        assert!(Noise(2).share(Verdict::More, 5, 1.1, 0.01) > 0.99);
        assert!(Noise(3).share(Verdict::Less, 10, 0.9, 0.04) > 0.95);
        assert_eq!(Noise(4).share(Verdict::Same, 5, 1.01, 0.001), 1.0, "below the floor");
    }

    #[test]
    fn few_runs_give_no_verdict_but_a_ratio() {
        for pairs in 1..5 {
            let comparison = Comparison::of(&vec![1.0; pairs], &vec![0.5; pairs]).unwrap();
            assert_eq!(comparison.verdict, Verdict::TooFewRuns);
            assert!((comparison.ratio - 0.5).abs() < 1e-12);
            assert!(foundation(pairs, "-n").contains("No verdicts"));
        }
        assert_eq!(Comparison::of(&[1.0; 5], &[0.5; 5]).unwrap().verdict, Verdict::Less);
    }

    #[test]
    fn one_outlier_among_many_does_not_hide_a_difference() {
        let mut slow = vec![1.2; 10];
        slow[3] = 0.1;
        assert_eq!(Comparison::of(&[1.0; 10], &slow).unwrap().verdict, Verdict::More);
    }

    #[test]
    fn nothing_and_zeros_have_no_ratio() {
        assert!(Comparison::of(&[], &[]).is_none());
        assert!(Comparison::of(&[1.0, 0.0], &[1.0, 1.0]).is_none());
        assert!(Summary::of(&[]).is_none());
    }

    #[test]
    fn intervals_are_those_of_the_binomial_distribution() {
        // Chances from the binomial coefficients: 2/2^5, 2(1+10)/2^10,
        // 2(1+20+190+1140+4845+15504)/2^20.
        assert_eq!((interval_rank(4), interval_rank(5)), (None, Some(0)));
        assert_eq!(chance(5, 0), 2.0 / 32.0);
        assert_eq!(chance(10, 1), 22.0 / 1024.0);
        assert!((chance(20, 5) - 43400.0 / 1048576.0).abs() < 1e-12);
        assert_eq!(
            (interval_rank(8), interval_rank(9), interval_rank(10), interval_rank(20)),
            (Some(0), Some(1), Some(1), Some(5))
        );
        assert!(
            foundation(5, "-n").contains("all 5 paired runs agree")
                && foundation(5, "-n").contains("6.25 %")
        );
        assert!(foundation(10, "-n").contains("at least 9 of 10"));
    }

    #[test]
    fn quartiles_are_interpolated() {
        let q = Quartiles::of([4.0, 1.0, 2.0, 3.0]).unwrap();
        assert_eq!((q.low, q.median, q.high), (1.75, 2.5, 3.25));
        assert_eq!(q.spread(), 0.6);
        let one = Quartiles::of([5.0]).unwrap();
        assert_eq!((one.low, one.median, one.high), (5.0, 5.0, 5.0));
        assert!(Quartiles::of([]).is_none());
    }

    #[test]
    fn twice_and_half_average_to_one() {
        assert!((geometric_mean(&[2.0, 0.5]).unwrap() - 1.0).abs() < 1e-12);
        assert!((geometric_mean(&[1.0, 10.0, 100.0]).unwrap() - 10.0).abs() < 1e-12);
        assert!(geometric_mean(&[]).is_none());
    }

    #[test]
    fn medians() {
        let summary = Summary::of(&[3.0, 1.0, 2.0, 10.0]).unwrap();
        assert_eq!((summary.median, summary.min, summary.max), (2.5, 1.0, 10.0));
        assert_eq!(Summary::of(&[4.0]).unwrap().median, 4.0);
    }

    proptest! {
        #[test]
        fn swapping_sides_flips_everything(
            pairs in prop::collection::vec((0.01f64..100.0, 0.01f64..100.0), 1..40)
        ) {
            let (base, other): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
            let there = Comparison::of(&base, &other).unwrap();
            let back = Comparison::of(&other, &base).unwrap();
            let near = |a: f64, b: f64| (a * b - 1.0).abs() < 1e-9;
            prop_assert!(near(there.ratio, back.ratio));
            prop_assert!(near(there.low, back.high) && near(there.high, back.low));
            let flipped = match there.verdict {
                Verdict::Less => Verdict::More,
                Verdict::More => Verdict::Less,
                same => same,
            };
            prop_assert_eq!(back.verdict, flipped);
        }

        #[test]
        fn the_ratio_lies_in_its_interval(
            pairs in prop::collection::vec((0.5f64..2.0, 0.5f64..2.0), 1..40)
        ) {
            let (base, other): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
            let comparison = Comparison::of(&base, &other).unwrap();
            prop_assert!(comparison.low <= comparison.ratio && comparison.ratio <= comparison.high);
        }
    }
}
