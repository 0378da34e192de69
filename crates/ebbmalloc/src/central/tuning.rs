//! Tunables of the central free lists: which pages of spans are resident.

use crate::tuning::tunables;

tunables! {
    /// Classes up to this block size decide here which pages of a new span are resident.
    SMALL_BLOCK_BYTES_MAX: usize = 2 << 10, "bytes", 16;
    /// A class with this many spans gets all pages of the next one at once: one system call
    /// instead of 16 page faults.
    POPULATED_SPANS_MIN: usize = 16, "spans", 20;
}
