//! The front end of percpu mode: a cache for each virtual CPU, used through the restartable
//! sequences of `frontend/rseq/`.

use super::front::{Front, Observed};
use super::per_thread as thread;
use crate::frontend::rseq::{self, PerCpuBase};
use crate::frontend::slab::{Header, bottom_of};
use crate::platform::os::Os;
use crate::size_class::SizeClass;

/// The front end of percpu mode.
pub(crate) struct PerCpu<'a, O> {
    /// Where threads find their caches. It is set up.
    pub place: PerCpuBase,
    pub os: &'a O,
    /// True if the engine registers threads for rseq, because the C library does not.
    pub joining: bool,
}

impl<O: Os> Front for PerCpu<'_, O> {
    fn pop(&self, class: SizeClass) -> *mut u8 {
        // SAFETY: `place` is set up.
        unsafe { rseq::pop(self.place, class) }
    }

    fn holds(&self, class: SizeClass, block: *mut u8) -> bool {
        // SAFETY: `place` is set up.
        let slab = unsafe { self.place.slab() };
        // SAFETY: slabs of virtual CPUs have marks.
        slab.is_some_and(|slab| unsafe { slab.holds(class, block) })
    }

    fn push(&self, class: SizeClass, block: *mut u8) -> bool {
        // SAFETY: `place` is set up; the caller gives up the block, which is of this class.
        unsafe { rseq::push(self.place, class, block) }
    }

    fn pop_batch(&self, class: SizeClass, blocks: &mut [*mut u8]) -> usize {
        // SAFETY: `place` is set up.
        unsafe { rseq::pop_batch(self.place, class, bottom_of(class), blocks) }
    }

    fn push_batch(&self, class: SizeClass, blocks: &[*mut u8]) -> usize {
        // SAFETY: `place` is set up; the caller gives up the blocks, which are of this class.
        unsafe { rseq::push_batch(self.place, class, blocks) }
    }

    fn observe(&self, class: SizeClass) -> Option<Observed> {
        // SAFETY: `place` is set up.
        let slab = unsafe { self.place.slab() };
        slab.map(|slab| Observed { slab, header: slab.header(class) })
    }

    fn grow(&self, class: SizeClass, observed: Header) -> Option<(Header, Header)> {
        // A closed header may have been taken since, and the sequence stores what it is given: it
        // must not be given that.
        let observed = if observed.is_closed() { Header::default() } else { observed };
        let grow = |observed| self.change(class, observed, |header| header.grown(class));
        grow(observed).or_else(|| if self.join() { grow(Header::default()) } else { None })
    }
}

impl<O: Os> PerCpu<'_, O> {
    /// Registers the calling thread, if the engine has to. Each thread tries once: if the kernel
    /// refuses, or if the thread is about to exit, it is served without a cache.
    #[cold]
    fn join(&self) -> bool {
        let words = self.os.thread_words();
        // In this order: `watch_thread` may allocate, and must not come back here.
        self.joining && thread::refuse(words) && self.os.watch_thread() && self.os.join_rseq()
    }

    /// Replaces the header of the class's stack by `to(header)`, which must describe the same
    /// blocks. One sequence does if the header is the observed one. Returns the header before and
    /// after.
    fn change(
        &self,
        class: SizeClass,
        observed: Header,
        to: impl Fn(Header) -> Header,
    ) -> Option<(Header, Header)> {
        let (mut old, mut new) = (observed, to(observed));
        loop {
            // SAFETY: `place` is set up; `to` returns a header that describes the same blocks.
            let found = unsafe { rseq::replace_header(self.place, class, old, new) }?;
            let target = to(found);
            // Nothing to store, or it is stored.
            if found == target || found == old && new == target {
                return Some((found, target));
            }
            (old, new) = (found, target);
        }
    }
}
