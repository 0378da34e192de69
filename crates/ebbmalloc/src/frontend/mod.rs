//! Front ends: they choose the cache that a thread uses, and give the thread sole use of it for one
//! operation.
//!
//! - `percpu`: one cache for each virtual CPU, used through restartable sequences.
//! - `per_thread`: one cache for each thread, up to a maximum number of threads.
//! - `shared_slots`: for all other threads, any cache whose lock is free.
//!
//! All front ends work on the same kind of slab, and share the code that refills and flushes caches
//! (`engine/caches/`).

// Lowest first: each uses only modules above it in this list.
pub(crate) mod tuning;
pub(crate) mod miss_history;
pub(crate) mod slab;
pub(crate) mod transfer_cache;
pub(crate) mod rseq;
pub(crate) mod thread_slabs;
pub(crate) mod front;
pub(crate) mod per_thread;
mod percpu;
mod shared_slots;

pub(crate) use front::{Front, Observed};
pub(crate) use per_thread::Thread;
pub(crate) use percpu::PerCpu;
pub(crate) use shared_slots::{Preferred, Slots};
