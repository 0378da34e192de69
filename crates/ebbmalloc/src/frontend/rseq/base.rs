//! Where a thread finds the cache of its virtual CPU.

use crate::frontend::slab::Slab;
use crate::platform::os::RseqArea;

/// Where a thread finds the cache of its virtual CPU.
#[derive(Clone, Copy)]
#[allow(dead_code, reason = "not all of it is read where there are no sequences")]
pub(crate) struct PerCpuBase {
    /// Offset of the rseq area from the thread pointer. Never 0 in a place that is set up.
    pub area: isize,
    /// Offset of the virtual CPU's number from the thread pointer.
    pub id_at: isize,
    /// The address of the first slab, and in its low 16 bits how many slabs there are. A thread
    /// with a higher number is served without a cache.
    pub slabs_and_count: usize,
}

impl PerCpuBase {
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
