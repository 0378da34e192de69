//! Makes any global allocator an `Allocator`, for collections that are generic over it.

use std::alloc::{GlobalAlloc, Layout};
use std::ptr::NonNull;

use allocator_api2::alloc::{AllocError, Allocator};

/// Takes memory from `A`. Unlike with the global allocator, the compiler knows which one it is.
#[derive(Clone, Copy)]
pub struct Through<A>(pub A);

// SAFETY: blocks come from `A`, which keeps them wherever this value moves; copies share it.
unsafe impl<A: GlobalAlloc> Allocator for Through<&'static A> {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        if layout.size() == 0 {
            return Ok(empty(layout));
        }
        // SAFETY: the size is not 0.
        sized(unsafe { self.0.alloc(layout) }, layout)
    }

    unsafe fn deallocate(&self, block: NonNull<u8>, layout: Layout) {
        if layout.size() != 0 {
            // SAFETY: the caller guarantees a block of this layout; it is not empty, so it is from
            // `A`.
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
            // Collections keep their alignment, and `realloc` cannot change it.
            return Err(AllocError);
        }
        // SAFETY: the caller guarantees a block of the old layout, and the new one is no smaller.
        sized(unsafe { self.0.realloc(block.as_ptr(), old, new.size()) }, new)
    }
}

fn sized(block: *mut u8, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
    let block = NonNull::new(block).ok_or(AllocError)?;
    Ok(NonNull::slice_from_raw_parts(block, layout.size()))
}

/// Returns a block of size 0.
fn empty(layout: Layout) -> NonNull<[u8]> {
    // SAFETY: an alignment is not 0.
    let block = unsafe { NonNull::new_unchecked(std::ptr::without_provenance_mut(layout.align())) };
    NonNull::slice_from_raw_parts(block, 0)
}
