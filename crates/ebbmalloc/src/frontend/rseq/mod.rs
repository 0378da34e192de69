//! Operations on the cache of the virtual CPU that this thread runs on, each of which the kernel
//! either lets finish or restarts: restartable sequences (rseq(2), `docs/rseq.md`).
//!
//! One file an architecture; `none.rs` stands where there is none. A cache is a [`Slab`]:
//! sequences and the plain code in `cache.rs` work on the same layout.
//!
//! [`Slab`]: crate::frontend::slab::Slab

#[cfg_attr(any(miri, loom), path = "none.rs")]
#[cfg_attr(all(target_arch = "x86_64", not(any(miri, loom))), path = "x86_64.rs")]
#[cfg_attr(
    all(target_arch = "aarch64", target_endian = "little", not(any(miri, loom))),
    path = "aarch64.rs"
)]
#[cfg_attr(
    not(any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little"))),
    path = "none.rs"
)]
mod arch;
pub(crate) use arch::{holds, pop, pop_batch, push, push_batch, replace_header, slab};

use crate::frontend::slab::Slab;
use crate::platform::os::RseqArea;

/// Where a thread finds the cache of its virtual CPU.
#[derive(Clone, Copy)]
#[allow(dead_code, reason = "not all of it is read where there are no sequences")]
pub(crate) struct Place {
    /// Offset of the rseq area from the thread pointer. Never 0 in a place that is set up.
    pub area: isize,
    /// Offset of the virtual CPU's number from the thread pointer.
    pub id_at: isize,
    /// The address of the first slab, and in its low 16 bits how many slabs there are. A thread
    /// with a higher number is served without a cache.
    pub slabs_and_count: usize,
}

impl Place {
    /// No thread has a cache here.
    pub const UNSET: Self = Self { area: 0, id_at: 0, slabs_and_count: 0 };

    /// The place of an rseq area, over `count` slabs. Linux numbers at most 8,192 CPUs (NR_CPUS of x86-64), so of a number only the
    /// low 16 bits need be compared; those of -1 and -2, for threads that are not registered, are above any count.
    pub fn new(area: RseqArea, slabs: *mut Slab, count: usize) -> Self {
        let count = count.min(0xffff);
        let slabs_and_count = slabs.expose_provenance() | count;
        Self { area: area.offset, id_at: area.id_at, slabs_and_count }
    }
}

#[cfg(all(
    test,
    any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little")),
    not(any(miri, loom))
))]
mod tests;
