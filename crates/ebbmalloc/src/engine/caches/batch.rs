//! Provides arrays on the thread's stack for batches of blocks between caches and spans.

use crate::engine::tuning::{BATCH_BLOCKS_MAX, MEDIUM_BATCH_BLOCKS, SMALL_BATCH_BLOCKS};
use core::ptr;

/// Calls `work` with an array for a batch of `blocks` blocks, or for [`BATCH_BLOCKS_MAX`] if that
/// is less.
///
/// Each array size has a stack frame of its own: with one frame for the largest batch, most threads
/// would touch one page more of their stack (decisions/0027).
pub(crate) fn with_batch<R>(blocks: usize, work: impl FnOnce(&mut [*mut u8]) -> R) -> R {
    #[inline(never)]
    fn within<const CAPACITY: usize, R>(work: impl FnOnce(&mut [*mut u8]) -> R) -> R {
        work(&mut [ptr::null_mut(); CAPACITY])
    }
    if blocks <= SMALL_BATCH_BLOCKS {
        within::<SMALL_BATCH_BLOCKS, R>(work)
    } else if blocks <= MEDIUM_BATCH_BLOCKS {
        within::<MEDIUM_BATCH_BLOCKS, R>(work)
    } else {
        within::<BATCH_BLOCKS_MAX, R>(work)
    }
}
