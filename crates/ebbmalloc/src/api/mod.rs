//! Interfaces for Rust programs: the global allocator, heaps, and the `Allocator` traits.

// Lowest first: each uses only modules above it in this list.
#[cfg(not(loom))]
pub(crate) mod tuning_table;
pub(crate) mod global_alloc;
#[cfg(not(loom))]
pub(crate) mod heap;
#[cfg(all(feature = "profile", not(loom)))]
pub mod profile;
#[cfg(all(any(feature = "allocator-api2", feature = "allocator-api"), not(loom)))]
pub(crate) mod allocator;
#[cfg(all(feature = "allocator-api2", not(loom)))]
pub(crate) mod allocator_api2;
#[cfg(all(feature = "allocator-api", not(loom)))]
pub(crate) mod allocator_api;
