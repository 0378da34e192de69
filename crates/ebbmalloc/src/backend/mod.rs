//! The page heap: the reserved region and its tables, runs, spans, and how much free memory stays resident.

pub(crate) mod region;
pub(crate) mod page_map;
pub(crate) mod run;
pub(crate) mod run_tree;
pub(crate) mod span;
pub(crate) mod purged_pages;
pub(crate) mod page_heap;
pub(crate) mod guard_pages;
pub(crate) mod retention;
pub(crate) mod scavenger_state;
pub(crate) mod units;
pub(crate) mod chunks;
#[cfg(not(loom))]
pub(crate) mod zeroing;
