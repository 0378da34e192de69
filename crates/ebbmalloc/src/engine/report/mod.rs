//! What the engine says of itself.

#[cfg(not(loom))]
pub(crate) mod stats;
#[cfg(not(loom))]
pub(crate) mod why;
#[cfg(not(loom))]
pub(crate) mod audit;
