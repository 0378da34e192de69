//! Blocks on the stack, on their way between a cache and its spans.

use crate::engine::tuning::{BATCH_BLOCKS_MAX, MEDIUM_BATCH_BLOCKS, SMALL_BATCH_BLOCKS};
use core::ptr;

/// Has places for a batch of so many blocks, as many as there is room for at a time, which are on the stack for large batches
/// only: most threads would else not need its next page (decisions/0027).
pub(crate) fn with_batch<R>(blocks: usize, work: impl FnOnce(&mut [*mut u8]) -> R) -> R {
    #[inline(never)]
    fn within<const PLACES: usize, R>(work: impl FnOnce(&mut [*mut u8]) -> R) -> R {
        work(&mut [ptr::null_mut(); PLACES])
    }
    if blocks <= SMALL_BATCH_BLOCKS {
        within::<SMALL_BATCH_BLOCKS, R>(work)
    } else if blocks <= MEDIUM_BATCH_BLOCKS {
        within::<MEDIUM_BATCH_BLOCKS, R>(work)
    } else {
        within::<BATCH_BLOCKS_MAX, R>(work)
    }
}
