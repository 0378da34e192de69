//! Operations on the cache of the virtual CPU that this thread runs on, each of which the kernel
//! either lets finish or restarts: restartable sequences (rseq(2), `docs/rseq.md`).
//!
//! One file an architecture; `none.rs` stands where there is none. A cache is a [`Slab`]:
//! sequences and the plain code in `cache.rs` work on the same layout.
//!
//! [`Slab`]: crate::cache::Slab

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

use crate::cache::Slab;
use crate::os::RseqArea;

/// Where a thread finds the cache of its virtual CPU.
#[derive(Clone, Copy)]
#[allow(dead_code, reason = "nothing of it is read where there are no sequences")]
pub(crate) struct Place<'a> {
    /// Offset of the rseq area from the thread pointer.
    pub area: isize,
    pub slabs: &'a Slabs,
}

/// Which slab belongs to which virtual CPU. Sequences read it in memory, so as to take few registers.
#[repr(C)]
pub(crate) struct Slabs {
    /// Offset of the virtual CPU's number from the thread pointer.
    id_at: isize,
    /// The address of the first slab.
    first: usize,
    /// How many there are. A thread with a higher number is served without a cache.
    count: u32,
}

impl Slabs {
    /// No thread has a cache here.
    pub const NONE: Self = Self { id_at: 0, first: 0, count: 0 };

    /// `count` slabs, for the numbers that an rseq area tells.
    pub fn new(area: RseqArea, first: *mut Slab, count: usize) -> Self {
        Self { id_at: area.id_at, first: first.expose_provenance(), count: count as u32 }
    }
}

#[cfg(all(
    test,
    any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little")),
    not(any(miri, loom))
))]
mod tests;
