//! State of check mode, harden mode and sampling: what finds mistakes with blocks.

// Lowest first: each uses only modules above it in this list.
pub(crate) mod tuning;
pub(crate) mod seal;
pub(crate) mod quarantine;
#[cfg(not(loom))]
pub(crate) mod check_table;
#[cfg(not(loom))]
pub(crate) mod guarded_slots;
