//! Decides how to clear a large block in memory that was used before: by writing zeros, or by
//! reading it or purging it.
//!
//! Writing zeros makes pages resident that may never be touched, as in a sparse table that is
//! allocated again and again. Purging makes the pages fault that are touched, which takes longer
//! than writing them. The old contents tell which is better (decisions/0048).

// Not those of `platform::sync`, which loom may replace: nothing depends on their order.
use core::sync::atomic::{AtomicU16, AtomicU32, Ordering};

use crate::backend::tuning::{
    SPARSE_BLOCKS_MIN, SPARSE_SKIPS_LOG_MAX, ZERO_PROBE_PAGES, ZERO_PROBES,
    ZERO_PROBES_WITH_DATA_MIN,
};
use crate::size_class::UNIT;

/// History of the blocks that were to be cleared.
pub(crate) struct Zeroing {
    /// One element for each power of two of block bytes. Upper byte: how many blocks in a row had
    /// no data. Lower byte: how many blocks not to probe from now on.
    history: [AtomicU16; usize::BITS as usize],
    /// Blocks probed so far, as a seed of the pages to probe.
    probes: AtomicU32,
}

impl Zeroing {
    pub const fn new() -> Self {
        Self {
            history: [const { AtomicU16::new(0) }; usize::BITS as usize],
            probes: AtomicU32::new(0),
        }
    }

    /// Returns how many of a block's `bytes` to overwrite with zeros, from its beginning on: a
    /// multiple of `page`, or all. The rest is to be purged or read. `has_data` tells whether a
    /// page of that number holds anything but zeros.
    pub fn to_write(&self, bytes: usize, page: usize, has_data: impl Fn(usize) -> bool) -> usize {
        if bytes <= UNIT || bytes < ZERO_PROBES * page {
            return bytes;
        }
        let of_length = &self.history[bytes.ilog2() as usize];
        let [blocks_without, skips] = of_length.load(Ordering::Relaxed).to_be_bytes();
        let set = |blocks_without, skips| {
            of_length.store(u16::from_be_bytes([blocks_without, skips]), Ordering::Relaxed)
        };
        if skips > 0 {
            set(blocks_without, skips - 1);
            return 0;
        }
        let (places_with_data, end) = self.count_places_with_data(bytes.div_ceil(page), has_data);
        if places_with_data < ZERO_PROBES_WITH_DATA_MIN {
            let bits =
                (blocks_without + 1).saturating_sub(SPARSE_BLOCKS_MIN).min(SPARSE_SKIPS_LOG_MAX);
            set(
                blocks_without.saturating_add(1).min(SPARSE_BLOCKS_MIN + SPARSE_SKIPS_LOG_MAX),
                ((1u16 << bits) - 1) as u8,
            );
            return 0;
        }
        set(0, 0);
        if places_with_data == ZERO_PROBES { bytes } else { end * page }
    }

    /// Returns at how many places there is data, up to the first place without, and about where
    /// data ends, in pages.
    fn count_places_with_data(
        &self,
        all_pages: usize,
        has_data: impl Fn(usize) -> bool,
    ) -> (usize, usize) {
        let interval_pages = all_pages / ZERO_PROBES;
        let probe_pages = ZERO_PROBE_PAGES.min(interval_pages);
        let nth_probe = self.probes.fetch_add(1, Ordering::Relaxed);
        let mut end = 0;
        for place in 0..ZERO_PROBES {
            // Another page each time, since programs touch memory in patterns.
            let random = hash(nth_probe.wrapping_mul(ZERO_PROBES as u32).wrapping_add(place as u32))
                as usize;
            let first = place * interval_pages + random % (interval_pages - probe_pages + 1);
            let mut pages = first..first + probe_pages;
            if let Some(mut first_without) = pages.find(|&nth| !has_data(nth)) {
                // Most programs that use only part of a block use its beginning.
                while place >= ZERO_PROBES_WITH_DATA_MIN && end < first_without {
                    let middle = end + (first_without - end) / 2;
                    match has_data(middle) {
                        true => end = middle + 1,
                        false => first_without = middle,
                    }
                }
                return (place, end);
            }
            end = first + probe_pages;
        }
        (ZERO_PROBES, all_pages)
    }
}

/// A hash in which each bit depends on all bits of the input (Chris Wellons, lowbias32).
fn hash(mut number: u32) -> u32 {
    number = (number ^ number >> 16).wrapping_mul(0x7feb_352d);
    number = (number ^ number >> 15).wrapping_mul(0x846c_a68b);
    number ^ number >> 16
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    const PAGE: usize = 4096;

    /// How many of `pages` pages are to be overwritten, in each of `times` calls in turn.
    fn written(pages: usize, times: usize, has_data: impl Fn(usize) -> bool) -> Vec<usize> {
        let zeroing = Zeroing::new();
        (0..times).map(|_| zeroing.to_write(pages * PAGE, PAGE, &has_data) / PAGE).collect()
    }

    #[test]
    fn what_is_full_of_data_is_written() {
        for pages in [1, 16, 17, 31, 64, 100, 4000] {
            assert!(written(pages, 20, |_| true).iter().all(|&written| written == pages));
        }
        // Too short to be probed.
        assert_eq!(written(16, 1, |_| false), [16]);
    }

    #[test]
    fn what_nobody_touched_is_not() {
        for pages in [17, 100, 4000] {
            assert!(written(pages, 20, |page| page < pages / 20).iter().all(|&w| w == 0));
        }
    }

    #[test]
    fn patterns_are_no_data_everywhere() {
        for period in [2, 16, 512] {
            let all = written(1 << 14, 200, |page| page % period == 0);
            assert!(all.iter().all(|&written| written == 0), "one page of {period}: {all:?}");
        }
        for period in [64, 1024] {
            let all = written(1 << 14, 200, |page| page % period < period / 4);
            assert!(all.iter().all(|&written| written == 0), "a quarter of {period}: {all:?}");
        }
    }

    #[test]
    fn of_what_has_data_in_front_that_is_written() {
        let all = written(4000, 20, |page| page < 3000);
        assert_eq!(all, [3000; 20]);
    }

    #[test]
    fn a_program_that_changes_its_ways_is_noticed() {
        let zeroing = Zeroing::new();
        let turn = |data: bool| zeroing.to_write(64 * PAGE, PAGE, |_| data);
        (0..5000).for_each(|_| assert_eq!(turn(false), 0));
        let noticed = (0..300).position(|_| turn(true) > 0).unwrap();
        assert!(noticed <= 255, "after {noticed} times");
        assert_eq!(turn(false), 0);
    }
}
