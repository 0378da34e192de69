//! Blocks on the stack, on their way between a cache and its spans.

use core::ptr;

/// Blocks that move between a cache and its central at a time.
const BATCH: usize = 256;
/// The same where fewer are to move: clearing room for more would take longer than moving them.
const MEDIUM_BATCH: usize = 64;
pub(crate) const SMALL_BATCH: usize = 16;

/// Has places for a batch of so many blocks, as many as there is room for at a time, which are on the stack for large batches
/// only: most threads would else not need its next page (decisions/0027).
pub(crate) fn with_batch<R>(blocks: usize, work: impl FnOnce(&mut [*mut u8]) -> R) -> R {
    #[inline(never)]
    fn within<const PLACES: usize, R>(work: impl FnOnce(&mut [*mut u8]) -> R) -> R {
        work(&mut [ptr::null_mut(); PLACES])
    }
    if blocks <= SMALL_BATCH {
        within::<SMALL_BATCH, R>(work)
    } else if blocks <= MEDIUM_BATCH {
        within::<MEDIUM_BATCH, R>(work)
    } else {
        within::<BATCH, R>(work)
    }
}
