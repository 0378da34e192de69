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

use core::ptr;

use crate::cache::Slab;
use crate::os::RseqArea;

/// Where a thread finds the cache of its virtual CPU.
#[derive(Clone, Copy)]
#[allow(dead_code, reason = "not read where there are no sequences")]
pub(crate) struct Place<'a> {
    /// Offset of the rseq area from the thread pointer.
    pub area: isize,
    pub caches: &'a Caches,
}

/// The caches of virtual CPUs, and how to find one's own. Sequences look here, as registers are few.
#[allow(dead_code, reason = "not read where there are no sequences")]
pub(crate) struct Caches {
    /// Offset of the virtual CPU's number from the thread pointer.
    id_at: isize,
    /// How many there are. A thread with a higher number is served without one.
    count: u32,
    /// The first.
    slabs: *mut Slab,
}

impl Caches {
    /// No thread has a cache.
    pub const NONE: Self = Self { id_at: 0, count: 0, slabs: ptr::null_mut() };

    /// `count` slabs for the virtual CPUs that an rseq area tells. Numbers from 2^31 on, which a thread has that is not
    /// registered, get no cache.
    pub fn new(area: RseqArea, slabs: *mut Slab, count: usize) -> Self {
        Self { id_at: area.id_at, count: count.min(1 << 31) as u32, slabs }
    }
}

#[cfg(all(
    test,
    any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little")),
    not(any(miri, loom))
))]
mod tests;
