//! What ebbmalloc is tested with: programs of operations, a shadow model that knows what every
//! live block must look like, and a fake operating system that fails on demand.
//!
//! The tests themselves are in `tests/`:
//!
//! - `model.rs`: random programs, on one thread and on several that hand blocks to each other
//! - `interrupts.rs`: percpu mode under signals and migrations, thread mode under handlers that allocate
//! - `ledger.rs`: where resident memory is: adds up, and names what was planted
//! - `threads.rs`: caches of threads: handed on, orphaned, shared out
//! - `misuse.rs`: addresses that must not be freed
//! - `room.rs`: what caches hold is bounded, and goes where it is needed
//! - `purge.rs`: free memory goes back, sooner where memory gets short, but not what is wanted again at once
//! - `limit.rs`: `EBB_LIMIT`, to the byte
//! - `sizes.rs`: sizes and alignments around each place where arithmetic on them could wrap
//! - `heaps.rs`: heaps: several, by several threads, at limits, short of memory, misused
//! - `oom.rs`: every single call of the operating system fails once
//! - `watch.rs`: an engine that reads or writes free memory would be seen
//! - `miri.rs`: what Miri has to watch, and small enough for it; `miri_mutants.rs`: what it must stop
//! - `audit.rs`: what the check of the whole heap sees
//! - `fuzz.rs`: random programs with everything in them: modes, heaps, forks, faults, limits
//! - `loom.rs`: every interleaving of locks, spans and caches, and mutants that must fail

#![warn(missing_docs)]

mod fake_os;
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
