//! Which caches an engine has beside those of threads: one for each CPU, and then transfer caches.

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
    /// How many caches there are beside those of threads.
    pub(crate) fn slab_count(&self) -> usize {
        self.setup().caches + self.setup().transfers
    }

    /// The caches beside those of threads.
    pub(crate) fn slabs(&self) -> impl Iterator<Item = *mut Slab> {
        self.slabs_of(0..self.slab_count())
    }

    /// Those that only threads on their CPU work on, without a lock.
    pub(crate) fn unlocked_slabs(&self) -> impl Iterator<Item = *mut Slab> {
        self.slabs_of(0..self.unlocked())
    }

    /// Those that belong to whoever holds their lock.
    pub(crate) fn locked_slabs(&self) -> impl Iterator<Item = *mut Slab> {
        self.slabs_of(self.unlocked()..self.slab_count())
    }

    /// How many of the first belong to no lock.
    fn unlocked(&self) -> usize {
        if self.setup().mode == Mode::PerCpu { self.setup().caches } else { 0 }
    }

    fn slabs_of(&self, numbers: Range<usize>) -> impl Iterator<Item = *mut Slab> {
        // SAFETY: none of the callers asks for more than there are.
        numbers.map(|number| unsafe { self.region.slabs().add(number) })
    }

    /// Those between the others, for the calling thread.
    pub(crate) fn transfers(&self) -> Transfers {
        let Setup { caches, transfers: count, mode, .. } = *self.setup();
        // SAFETY: they lie behind those of CPUs.
        let slabs = unsafe { self.region.slabs().add(caches) };
        let for_flows = mode == Mode::PerCpu && count < TRANSFER_CACHES_MANY;
        Transfers { slabs, count, for_flows, key: self.os.thread_key() }
    }

    /// A block from the cache of the thread's CPU; null if there is none, or no such cache. Takes no lock, and so may be asked under any.
    #[inline(always)]
    pub(crate) fn pop_of_cpu(&self, class: SizeClass) -> *mut u8 {
        // SAFETY: the place is set up before it is published.
        let pop = |place| unsafe { rseq::pop(place, class) };
        self.hot_place(&self.hot_area).map_or(ptr::null_mut(), pop)
    }
}
