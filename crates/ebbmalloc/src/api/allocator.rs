//! Implements the operations of the `Allocator` traits, which let a container choose its
//! allocator.
//!
//! There are two such traits: of the crate allocator-api2 (`allocator_api2.rs`), and of the
//! standard library (`allocator_api.rs`). Both allow blocks of no bytes. These take no memory
//! here: their address is the alignment.

use core::alloc::{GlobalAlloc, Layout};
use core::ptr::{self, NonNull};

use crate::api::heap::Heap;
use crate::this_process::ENGINE;

// SAFETY: as for `EbbMalloc`; a block is as large and as aligned as its layout says. For the
// functions below.
#[doc(hidden)]
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        to_null(Self::alloc(self, layout))
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        to_null(Self::alloc_zeroed(self, layout))
    }

    unsafe fn dealloc(&self, block: *mut u8, _: Layout) {
        // SAFETY: the caller guarantees that the block is this heap's and in use.
        unsafe { Self::dealloc(self, NonNull::new_unchecked(block)) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller guarantees that the block is this heap's and in use, and that the size
        // makes a layout.
        unsafe {
            let layout = Layout::from_size_align_unchecked(size, layout.align());
            to_null(Self::realloc(self, NonNull::new_unchecked(block), layout))
        }
    }
}

fn to_null(block: Option<NonNull<u8>>) -> *mut u8 {
    block.map_or(ptr::null_mut(), NonNull::as_ptr)
}

/// The block as a slice of the layout's size; `None` for null.
#[inline]
fn slice(block: *mut u8, layout: Layout) -> Option<NonNull<[u8]>> {
    Some(NonNull::slice_from_raw_parts(NonNull::new(block)?, layout.size()))
}

/// Allocates a block, unless the layout has no bytes. `zeroed` asks for zeros.
#[inline]
pub(crate) fn allocate(
    source: &impl GlobalAlloc,
    layout: Layout,
    zeroed: bool,
) -> Option<NonNull<[u8]>> {
    let block = match zeroed {
        _ if layout.size() == 0 => ptr::without_provenance_mut(layout.align()),
        // SAFETY: the layout has a byte or more.
        false => unsafe { source.alloc(layout) },
        // SAFETY: the layout has a byte or more.
        true => unsafe { source.alloc_zeroed(layout) },
    };
    slice(block, layout)
}

/// Frees a block, unless the layout has no bytes.
///
/// # Safety
/// As for `Allocator::deallocate`.
#[inline]
pub(crate) unsafe fn deallocate(source: &impl GlobalAlloc, block: NonNull<u8>, layout: Layout) {
    if layout.size() != 0 {
        // SAFETY: the caller guarantees that the block is the source's and fits the layout.
        unsafe { source.dealloc(block.as_ptr(), layout) }
    }
}

/// Grows or shrinks a block. Bytes beyond `old` are not zeroed.
///
/// # Safety
/// As for `Allocator::grow` and `Allocator::shrink`.
#[inline]
pub(crate) unsafe fn resize(
    source: &impl GlobalAlloc,
    block: NonNull<u8>,
    old: Layout,
    new: Layout,
) -> Option<NonNull<[u8]>> {
    // SAFETY: the caller guarantees that the block is the source's and fits `old`. Both blocks
    // have the bytes that are copied, and are distinct.
    unsafe {
        if old.size() != 0 && new.size() != 0 && old.align() == new.align() {
            return slice(source.realloc(block.as_ptr(), old, new.size()), new);
        }
        let moved = allocate(source, new, false)?;
        let kept = old.size().min(new.size());
        ENGINE.copy(block.as_ptr(), moved.as_ptr().cast::<u8>(), kept);
        deallocate(source, block, old);
        Some(moved)
    }
}

/// Grows a block, and zeroes its bytes beyond `old`.
///
/// # Safety
/// As for `Allocator::grow_zeroed`.
#[inline]
pub(crate) unsafe fn grow_zeroed(
    source: &impl GlobalAlloc,
    block: NonNull<u8>,
    old: Layout,
    new: Layout,
) -> Option<NonNull<[u8]>> {
    // SAFETY: the caller guarantees what `resize` needs, and that `new` is at least as large as
    // `old`. So the bytes to zero lie in the new block.
    unsafe {
        let grown = resize(source, block, old, new)?;
        let added_bytes = new.size() - old.size();
        ENGINE.clear(grown.as_ptr().cast::<u8>().add(old.size()), added_bytes);
        Some(grown)
    }
}

/// Implements an `Allocator` trait for types with `GlobalAlloc`.
macro_rules! implement {
    ($($type:ty),+) => {$(
        // SAFETY: blocks stay until they are freed, or until the heap and all its clones are
        // dropped, also if a value is moved. The functions of this module keep to the trait's
        // contract.
        unsafe impl Allocator for $type {
            #[inline]
            fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
                per_container::allocate(self, layout, false).ok_or(AllocError)
            }

            #[inline]
            fn allocate_zeroed(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
                per_container::allocate(self, layout, true).ok_or(AllocError)
            }

            #[inline]
            unsafe fn deallocate(&self, block: NonNull<u8>, layout: Layout) {
                // SAFETY: the caller keeps to the same contract.
                unsafe { per_container::deallocate(self, block, layout) }
            }

            #[inline]
            unsafe fn grow(
                &self,
                block: NonNull<u8>,
                old: Layout,
                new: Layout,
            ) -> Result<NonNull<[u8]>, AllocError> {
                // SAFETY: the caller keeps to the same contract.
                unsafe { per_container::resize(self, block, old, new) }.ok_or(AllocError)
            }

            #[inline]
            unsafe fn grow_zeroed(
                &self,
                block: NonNull<u8>,
                old: Layout,
                new: Layout,
            ) -> Result<NonNull<[u8]>, AllocError> {
                // SAFETY: the caller keeps to the same contract.
                unsafe { per_container::grow_zeroed(self, block, old, new) }.ok_or(AllocError)
            }

            #[inline]
            unsafe fn shrink(
                &self,
                block: NonNull<u8>,
                old: Layout,
                new: Layout,
            ) -> Result<NonNull<[u8]>, AllocError> {
                // SAFETY: the caller keeps to the same contract.
                unsafe { per_container::resize(self, block, old, new) }.ok_or(AllocError)
            }
        }
    )+};
}
pub(crate) use implement;
