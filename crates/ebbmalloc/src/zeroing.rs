//! Zeros for large blocks in free memory that was in use before.
//!
//! Writing zeros makes pages resident that nobody may ever touch, as in a sparse table that comes and goes. Giving
//! the pages back to the kernel makes those fault anew that are touched, which takes longer than to write them.
//! What was in the memory tells which it is (decisions/0026).

// Not `sync`'s, which loom may replace: nothing depends on their order.
use core::sync::atomic::{AtomicU16, AtomicU32, Ordering};

use crate::size_class::UNIT;

/// The memory is looked at in this many places, which lie in pieces of equal length.
const PLACES: usize = 16;
/// Contiguous OS pages that are looked at in each place, one for each in short memory.
const PLACE_PAGES: usize = 4;
/// With data in fewer places than this, from the beginning on, nothing is kept.
const PLACES_LEAST: usize = PLACES / 2;
/// After this many times in a row without data, memory of that length is not looked at for a while, since to look takes a page
/// fault: once, then 3 times, 7, 15, up to 255.
const SPARSE_SURE: u8 = 4;
const SKIPS_BITS_MAX: u8 = 8;

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

    /// How many bytes at the beginning of this memory to write zeros to, whole pages or all; the rest is to go
    /// back to the kernel.
    ///
    /// # Safety
    /// The memory is the caller's, may be read, and begins at an OS page of `page` bytes.
    pub unsafe fn to_write(&self, start: *const u8, bytes: usize, page: usize) -> usize {
        if bytes <= UNIT || bytes < PLACES * page {
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
        // SAFETY: the caller's.
        let (places, end) = unsafe { self.places_with_data(start, bytes, page) };
        if places < PLACES_LEAST {
            let bits = (times + 1).saturating_sub(SPARSE_SURE).min(SKIPS_BITS_MAX);
            set(
                times.saturating_add(1).min(SPARSE_SURE + SKIPS_BITS_MAX),
                ((1u16 << bits) - 1) as u8,
            );
            return 0;
        }
        set(0, 0);
        if places == PLACES { bytes } else { end * page }
    }

    /// In how many places there is data, up to the first without; and about where data ends, in pages.
    ///
    /// # Safety
    /// As for [`Zeroing::to_write`].
    unsafe fn places_with_data(
        &self,
        start: *const u8,
        bytes: usize,
        page: usize,
    ) -> (usize, usize) {
        // SAFETY: the caller's; all pages lie in the memory.
        let has_data = |nth: usize| unsafe { has_data(start.add(nth * page), page) };
        let piece_pages = bytes / page / PLACES;
        let place_pages = PLACE_PAGES.min(piece_pages);
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let mut end = 0;
        for place in 0..PLACES {
            // Another page each time: programs touch memory in patterns.
            let random =
                mixed(turn.wrapping_mul(PLACES as u32).wrapping_add(place as u32)) as usize;
            let first = place * piece_pages + random % (piece_pages - place_pages + 1);
            let mut pages = first..first + place_pages;
            if let Some(mut without) = pages.find(|&nth| !has_data(nth)) {
                // Most programs that do not use all of their memory begin in front.
                while place >= PLACES_LEAST && end < without {
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
        (PLACES, bytes.div_ceil(page))
    }
}

/// A number in which each bit depends on all bits of this one (Chris Wellons, lowbias32).
fn mixed(mut number: u32) -> u32 {
    number = (number ^ number >> 16).wrapping_mul(0x7feb_352d);
    number = (number ^ number >> 15).wrapping_mul(0x846c_a68b);
    number ^ number >> 16
}

/// Whether not all bytes of a page are zero.
///
/// # Safety
/// The page may be read, and nobody writes there.
unsafe fn has_data(start: *const u8, page: usize) -> bool {
    let words = start.cast::<u64>();
    // SAFETY: the caller's.
    (0..page / size_of::<u64>()).any(|word| unsafe { words.add(word).read() } != 0)
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    const PAGE: usize = 4096;

    /// What is to be written of so many pages, some of which hold data, this many times.
    fn written(pages: usize, times: usize, has_data: impl Fn(usize) -> bool) -> Vec<usize> {
        let mut memory = std::vec![0u64; pages * PAGE / 8];
        (0..pages).filter(|&page| has_data(page)).for_each(|page| memory[page * PAGE / 8 + 77] = 1);
        let zeroing = Zeroing::new();
        // SAFETY: the memory is ours; that it begins at a page does not matter here.
        let turn = |_| unsafe { zeroing.to_write(memory.as_ptr().cast(), pages * PAGE, PAGE) };
        (0..times).map(turn).map(|bytes| bytes / PAGE).collect()
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
        let mut memory = std::vec![0u64; 64 * PAGE / 8];
        // SAFETY: as above.
        let turn =
            |memory: &[u64]| unsafe { zeroing.to_write(memory.as_ptr().cast(), 64 * PAGE, PAGE) };
        (0..5000).for_each(|_| assert_eq!(turn(&memory), 0));
        memory.fill(1);
        let noticed = (0..300).position(|_| turn(&memory) > 0).unwrap();
        assert!(noticed <= 255, "after {noticed} times");
        memory.fill(0);
        assert_eq!(turn(&memory), 0);
    }
}
