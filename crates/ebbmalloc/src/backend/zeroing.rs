//! Zeros for large blocks in free memory that was in use before.
//!
//! Writing zeros makes pages resident that nobody may ever touch, as in a sparse table that comes and goes. Giving
//! the pages back to the kernel makes those fault anew that are touched, which takes longer than to write them.
//! What was in the memory tells which it is (decisions/0026).

// Not `sync`'s, which loom may replace: nothing depends on their order.
use core::sync::atomic::{AtomicU16, AtomicU32, Ordering};

use crate::backend::tuning::{
    SPARSE_BLOCKS_MIN, SPARSE_SKIPS_LOG_MAX, ZERO_PROBE_PAGES, ZERO_PROBES,
    ZERO_PROBES_WITH_DATA_MIN,
};
use crate::size_class::UNIT;

/// What is known of blocks of zeros.
pub(crate) struct Zeroing {
    /// For blocks from each power of two of bytes on: how often in a row there was no data, and, in the lower byte, how
    /// often not to look from now on.
    sparse: [AtomicU16; usize::BITS as usize],
    turn: AtomicU32,
}

impl Zeroing {
    pub const fn new() -> Self {
        Self {
            sparse: [const { AtomicU16::new(0) }; usize::BITS as usize],
            turn: AtomicU32::new(0),
        }
    }

    /// How many of so many bytes to write zeros to, from the beginning on: whole pages of `page` bytes, or all. The rest is to
    /// go back to the kernel. `has_data` tells of each page whether there is anything but zeros.
    pub fn to_write(&self, bytes: usize, page: usize, has_data: impl Fn(usize) -> bool) -> usize {
        if bytes <= UNIT || bytes < ZERO_PROBES * page {
            return bytes;
        }
        let sparse = &self.sparse[bytes.ilog2() as usize];
        let [times, skips] = sparse.load(Ordering::Relaxed).to_be_bytes();
        let set =
            |times, skips| sparse.store(u16::from_be_bytes([times, skips]), Ordering::Relaxed);
        if skips > 0 {
            set(times, skips - 1);
            return 0;
        }
        let (places, end) = self.places_with_data(bytes.div_ceil(page), has_data);
        if places < ZERO_PROBES_WITH_DATA_MIN {
            let bits = (times + 1).saturating_sub(SPARSE_BLOCKS_MIN).min(SPARSE_SKIPS_LOG_MAX);
            set(
                times.saturating_add(1).min(SPARSE_BLOCKS_MIN + SPARSE_SKIPS_LOG_MAX),
                ((1u16 << bits) - 1) as u8,
            );
            return 0;
        }
        set(0, 0);
        if places == ZERO_PROBES { bytes } else { end * page }
    }

    /// In how many places of so many pages there is data, up to the first without; and about where data ends, in pages.
    fn places_with_data(
        &self,
        all_pages: usize,
        has_data: impl Fn(usize) -> bool,
    ) -> (usize, usize) {
        let piece_pages = all_pages / ZERO_PROBES;
        let place_pages = ZERO_PROBE_PAGES.min(piece_pages);
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let mut end = 0;
        for place in 0..ZERO_PROBES {
            // Another page each time: programs touch memory in patterns.
            let random =
                mixed(turn.wrapping_mul(ZERO_PROBES as u32).wrapping_add(place as u32)) as usize;
            let first = place * piece_pages + random % (piece_pages - place_pages + 1);
            let mut pages = first..first + place_pages;
            if let Some(mut without) = pages.find(|&nth| !has_data(nth)) {
                // Most programs that do not use all of their memory begin in front.
                while place >= ZERO_PROBES_WITH_DATA_MIN && end < without {
                    let middle = end + (without - end) / 2;
                    match has_data(middle) {
                        true => end = middle + 1,
                        false => without = middle,
                    }
                }
                return (place, end);
            }
            end = first + place_pages;
        }
        (ZERO_PROBES, all_pages)
    }
}

/// A number in which each bit depends on all bits of this one (Chris Wellons, lowbias32).
fn mixed(mut number: u32) -> u32 {
    number = (number ^ number >> 16).wrapping_mul(0x7feb_352d);
    number = (number ^ number >> 15).wrapping_mul(0x846c_a68b);
    number ^ number >> 16
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    const PAGE: usize = 4096;

    /// What is to be written of so many pages, some of which hold data, this many times.
    fn written(pages: usize, times: usize, has_data: impl Fn(usize) -> bool) -> Vec<usize> {
        let zeroing = Zeroing::new();
        (0..times).map(|_| zeroing.to_write(pages * PAGE, PAGE, &has_data) / PAGE).collect()
    }

    #[test]
    fn what_is_full_of_data_is_written() {
        for pages in [1, 16, 17, 31, 64, 100, 4000] {
            assert!(written(pages, 20, |_| true).iter().all(|&written| written == pages));
        }
        // Too short to look.
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
