//! Collections that are generic over their allocator, on any global allocator.

use std::alloc::{GlobalAlloc, Layout};
use std::ptr::NonNull;

use allocator_api2::alloc::{AllocError, Allocator};

/// Memory from `A`. The difference to the global allocator is that the compiler knows which it is.
#[derive(Clone, Copy)]
pub struct Through<A>(pub A);

// SAFETY: blocks come from `A`, which keeps them wherever this value moves; copies share it.
unsafe impl<A: GlobalAlloc> Allocator for Through<&'static A> {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        if layout.size() == 0 {
            return Ok(empty(layout));
        }
        // SAFETY: not of size 0.
        sized(unsafe { self.0.alloc(layout) }, layout)
    }

    unsafe fn deallocate(&self, block: NonNull<u8>, layout: Layout) {
        if layout.size() != 0 {
            // SAFETY: by contract, a block of this layout; not an empty one, so it is from `A`.
            unsafe { self.0.dealloc(block.as_ptr(), layout) }
        }
    }

    unsafe fn grow(
        &self,
        block: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        if old.size() == 0 {
            return self.allocate(new);
        }
        if old.align() != new.align() {
            // Collections keep their alignment, and `realloc` can do nothing else.
            return Err(AllocError);
        }
        // SAFETY: by contract, a block of the old layout, and the new one is no smaller.
        sized(unsafe { self.0.realloc(block.as_ptr(), old, new.size()) }, new)
    }
}

fn sized(block: *mut u8, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
    let block = NonNull::new(block).ok_or(AllocError)?;
    Ok(NonNull::slice_from_raw_parts(block, layout.size()))
}

/// A block of size 0.
fn empty(layout: Layout) -> NonNull<[u8]> {
    // SAFETY: an alignment is not 0.
    let block = unsafe { NonNull::new_unchecked(std::ptr::without_provenance_mut(layout.align())) };
    NonNull::slice_from_raw_parts(block, 0)
}
