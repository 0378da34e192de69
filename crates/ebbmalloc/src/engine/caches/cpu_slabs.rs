//! Lists the slabs of the caches that belong to no thread: per-CPU caches, then transfer caches.
//!
//! In slot mode and thread mode threads share the per-CPU caches, each behind its lock.

use core::ops::Range;

use crate::engine::Engine;
use crate::frontend::Mode;
use crate::frontend::slab::Slab;
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
}
