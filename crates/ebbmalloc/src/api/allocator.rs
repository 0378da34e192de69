//! Allocators of single containers: what the two `Allocator` traits have in common, that of the crate
//! allocator-api2 (`allocator_api2.rs`) and that of the standard library (`allocator_api.rs`).
//!
//! Both allow blocks of no bytes, which here take none: their address is the alignment.

use core::alloc::{GlobalAlloc, Layout};
use core::ptr::{self, NonNull};

use crate::api::global_alloc::{ENGINE, EbbMalloc};
use crate::api::heap::Heap;

/// Where blocks of one byte and more come from. The methods are those of `Allocator`, null for an error.
///
/// # Safety
/// As for `Allocator`.
pub(crate) unsafe trait Source {
    fn get(&self, layout: Layout) -> *mut u8;
    fn get_zeroed(&self, layout: Layout) -> *mut u8;
    /// # Safety
    /// The block came from here, by a layout that it fits.
    unsafe fn put(&self, block: NonNull<u8>, layout: Layout);
    /// Resizes a block, to a layout of the same alignment.
    ///
    /// # Safety
    /// As for `put`.
    unsafe fn resize(&self, block: NonNull<u8>, old: Layout, new: Layout) -> *mut u8;
}

// SAFETY: the allocator of the process; a layout of one byte and more is all that it asks for.
unsafe impl Source for EbbMalloc {
    #[inline]
    fn get(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the layout is not empty.
        unsafe { self.alloc(layout) }
    }

    #[inline]
    fn get_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        unsafe { self.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn put(&self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller's.
        unsafe { self.dealloc(block.as_ptr(), layout) }
    }

    #[inline]
    unsafe fn resize(&self, block: NonNull<u8>, old: Layout, new: Layout) -> *mut u8 {
        // SAFETY: the caller's.
        unsafe { self.realloc(block.as_ptr(), old, new.size()) }
    }
}

// SAFETY: blocks stay until the heap is dropped and all its clones are, wherever they lie.
unsafe impl Source for Heap {
    fn get(&self, layout: Layout) -> *mut u8 {
        to_null(self.alloc(layout))
    }

    fn get_zeroed(&self, layout: Layout) -> *mut u8 {
        to_null(self.alloc_zeroed(layout))
    }

    unsafe fn put(&self, block: NonNull<u8>, _: Layout) {
        // SAFETY: the caller's.
        unsafe { self.dealloc(block) }
    }

    unsafe fn resize(&self, block: NonNull<u8>, _: Layout, new: Layout) -> *mut u8 {
        // SAFETY: the caller's.
        to_null(unsafe { self.realloc(block, new) })
    }
}

fn to_null(block: Option<NonNull<u8>>) -> *mut u8 {
    block.map_or(ptr::null_mut(), NonNull::as_ptr)
}

/// A block as long as the layout says; none for null.
#[inline]
fn slice(block: *mut u8, layout: Layout) -> Option<NonNull<[u8]>> {
    Some(NonNull::slice_from_raw_parts(NonNull::new(block)?, layout.size()))
}

/// An address for no bytes.
#[inline]
fn dangling(layout: Layout) -> *mut u8 {
    ptr::without_provenance_mut(layout.align())
}

#[inline]
pub(crate) fn allocate(
    layout: Layout,
    get: impl FnOnce(Layout) -> *mut u8,
) -> Option<NonNull<[u8]>> {
    slice(if layout.size() == 0 { dangling(layout) } else { get(layout) }, layout)
}

/// # Safety
/// As for `Allocator::deallocate`.
#[inline]
pub(crate) unsafe fn deallocate(source: &impl Source, block: NonNull<u8>, layout: Layout) {
    if layout.size() != 0 {
        // SAFETY: the caller's.
        unsafe { source.put(block, layout) }
    }
}

/// Growing and shrinking alike. What a block has more than `old` is not zeroed.
///
/// # Safety
/// As for `Allocator::grow` and `Allocator::shrink`.
#[inline]
pub(crate) unsafe fn resize(
    source: &impl Source,
    block: NonNull<u8>,
    old: Layout,
    new: Layout,
) -> Option<NonNull<[u8]>> {
    // SAFETY: the caller's; both blocks have as many bytes as are copied, and are distinct.
    unsafe {
        if old.size() != 0 && new.size() != 0 && old.align() == new.align() {
            return slice(source.resize(block, old, new), new);
        }
        let moved = allocate(new, |layout| source.get(layout))?;
        let kept = old.size().min(new.size());
        ptr::copy_nonoverlapping(block.as_ptr(), moved.as_ptr().cast::<u8>(), kept);
        deallocate(source, block, old);
        Some(moved)
    }
}

/// # Safety
/// As for `Allocator::grow_zeroed`.
#[inline]
pub(crate) unsafe fn grow_zeroed(
    source: &impl Source,
    block: NonNull<u8>,
    old: Layout,
    new: Layout,
) -> Option<NonNull<[u8]>> {
    // SAFETY: the caller's; the new block is at least as large as the old one.
    unsafe {
        let grown = resize(source, block, old, new)?;
        let more = new.size() - old.size();
        ENGINE.clear(grown.as_ptr().cast::<u8>().add(old.size()), more);
        Some(grown)
    }
}

/// Implements an `Allocator` trait for a [`Source`].
macro_rules! implement {
    ($($type:ty),+) => {$(
        // SAFETY: blocks of a source stay until it goes, and `per_container` keeps to the contract.
        unsafe impl Allocator for $type {
            #[inline]
            fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
                per_container::allocate(layout, |layout| self.get(layout)).ok_or(AllocError)
            }

            #[inline]
            fn allocate_zeroed(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
                per_container::allocate(layout, |layout| self.get_zeroed(layout)).ok_or(AllocError)
            }

            #[inline]
            unsafe fn deallocate(&self, block: NonNull<u8>, layout: Layout) {
                // SAFETY: the caller's.
                unsafe { per_container::deallocate(self, block, layout) }
            }

            #[inline]
            unsafe fn grow(
                &self,
                block: NonNull<u8>,
                old: Layout,
                new: Layout,
            ) -> Result<NonNull<[u8]>, AllocError> {
                // SAFETY: the caller's.
                unsafe { per_container::resize(self, block, old, new) }.ok_or(AllocError)
            }

            #[inline]
            unsafe fn grow_zeroed(
                &self,
                block: NonNull<u8>,
                old: Layout,
                new: Layout,
            ) -> Result<NonNull<[u8]>, AllocError> {
                // SAFETY: the caller's.
                unsafe { per_container::grow_zeroed(self, block, old, new) }.ok_or(AllocError)
            }

            #[inline]
            unsafe fn shrink(
                &self,
                block: NonNull<u8>,
                old: Layout,
                new: Layout,
            ) -> Result<NonNull<[u8]>, AllocError> {
                // SAFETY: the caller's.
                unsafe { per_container::resize(self, block, old, new) }.ok_or(AllocError)
            }
        }
    )+};
}
pub(crate) use implement;
