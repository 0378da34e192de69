//! Moves blocks between caches and central free lists: at misses, in drains of caches that other
//! threads use, and in reclaim while the heap grows.

// Lowest first: each uses only modules above it in this list.
pub(crate) mod cpu_slabs;
pub(crate) mod miss;
pub(crate) mod near;
pub(crate) mod drain;
pub(crate) mod reclaim;
