//! The heap profile: when it counts, which blocks it samples, its table, and who reads it.

// Lowest first: each uses only modules above it in this list.
pub(crate) mod gate;
pub(crate) mod sampling;
#[cfg(not(loom))]
pub(crate) mod table;
#[cfg(not(loom))]
pub(crate) mod walk;
#[cfg(not(loom))]
pub(crate) mod state;
