//! Tunables of the platform: how ranges of addresses are found.

use crate::tuning::tunables;

tunables! {
    /// Address ranges that are tried for one purpose while mappings are in the way.
    RANGE_ATTEMPTS_MAX: u32 = 8, "ranges", 31;
}
