//! Windows as a platform: `memory.rs`, `threads.rs`, `process.rs` and `reports.rs` implement the
//! contract (`interface.rs`). There are no restartable sequences, forks, signals or stacks.
//!
//! Nothing here waits while Windows holds the lock of its loader, except for locks of the engine,
//! whose holders do not wait for the loader: Windows tells a file's callback of threads that begin
//! and end with that lock held, and the engine's work at the end of a thread runs there.

// Lowest first: each uses only modules above it in this list.
mod events;
mod memory;
mod text;
mod threads;
mod process;
mod reports;
