//! The operations that every front end offers on the calling thread's cache.

use crate::frontend::slab::{Header, Slab};
use crate::size_class::SizeClass;

/// What [`Front::observe`] saw.
#[derive(Clone, Copy)]
pub(crate) struct Observed {
    pub slab: Slab,
    /// The header of the class's stack.
    pub header: Header,
}

/// A front end: the operations on the calling thread's cache.
pub(crate) trait Front {
    /// Takes the newest block; null if the stack is empty.
    fn pop(&self, class: SizeClass) -> *mut u8;
    /// True if the block is certainly in the stack. False may mean only that a quick look did not
    /// find it.
    fn holds(&self, class: SizeClass, block: *mut u8) -> bool;
    /// Puts a free block on top. False if the stack is full, if the block seems to be in it
    /// already, or if the cache knows that the block was never in it.
    fn push(&self, class: SizeClass, block: *mut u8) -> bool;
    /// Takes the newest blocks, as many as fit into `blocks`. Returns how many it took.
    fn pop_batch(&self, class: SizeClass, blocks: &mut [*mut u8]) -> usize;
    /// Puts blocks on top, the last one topmost. Returns how many it put there.
    fn push_batch(&self, class: SizeClass, blocks: &[*mut u8]) -> usize;
    /// Looks which cache the thread has, and at the class's stack in it; `None` if it has none. The
    /// thread may use another cache a moment later.
    fn observe(&self, class: SizeClass) -> Option<Observed>;
    /// Sets the class's stack up, or raises its capacity up to the bound: by a fixed step, or to
    /// the double in a thread's own cache. `observed` is the header that it probably has. Returns
    /// the header before and after; `None` if this thread has no cache.
    fn grow(&self, class: SizeClass, observed: Header) -> Option<(Header, Header)>;
    /// True if the cache is the thread's own. Its stacks are then bounded one by one, and by the
    /// number of threads, but not all together. It has no marks.
    fn is_own(&self) -> bool {
        false
    }
}
