//! Interfaces for Rust programs: the global allocator, heaps, and the `Allocator` traits.

// Lowest first: each uses only modules above it in this list.
pub(crate) mod global_alloc;
pub(crate) mod heap;
#[cfg(feature = "profile")]
pub mod profile;
#[cfg(any(feature = "allocator-api2", feature = "allocator-api"))]
pub(crate) mod allocator;
#[cfg(feature = "allocator-api2")]
pub(crate) mod allocator_api2;
#[cfg(feature = "allocator-api")]
pub(crate) mod allocator_api;
