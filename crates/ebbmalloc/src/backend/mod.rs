//! The page heap: the reserved region and its tables, runs, spans, and how much free memory stays resident.

// Lowest first: each uses only modules above it in this list.
pub(crate) mod tuning;
pub(crate) mod units;
pub(crate) mod chunks;
pub(crate) mod purged_pages;
pub(crate) mod run;
pub(crate) mod span;
pub(crate) mod page_map;
pub(crate) mod region;
pub(crate) mod run_tree;
#[cfg(not(loom))]
pub(crate) mod zeroing;
pub(crate) mod retention;
pub(crate) mod guard_pages;
pub(crate) mod page_heap;
pub(crate) mod scavenger_state;
