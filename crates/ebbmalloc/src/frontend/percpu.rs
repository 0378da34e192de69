//! Caches by virtual CPU: `rseq/` does the work, the kernel keeps threads apart.

use super::front::Front;
use super::per_thread as thread;
use crate::frontend::rseq::{self, PerCpuBase};
use crate::frontend::slab::{self as cache, Header, Slab, bottom_of};
use crate::platform::os::Os;
use crate::size_class::SizeClass;

/// The front end of threads that the place, which is set up, tells how to find caches for.
pub(crate) struct PerCpu<'a, O> {
    pub place: PerCpuBase,
    pub os: &'a O,
    /// Whether threads have to register themselves.
    pub joining: bool,
}

impl<O: Os> Front for PerCpu<'_, O> {
    fn pop(&self, class: SizeClass) -> *mut u8 {
        // SAFETY: the place is set up.
        unsafe { rseq::pop(self.place, class) }
    }

    fn holds(&self, class: SizeClass, block: *mut u8) -> bool {
        // SAFETY: as above.
        unsafe { rseq::holds(self.place, class, bottom_of(class), block) }
    }

    fn push(&self, class: SizeClass, block: *mut u8) -> bool {
        // SAFETY: as above; the caller gives the block up.
        unsafe { rseq::push(self.place, class, block) }
    }

    fn mark_local(&self, block: *mut u8) {
        if let Some(slab) = self.slab() {
            // SAFETY: slabs of virtual CPUs have marks, and nobody locks them.
            unsafe { cache::mark_local(slab, block) }
        }
    }

    fn pop_batch(&self, class: SizeClass, blocks: &mut [*mut u8]) -> usize {
        // SAFETY: as above.
        unsafe { rseq::pop_batch(self.place, class, bottom_of(class), blocks) }
    }

    fn push_batch(&self, class: SizeClass, blocks: &[*mut u8]) -> usize {
        // SAFETY: as above.
        unsafe { rseq::push_batch(self.place, class, blocks) }
    }

    fn grow(&self, class: SizeClass) -> Option<(Header, Header)> {
        let grow = || self.change(class, |header| header.grown(class));
        grow().or_else(|| if self.join() { grow() } else { None })
    }

    fn slab(&self) -> Option<*mut Slab> {
        // SAFETY: as above.
        let slab = unsafe { rseq::slab(self.place) };
        (!slab.is_null()).then_some(slab)
    }

    fn look(&self, class: SizeClass) -> Option<Header> {
        self.change(class, |header| header).map(|(header, _)| header)
    }

    fn shrink(&self, class: SizeClass) {
        self.change(class, |header| header.shrunk(class));
    }
}

impl<O: Os> PerCpu<'_, O> {
    /// Registers the calling thread, where that is ours to do. Once: whoever is refused is served without a
    /// cache, and so is a thread that is about to exit.
    #[cold]
    fn join(&self) -> bool {
        let words = self.os.thread_words();
        // In this order: watching may allocate, and does so without a cache.
        self.joining && thread::refuse(words) && self.os.watch_thread() && self.os.join_rseq()
    }

    /// Replaces the header of the class's stack by what `to` makes of it, which must describe the same
    /// blocks. The header before and after.
    fn change(&self, class: SizeClass, to: impl Fn(Header) -> Header) -> Option<(Header, Header)> {
        let (mut old, mut new) = (Header::default(), Header::default());
        loop {
            // SAFETY: as above; the caller's new header describes the same contents.
            let found = unsafe { rseq::replace_header(self.place, class, old, new) }?;
            let wanted = to(found);
            if found == wanted || found == old && new == wanted {
                return Some((found, wanted));
            }
            (old, new) = (found, wanted);
        }
    }
}
