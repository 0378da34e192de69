//! Lists the slabs of the caches that belong to no thread: per-CPU caches, then transfer caches.
//!
//! In slot mode and thread mode threads share the former, each behind its lock.

use crate::frontend::rseq;
use crate::frontend::tuning::TRANSFER_CACHES_MANY;
use crate::size_class::SizeClass;
use core::ops::Range;
use core::ptr;

use crate::engine::mode::Mode;
use crate::engine::{Engine, Setup};
use crate::frontend::slab::Slab;
use crate::frontend::transfer_cache::Transfers;
use crate::platform::os::Os;

impl<O: Os> Engine<O> {
    /// Number of per-CPU caches and transfer caches.
    pub(crate) fn slab_count(&self) -> usize {
        self.setup().cpu_cache_count + self.setup().transfer_cache_count
    }

    /// The slabs of per-CPU caches and transfer caches.
    pub(crate) fn slabs(&self) -> impl Iterator<Item = Slab> {
        self.slabs_of(0..self.slab_count())
    }

    /// The slabs that threads use without a lock: in percpu mode, those of the per-CPU caches.
    pub(crate) fn unlocked_slabs(&self) -> impl Iterator<Item = Slab> {
        self.slabs_of(0..self.unlocked_count())
    }

    /// The slabs that only the holder of their lock uses: transfer caches, and all in the other
    /// modes.
    pub(crate) fn locked_slabs(&self) -> impl Iterator<Item = Slab> {
        self.slabs_of(self.unlocked_count()..self.slab_count())
    }

    fn unlocked_count(&self) -> usize {
        if self.setup().mode == Mode::PerCpu { self.setup().cpu_cache_count } else { 0 }
    }

    fn slabs_of(&self, numbers: Range<usize>) -> impl Iterator<Item = Slab> {
        // SAFETY: all callers stay below `slab_count`, the number of slabs in the region.
        numbers.map(|number| unsafe { Slab::new(self.region.slabs().add(number)) })
    }

    /// The transfer caches, as the calling thread uses them.
    pub(crate) fn transfers(&self) -> Transfers {
        let Setup { cpu_cache_count, transfer_cache_count: count, mode, .. } = *self.setup();
        // SAFETY: the slabs of transfer caches follow those of per-CPU caches.
        let slabs = unsafe { self.region.slabs().add(cpu_cache_count) };
        let for_flows = mode == Mode::PerCpu && count < TRANSFER_CACHES_MANY;
        Transfers { slabs, count, for_flows, key: self.os.thread_key() }
    }

    /// Pops a block from the cache of the thread's CPU; null if it is empty, or outside of percpu
    /// mode. Takes no lock, so the caller may hold any.
    #[inline(always)]
    pub(crate) fn pop_of_cpu(&self, class: SizeClass) -> *mut u8 {
        // SAFETY: set-up writes the base before it publishes `hot_area`.
        let pop = |base| unsafe { rseq::pop(base, class) };
        self.hot_base(&self.hot_area).map_or(ptr::null_mut(), pop)
    }
}
