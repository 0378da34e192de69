//! Gives the engine its platform: the operating system, atomics, a lock, options and messages.

// Lowest first: each uses only modules above it in this list.
pub(crate) mod tuning;
#[cfg(unix)]
pub(crate) mod errno;
pub(crate) mod arch;
pub(crate) mod kernel;
pub(crate) mod sync;
pub(crate) mod path;
pub(crate) mod os;
pub(crate) mod random;
pub(crate) mod message;
pub(crate) mod demangle;
pub(crate) mod read_options;
