//! Paths in the file system of a machine.

/// Directory of the programs in the guest.
pub const TESTS: &str = "/tests";
/// The library in the guest.
pub const LIBRARY: &str = "/tests/libebbmalloc.so";
