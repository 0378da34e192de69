//! What all front ends have in common.

use crate::frontend::slab::{Header, Slab};
use crate::size_class::SizeClass;

/// What a front end can do with the calling thread's cache.
pub(crate) trait Front {
    /// The newest block; null if there is none.
    fn pop(&self, class: SizeClass) -> *mut u8;
    /// Whether this block is there, as far as can be told at once: true is certain.
    fn holds(&self, class: SizeClass, block: *mut u8) -> bool;
    /// Puts a free block on top; false if there is no room, if it seems to be there already, or where the cache knows
    /// that it was never there.
    fn push(&self, class: SizeClass, block: *mut u8) -> bool;
    /// As many of the newest blocks as fit; how many.
    fn pop_batch(&self, class: SizeClass, blocks: &mut [*mut u8]) -> usize;
    /// Takes down that a block comes from this cache, which never held it. A cache of a thread's own would not remember.
    fn mark_local(&self, _: *mut u8) {}
    /// Puts blocks on top, the last one topmost; how many went.
    fn push_batch(&self, class: SizeClass, blocks: &[*mut u8]) -> usize;
    /// Sets the class's stack up, or doubles its room up to the bound. The header before and
    /// after; `None` where this thread has no cache.
    fn grow(&self, class: SizeClass) -> Option<(Header, Header)>;
    /// Where the cache lies at this moment; the thread may have another the next. `None` where it has
    /// none.
    fn slab(&self) -> Option<*mut Slab>;
    /// The header of the class's stack, at this moment.
    fn look(&self, class: SizeClass) -> Option<Header>;
    /// Whether the cache is the thread's own, whose stacks are bounded each by itself, and by the number of threads.
    fn is_own(&self) -> bool {
        false
    }
    /// Halves the room of the class's stack, as far as what it holds allows.
    fn shrink(&self, class: SizeClass);
}
