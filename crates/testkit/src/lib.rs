//! Test kit of ebbmalloc: programs of operations, a shadow model of every live block's contents,
//! and a fake operating system that fails on demand.
//!
//! The tests are in `tests/`. In `tests/engine/`, on the fake operating system unless stated:
//!
//! - `model.rs`: random programs, on one thread and on several that hand blocks to each other
//! - `fuzz.rs`: random programs with all features: modes, heaps, forks, faults, limits
//! - `oom.rs`: every single call of the operating system fails once
//! - `sizes.rs`: sizes and alignments around each value at which arithmetic could wrap
//! - `misuse.rs`: addresses that must not be freed
//! - `check.rs`, `harden.rs`, `sample.rs`: the safety modes
//! - `heaps.rs`: several heaps, used by several threads, at limits, short of memory, misused
//! - `threads.rs`: caches of threads are handed on, orphaned and shared
//! - `capacity.rs`: the capacity of caches is bounded, and goes to the classes that need it
//! - `streak.rs`, `transfer.rs`: sizes of batches; transfer caches
//! - `spans.rs`, `growth.rs`: a first span begins with few resident pages; reclaim before the heap
//!   grows
//! - `huge.rs`: huge pages
//! - `purge.rs`: free memory is purged, earlier under memory pressure, but not what refaults
//! - `limit.rs`: `EBB_LIMIT`, to the byte
//! - `options.rs`: options, from the environment and from code
//! - `profile.rs`: the heap profile is as exact as it claims
//! - `packing.rs`: blocks that the program moves against fragmentation
//! - `addresses.rs`: address space is taken on demand, among other mappings
//! - `audit.rs`: the audit of the whole heap finds inconsistencies
//! - `watch.rs`: the watch notices an engine that reads or writes free memory
//!
//! And in `tests/`:
//!
//! - `interrupts.rs`: all modes under signals, migrations and handlers that allocate
//! - `moving.rs`: large blocks that grow by moving their pages
//! - `ledger.rs`: the ledger adds up, and names memory that a test planted
//! - `miri.rs`: small programs for Miri; `miri_mutants.rs`: mistakes that it must stop
//! - `loom.rs`: every interleaving of locks, spans and caches, and mutants that must fail

#![warn(missing_docs)]

mod fake_os;
pub mod fake_stack;
mod faults;
#[cfg_attr(loom, allow(dead_code, reason = "models have no workers"))]
mod membarrier;
mod watch;
mod words;
pub use fake_os::FakeOs;
pub use faults::Faults;

#[cfg(not(loom))]
pub mod borders;
#[cfg(not(loom))]
mod case;
#[cfg(not(loom))]
pub mod fuzz;
#[cfg(not(loom))]
mod linux_in;
#[cfg(not(loom))]
mod op;
#[cfg(not(loom))]
mod shadow;
#[cfg(not(loom))]
mod worker;

#[cfg(not(loom))]
pub use linux_in::{LinuxIn, is_possible};
#[cfg(not(loom))]
pub use op::{Op, Program};
#[cfg(not(loom))]
pub use shadow::{Block, Shadow};
#[cfg(not(loom))]
pub use worker::{TestOs, Worker};
