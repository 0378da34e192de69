//! The arithmetic of sampling by bytes: distances between samples, and what a sample stands for.
//!
//! Sampled bytes are a Poisson process: each byte is sampled with the same small probability, on
//! its own. A block is sampled if at least one of its bytes is. So a block of `s` bytes is sampled
//! with the probability 1 - exp(-s / mean), and a sampled one stands for the inverse of that many.

use core::ops::Range;

use crate::platform::random::Random;

/// Draws the number of bytes before the next sampled byte: exponential, with this mean. Numbers
/// beyond 31 bits are cut, and should be very rare.
#[inline(never)]
pub(crate) fn distance(random: &mut Random, mean_bytes: u64) -> i32 {
    // Uniform in (0, 1].
    let uniform = ((random.next() >> 11) + 1) as f64 / (1_u64 << 53) as f64;
    (-logarithm(uniform) * mean_bytes as f64) as i32
}

/// The natural logarithm of a positive number, which `core` does not have.
fn logarithm(of: f64) -> f64 {
    const MANTISSA: u64 = (1 << 52) - 1;
    let exponent = (of.to_bits() >> 52) as i64 - 1023;
    let rest = f64::from_bits(of.to_bits() & MANTISSA | 1023 << 52);
    // ln(rest) = 2 artanh((rest - 1) / (rest + 1)), by its series.
    let quotient = (rest - 1.0) / (rest + 1.0);
    let mut sum = 0.0;
    for term in (0..16).rev() {
        sum = sum * quotient * quotient + 1.0 / (2 * term + 1) as f64;
    }
    exponent as f64 * core::f64::consts::LN_2 + 2.0 * quotient * sum
}

/// The probability that a block of `bytes` bytes is sampled: 1 - exp(-bytes / mean).
pub(crate) fn share(bytes: f64, mean_bytes: u64) -> f64 {
    let mut exponent = -(bytes / mean_bytes.max(1) as f64);
    if exponent < -40.0 {
        return 1.0;
    }
    // exp(x) - 1 by its series for a small x, then doubled: exp(2x) - 1 = (exp(x) - 1)^2 + 2 (…).
    let mut doublings = 0;
    while exponent < -0.01 {
        (exponent, doublings) = (exponent / 2.0, doublings + 1);
    }
    let inner = 1.0 + exponent / 4.0 * (1.0 + exponent / 5.0);
    let mut result = exponent * (1.0 + exponent / 2.0 * (1.0 + exponent / 3.0 * inner));
    for _ in 0..doublings {
        result *= result + 2.0;
    }
    -result
}

/// log2 of the number of buckets of sizes between two powers of two.
const BUCKETS_LOG: u32 = 4;

/// The bucket of a size, 1 at least: sizes in a bucket differ by a sixteenth at most, so the
/// probabilities that their blocks are sampled are those of their mean.
pub(crate) fn bucket_of(bytes: u64) -> u32 {
    let log = bytes.max(1).ilog2();
    let rest =
        if log < BUCKETS_LOG { bytes << (BUCKETS_LOG - log) } else { bytes >> (log - BUCKETS_LOG) };
    (log << BUCKETS_LOG) + (rest as u32 & ((1 << BUCKETS_LOG) - 1))
}

/// The sizes of a bucket. Any number may be passed in.
pub(crate) fn sizes_of(bucket: u32) -> Range<f64> {
    let (log, rest) = (bucket >> BUCKETS_LOG & 63, bucket & ((1 << BUCKETS_LOG) - 1));
    let power = (1_u64 << log) as f64;
    let step = power / (1 << BUCKETS_LOG) as f64;
    power + step * rest as f64..power + step * (rest + 1) as f64
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    #[test]
    fn distances_are_exponential() {
        let (mut random, mean, draws) = (Random::new(3), 512 << 10, 1_000_000);
        let mut distances: Vec<i32> = (0..draws).map(|_| distance(&mut random, mean)).collect();
        let sum: f64 = distances.iter().map(|&distance| distance as f64).sum();
        // The mean of a million has a deviation of a thousandth.
        assert!((sum / draws as f64 / mean as f64 - 1.0).abs() < 0.004, "{}", sum / draws as f64);
        distances.sort();
        for percent in [1, 10, 50, 90, 99] {
            let expected = -(1.0 - percent as f64 / 100.0).ln() * mean as f64;
            let found = distances[draws * percent / 100] as f64;
            assert!((found / expected - 1.0).abs() < 0.05, "{percent} %: {found} {expected}");
        }
    }

    #[test]
    fn logarithms_are_right() {
        for step in 1..100_000 {
            let number = step as f64 / 100_000.0;
            assert!((logarithm(number) - number.ln()).abs() < 1e-12, "{number}");
        }
    }

    #[test]
    fn shares_are_those_of_the_exponential_function() {
        for power in -40..20 {
            for step in 0..8 {
                let quotient = 2_f64.powi(power) * (1.0 + step as f64 / 8.0);
                let expected = -(-quotient).exp_m1();
                let found = share(quotient * 1048576.0, 1 << 20);
                assert!((found / expected - 1.0).abs() < 1e-9, "{quotient}: {found} {expected}");
            }
        }
    }

    #[test]
    fn each_size_lies_in_its_bucket() {
        for log in 0..48 {
            for step in 0..64 {
                let bytes = (1_u64 << log) + (1_u64 << log) * step / 64;
                let sizes = sizes_of(bucket_of(bytes));
                assert!(sizes.contains(&(bytes as f64)), "{bytes} {sizes:?}");
                assert!(sizes.end <= sizes.start * 1.0625);
            }
        }
    }
}
