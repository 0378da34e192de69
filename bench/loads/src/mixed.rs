//! Replaces blocks of many small sizes in random order, some kept for long.

use std::ptr;

use anyhow::{Result, ensure};

use crate::report::Report;

/// Places for blocks; each is empty or holds one.
const PLACES: usize = 50_000;
const STEPS: usize = 4_000_000;

/// Empties or fills a random place at each step. Every block holds its place's number, which is
/// checked when it is freed.
pub fn run() -> Result<Report> {
    let mut random = fastrand::Rng::with_seed(1);
    let mut blocks = vec![ptr::null_mut::<usize>(); PLACES];
    for _ in 0..STEPS {
        let place = random.usize(..PLACES);
        if blocks[place].is_null() {
            // Small sizes are the most frequent: 16 bytes to 2 KiB, each power as often as the
            // others.
            let size = random.usize(1..=16) << random.u32(4..=7);
            // SAFETY: a block of at least 16 bytes; null is checked before the write.
            unsafe {
                blocks[place] = libc::malloc(size).cast();
                ensure!(!blocks[place].is_null(), "no memory for {size} bytes");
                blocks[place].write(place);
            }
        } else {
            empty(&mut blocks, place)?;
        }
    }
    for place in 0..PLACES {
        empty(&mut blocks, place)?;
    }
    Ok(Report::new())
}

fn empty(blocks: &mut [*mut usize], place: usize) -> Result<()> {
    let block = std::mem::replace(&mut blocks[place], ptr::null_mut());
    if !block.is_null() {
        // SAFETY: a live block that begins with its place's number.
        unsafe {
            ensure!(*block == place, "a block of place {place} has {} in it", *block);
            libc::free(block.cast());
        }
    }
    Ok(())
}
