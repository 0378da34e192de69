//! Operations on the cache of the virtual CPU that this thread runs on, each of which the kernel
//! either lets finish or restarts: restartable sequences (rseq(2), `docs/rseq.md`).
//!
//! One file an architecture; `none.rs` stands where there is none yet. A cache is a [`Slab`]:
//! sequences and the plain code in `cache.rs` work on the same layout.
//!
//! [`Slab`]: crate::cache::Slab

#[cfg_attr(all(target_arch = "x86_64", not(miri), not(loom)), path = "x86_64.rs")]
#[cfg_attr(not(all(target_arch = "x86_64", not(miri), not(loom))), path = "none.rs")]
mod arch;
pub(crate) use arch::{pop, pop_batch, push, push_batch, registered_by_libc, replace_header};

use crate::cache::Slab;

/// Where a thread finds the cache of its virtual CPU. Offsets are from the thread pointer.
#[repr(C)]
pub(crate) struct Place {
    /// Offset of the rseq area; 0 where the mode in force does not use it on the hot path.
    pub area: isize,
    /// Offset of the number of the virtual CPU.
    pub id_at: isize,
    /// The caches, one after the other.
    pub slabs: *mut Slab,
    /// How many there are. A thread with a higher number is served without a cache.
    pub count: usize,
}
