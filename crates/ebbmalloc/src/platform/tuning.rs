//! Tunables of the platform: how ranges of addresses are found, and how blocks are copied.

use crate::tuning::tunables;

tunables! {
    /// Address ranges that are tried for one purpose while mappings are in the way.
    RANGE_ATTEMPTS_MAX: u32 = 8, "ranges", 31;
    /// From this length on, a copy writes no zeros where there are zeros. Shorter blocks mostly lie
    /// in memory that is resident.
    SPARSE_COPY_BYTES_MIN: usize = 64 << 10, "bytes", 48;
}
