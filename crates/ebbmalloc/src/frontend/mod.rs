//! Front ends: which cache a thread uses, and how it makes the cache its own for a moment.
//!
//! `percpu` indexes caches by virtual CPU and works in restartable sequences; `thread` gives each
//! thread a cache, as far as they go; `slot`, for all others, takes any cache that is not locked. All work on the same kind of
//! slab, and refilling and flushing are the same for all (`refill.rs`).

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

pub(crate) use front::Front;
pub(crate) use per_thread::Thread;
pub(crate) use percpu::PerCpu;
pub(crate) use shared_slots::{Preferred, Slots};
