//! The interfaces for Rust programs.

#[cfg(not(loom))]
pub(crate) mod global_alloc;
#[cfg(not(loom))]
pub(crate) mod heap;
#[cfg(all(any(feature = "allocator-api2", feature = "allocator-api"), not(loom)))]
pub(crate) mod allocator;
#[cfg(all(feature = "allocator-api", not(loom)))]
pub(crate) mod allocator_api;
#[cfg(all(feature = "allocator-api2", not(loom)))]
pub(crate) mod allocator_api2;
