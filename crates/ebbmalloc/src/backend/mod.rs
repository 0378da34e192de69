//! The back end: the region of addresses with its tables, and the page heap, which hands out runs
//! of it and purges free ones.

// Lowest first: each uses only modules above it in this list.
pub(crate) mod tuning;
pub(crate) mod units;
pub(crate) mod budget;
pub(crate) mod chunks;
pub(crate) mod arena;
pub(crate) mod run;
pub(crate) mod span;
pub(crate) mod page_map;
pub(crate) mod region;
pub(crate) mod run_tree;
pub(crate) mod gap_lists;
pub(crate) mod mappings;
pub(crate) mod zeroing;
pub(crate) mod retention;
pub(crate) mod guard_pages;
pub(crate) mod huge_pages;
pub(crate) mod page_heap;
pub(crate) mod scavenger_state;
