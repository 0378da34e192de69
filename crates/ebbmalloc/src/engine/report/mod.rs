//! Reports on the engine: statistics, where resident memory is, and an audit for tests.

// Lowest first: each uses only modules above it in this list.
#[cfg(not(loom))]
mod room;
#[cfg(not(loom))]
pub(crate) mod why;
#[cfg(not(loom))]
pub(crate) mod stats;
#[cfg(not(loom))]
pub(crate) mod audit;
