//! Fills memory with many blocks and frees them, and reports the live bytes to the watch.

use std::mem;

use fastrand::Rng;

use super::watch::Watch;
use crate::block::{self, Block, LEAST};

/// Blocks between two reports to the watch.
const CHUNK: usize = 256;

/// Makes `count` blocks of 16 bytes up to `doublings` doublings of it.
pub fn fill(watch: &Watch, rng: &mut Rng, count: usize, doublings: u32) -> Vec<Block> {
    let mut blocks = Vec::with_capacity(count);
    let mut bytes = table(count);
    while blocks.len() < count {
        let block = Block::new(block::any_size(rng, LEAST, doublings));
        bytes += block.size() as isize;
        blocks.push(block);
        if blocks.len() % CHUNK == 0 {
            watch.live(mem::take(&mut bytes));
        }
    }
    watch.live(bytes);
    blocks
}

/// Frees blocks, and their table, in their order; keeps every `step`-th if `keep` is given.
pub fn free(watch: &Watch, blocks: Vec<Block>, keep: Option<usize>) -> Vec<Block> {
    let mut freed = table(blocks.len());
    let mut kept = Vec::with_capacity(keep.map_or(0, |step| blocks.len().div_ceil(step)));
    watch.live(table(kept.capacity()));
    for (at, block) in blocks.into_iter().enumerate() {
        if keep.is_some_and(|step| at % step == 0) {
            kept.push(block);
            continue;
        }
        freed += block.size() as isize;
        drop(block);
        if at % CHUNK == 0 {
            watch.live(-mem::take(&mut freed));
        }
    }
    watch.live(-freed);
    kept
}

/// Returns the bytes of `count` pointers to blocks.
fn table(count: usize) -> isize {
    (count * size_of::<Block>()) as isize
}
