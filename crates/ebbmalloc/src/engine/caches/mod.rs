//! Moves blocks between caches and central free lists: refills, flushes, drains of caches that
//! other threads use, and reclaim before the heap grows.

// Lowest first: each uses only modules above it in this list.
pub(crate) mod batch;
pub(crate) mod cpu_slabs;
pub(crate) mod release;
pub(crate) mod drain;
pub(crate) mod flush;
pub(crate) mod reclaim;
pub(crate) mod refill;
