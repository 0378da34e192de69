//! Talks to the kernel without the C library: system calls, files, the clock, waiting on a word.
//! No function here allocates or changes `errno`.

// Lowest first: each uses only modules above it in this list.
pub(crate) mod bytes;
pub(crate) mod syscall;
pub(crate) mod file;
pub(crate) mod proc;
pub(crate) mod auxiliary;
pub(crate) mod clock;
#[cfg_attr(loom, allow(dead_code, reason = "models park threads themselves"))]
pub(crate) mod futex;
#[cfg(loom)]
pub(crate) mod loom_park;
