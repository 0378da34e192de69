//! Serves the calls of a program: allocate, free, resize.
//!
//! The hot paths leave rare or slow cases to functions whose names end in `_slow`.

// Lowest first: each uses only modules above it in this list. They use this file too.
mod alloc;
mod free;
mod realloc;

use core::ptr;
use core::sync::atomic::{AtomicIsize, Ordering};

use crate::engine::Engine;
use crate::frontend::owned_stack::OwnedStack;
use crate::frontend::per_thread::Ready;
use crate::frontend::rseq::PerCpuBase;
use crate::platform::os::Os;
use crate::size_class::SizeClass;

impl<O: Os> Engine<O> {
    /// Bytes of the block that the program may use. Aborts the program if no block begins at the
    /// address.
    pub fn usable_size(&self, block: *mut u8) -> usize {
        self.size_at(block, "malloc_usable_size")
    }

    /// Bytes that the program may use of the block at this address. Aborts the program if there is
    /// none.
    pub(crate) fn size_at(&self, block: *mut u8, operation: &str) -> usize {
        match self.class_at(block) {
            Some(class) => class.size(),
            None => match self.heap_block(block) {
                Some(found) => self.size_in_heap(found, operation),
                None if self.is_sampled(block) => self.size_sampled(block, operation),
                None => self.large_size(self.large_units(block, operation).0),
            },
        }
    }

    /// Where the hot path finds caches; `None` where every operation takes the slow path.
    #[inline(always)]
    fn base_if_open(&self, area: &AtomicIsize) -> Option<PerCpuBase> {
        let area = area.load(Ordering::Acquire);
        if area == 0 {
            return None;
        }
        // `hot_area` and `hot_sized_area` have the same value wherever they are not 0.
        Some(PerCpuBase { area, ..self.base_to_free() })
    }

    /// Pops a block from the thread's own cache. Null if it has none, or no such block.
    #[inline(always)]
    fn pop_own(&self, class: SizeClass) -> *mut u8 {
        let cache = Ready::hot(self.os.thread_words());
        cache.map_or(ptr::null_mut(), |cache| cache.with(class, OwnedStack::pop))
    }

    /// Pushes a block to the thread's own cache. False if it has none, or no capacity left.
    #[inline(always)]
    fn push_own(&self, class: SizeClass, block: *mut u8) -> bool {
        let cache = Ready::hot(self.os.thread_words());
        cache.is_some_and(|cache| cache.with(class, |stack| stack.push(block)))
    }

    #[inline(never)]
    pub(crate) fn is_cached_slow(&self, block: *mut u8, class: SizeClass) -> bool {
        self.front().holds(class, block)
    }
}
