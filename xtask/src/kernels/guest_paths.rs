//! Where things lie in the file system of a machine.

/// Where programs lie in the guest.
pub const TESTS: &str = "/tests";
/// The library, in the guest.
pub const LIBRARY: &str = "/tests/libebbmalloc.so";
