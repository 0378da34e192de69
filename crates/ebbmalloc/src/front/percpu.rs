//! Caches by virtual CPU: `rseq/` does the work, the kernel keeps threads apart.

use super::Front;
use crate::cache::{Header, Slab, bottom_of};
use crate::rseq::{self, Place};
use crate::size_class::SizeClass;

/// The front end of threads that the place tells how to find caches for.
pub(crate) struct PerCpu(pub Place);

impl Front for PerCpu {
    fn pop(&self, class: SizeClass) -> *mut u8 {
        // SAFETY: a `PerCpu` exists only once the place is set up.
        unsafe { rseq::pop(self.0, class) }
    }

    fn push(&self, class: SizeClass, block: *mut u8) -> bool {
        // SAFETY: as above; the caller gives the block up.
        unsafe { rseq::push(self.0, class, block) }
    }

    fn pop_batch(&self, class: SizeClass, blocks: &mut [*mut u8]) -> usize {
        // SAFETY: as above.
        unsafe { rseq::pop_batch(self.0, class, bottom_of(class), blocks) }
    }

    fn push_batch(&self, class: SizeClass, blocks: &[*mut u8]) -> usize {
        // SAFETY: as above.
        unsafe { rseq::push_batch(self.0, class, blocks) }
    }

    fn grow(&self, class: SizeClass) -> Option<(Header, Header)> {
        self.change(class, |header| header.grown(class))
    }

    fn slab(&self) -> Option<*mut Slab> {
        // SAFETY: as above.
        let slab = unsafe { rseq::slab(self.0) };
        (!slab.is_null()).then_some(slab)
    }

    fn look(&self, class: SizeClass) -> Option<Header> {
        self.change(class, |header| header).map(|(header, _)| header)
    }

    fn shrink(&self, class: SizeClass) {
        self.change(class, |header| header.shrunk(class));
    }
}

impl PerCpu {
    /// Replaces the header of the class's stack by what `to` makes of it, which must describe the same
    /// blocks. The header before and after.
    fn change(&self, class: SizeClass, to: impl Fn(Header) -> Header) -> Option<(Header, Header)> {
        let (mut old, mut new) = (Header::default(), Header::default());
        loop {
            // SAFETY: as above; the caller's new header describes the same contents.
            let found = unsafe { rseq::replace_header(self.0, class, old, new) }?;
            let wanted = to(found);
            if found == wanted || found == old && new == wanted {
                return Some((found, wanted));
            }
            (old, new) = (found, wanted);
        }
    }
}
