//! Tells whether the program touched a long block in memory that was used before: if not, it is
//! cleared by a purge (decisions/0048).

use crate::backend::tuning::ZERO_PROBES;
use crate::platform::random::Random;

/// Whether most of a block's `pages` pages seem to hold nothing but zeros: most of those that are
/// looked at do. `has_data` tells whether a page of that number holds anything else.
pub(crate) fn is_mostly_zeros(pages: usize, seed: u64, has_data: impl Fn(usize) -> bool) -> bool {
    let mut random = Random::new(seed);
    let apart = (pages / ZERO_PROBES).max(1);
    // Programs touch memory in patterns: not the same page of each part.
    let probed = (0..ZERO_PROBES).map(|part| part * apart + random.next() as usize % apart);
    let with_data = probed.filter(|&page| page < pages && has_data(page)).count();
    with_data < ZERO_PROBES / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of 200 looks find most pages without data.
    fn found(pages: usize, has_data: impl Fn(usize) -> bool) -> usize {
        (0..200).filter(|&seed| is_mostly_zeros(pages, seed, &has_data)).count()
    }

    #[test]
    fn patterns_are_no_data_everywhere() {
        for pages in [16, 1000, 1 << 14] {
            assert_eq!(found(pages, |_| true), 0);
            assert_eq!(found(pages, |page| page < pages / 20), 200);
        }
        for period in [16, 64, 512, 1024] {
            let one = found(1 << 14, |page| page % period == 0);
            let quarter = found(1 << 14, |page| page % period < period / 4);
            assert!(one >= 195 && quarter >= 160, "of {period}: {one}, {quarter}");
        }
    }

    #[test]
    fn blocks_filled_by_half_are_not_purged() {
        // Of eight parts, each with one page that is looked at.
        let filled = |parts: usize| found(1 << 14, |page| page < parts << 11);
        assert_eq!([3, 4].map(filled), [200, 0]);
    }
}
