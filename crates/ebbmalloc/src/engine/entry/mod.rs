//! Serves the calls of a program: allocate, free, resize.
//!
//! The hot paths leave rare or slow cases to functions whose names end in `_slow`.

// Lowest first: each uses only modules above it in this list. They use this file too.
mod alloc;
mod free;
mod realloc;

use crate::engine::Engine;
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
                None => self.large_size(&self.large_at(block, operation)),
            },
        }
    }

    #[inline(never)]
    pub(crate) fn is_cached_slow(&self, block: *mut u8, class: SizeClass) -> bool {
        self.front().holds(class, block)
    }
}
