//! Restartable sequences: operations on the cache of the calling thread's virtual CPU, each of
//! which the kernel either lets finish or restarts (rseq(2)). `docs/rseq.md` explains them, and
//! lists what to run after a change.
//!
//! There is one file for each architecture; `none.rs` is for those without sequences. A cache is a
//! [`Slab`]: the sequences and the plain code in `frontend/owned_stack.rs` work on the same layout.

#[cfg_attr(
    all(target_os = "linux", target_arch = "x86_64", not(any(ebbmalloc_posix, miri, loom))),
    path = "x86_64.rs"
)]
#[cfg_attr(
    all(target_os = "linux", target_arch = "aarch64", not(any(ebbmalloc_posix, miri, loom))),
    path = "aarch64.rs"
)]
#[cfg_attr(
    not(all(
        target_os = "linux",
        any(target_arch = "x86_64", target_arch = "aarch64"),
        not(any(ebbmalloc_posix, miri, loom))
    )),
    path = "none.rs"
)]
mod arch;

#[cfg(all(
    test,
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    not(any(ebbmalloc_posix, miri, loom))
))]
mod tests;

pub(crate) use arch::{pop, push, push_batch, replace_header};

use crate::frontend::slab::SlabMemory;
use crate::platform::os::RseqArea;

/// The offsets and addresses by which a thread finds the cache of its virtual CPU.
#[derive(Clone, Copy)]
pub(crate) struct PerCpuBase {
    /// Offset of the rseq area from the thread pointer, in bytes. 0 where no per-CPU cache may be
    /// used: before set-up, in other modes, and while the engine counts operations.
    pub area: isize,
    /// Offset of the virtual CPU's number from the thread pointer, in bytes.
    pub id_at: isize,
    /// The address of the first slab, with the number of slabs in its low 16 bits. A thread whose
    /// virtual CPU has no slab is served without a cache.
    pub slabs_and_count: usize,
}

impl PerCpuBase {
    /// No thread has a cache.
    pub const UNSET: Self = Self { area: 0, id_at: 0, slabs_and_count: 0 };

    /// For threads with this rseq area, and `count` slabs.
    ///
    /// Linux numbers at most 8,192 CPUs (NR_CPUS of x86-64), so comparing the low 16 bits of a
    /// number is enough. Those of -1 and -2, for threads that are not registered, are not below any
    /// count.
    pub fn new(area: RseqArea, slabs: *mut SlabMemory, count: usize) -> Self {
        let count = count.min(0xffff);
        let slabs_and_count = slabs.expose_provenance() | count;
        Self { area: area.offset, id_at: area.id_at, slabs_and_count }
    }
}
