//! Tunables of the central free lists: which pages of spans are resident.

use crate::tuning::tunables;

tunables! {
    /// Only classes of blocks up to this size begin with few resident pages.
    SMALL_BLOCK_BYTES_MAX: usize = 2 << 10, "bytes", 16;
    /// A class's only span, if cut from resident memory, keeps at most this much.
    FIRST_SPAN_BYTES: usize = 16 << 10, "bytes", 16;
    /// After such a span filled up, this many later ones begin whole.
    FULL_BEGINNINGS: u8 = 128, "spans", 16;
    /// Spans of blocks up to this size, an OS page, may lie in huge pages. Each block that is used
    /// touches all of its pages.
    HUGE_BLOCK_BYTES_MAX: usize = 4 << 10, "bytes", 37;
}
