//! Caches by virtual CPU: `rseq/` does the work, the kernel keeps threads apart.

use super::Front;
use crate::cache::{Header, bottom_of};
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
        let mut old = Header::default();
        let mut new = old;
        loop {
            // SAFETY: as above; a grown header has the same top, or sets up an empty stack.
            let found = unsafe { rseq::replace_header(self.0, class, old, new) }?;
            if found == old && (old != new || !found.is_new()) {
                return Some((old, new));
            }
            (old, new) = (found, found.grown(class));
        }
    }
}
