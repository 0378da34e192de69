//! The figures that programs read, and their formats: statistics and heap profiles.
//!
//! They are the same on every target, also where the engine does not run.

// Lowest first: each uses only modules above it in this list.
pub(crate) mod numbers;
pub(crate) mod choice;
pub(crate) mod process;
pub(crate) mod stats;
pub(crate) mod profile;

/// The version of this crate.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
