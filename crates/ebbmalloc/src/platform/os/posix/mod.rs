//! macOS, FreeBSD and Android as platforms, by functions of POSIX: `memory.rs`, `threads.rs`,
//! `process.rs` and `reports.rs` implement the contract (`interface.rs`), and `system.rs` has what
//! the systems do in ways of their own. There are no restartable sequences and no stacks.
//!
//! For the global allocator of a Rust program only. The C library's `malloc` is another allocator
//! there, so its functions may be called at any time, even if they allocate.
//!
//! `--cfg ebbmalloc_posix` builds all this for Linux, where tests run it. They have not
//! been run on the systems themselves.

// Lowest first: each uses only modules above it in this list.
mod system;
mod stay;
mod memory;
mod threads;
mod process;
mod reports;

pub(crate) use stay::stay_loaded;
