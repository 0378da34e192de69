//! Implements the operations of the `Allocator` traits, which let a container choose its
//! allocator.
//!
//! There are two such traits: of the crate allocator-api2 (`allocator_api2.rs`), and of the
//! standard library (`allocator_api.rs`). Both allow blocks of no bytes. These take no memory
//! here: their address is the alignment.

use core::alloc::{GlobalAlloc, Layout};
use core::ptr::{self, NonNull};

use crate::api::global_alloc::{ENGINE, EbbMalloc};
use crate::api::heap::Heap;

/// Allocates and frees blocks of one byte or more, like `Allocator`. Returns null for an error.
///
/// # Safety
/// As for `Allocator`: a block stays at its address until it is freed, or until the source and all
/// its clones are dropped.
pub(crate) unsafe trait Source {
    fn get(&self, layout: Layout) -> *mut u8;
    fn get_zeroed(&self, layout: Layout) -> *mut u8;
    /// Frees a block.
    ///
    /// # Safety
    /// The block came from this source, was not freed yet, and fits the layout.
    unsafe fn put(&self, block: NonNull<u8>, layout: Layout);
    /// Resizes a block. Both layouts have the same alignment.
    ///
    /// # Safety
    /// As for `put`, with the old layout; the new one has at least one byte.
    unsafe fn resize(&self, block: NonNull<u8>, old: Layout, new: Layout) -> *mut u8;
}

// SAFETY: blocks of the process's allocator stay until they are freed.
unsafe impl Source for EbbMalloc {
    #[inline]
    fn get(&self, layout: Layout) -> *mut u8 {
        // SAFETY: callers of `Source` pass layouts of one byte or more.
        unsafe { self.alloc(layout) }
    }

    #[inline]
    fn get_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: callers of `Source` pass layouts of one byte or more.
        unsafe { self.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn put(&self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller guarantees that the block is this allocator's and fits the layout.
        unsafe { self.dealloc(block.as_ptr(), layout) }
    }

    #[inline]
    unsafe fn resize(&self, block: NonNull<u8>, old: Layout, new: Layout) -> *mut u8 {
        // SAFETY: the caller guarantees that the block is this allocator's, fits the old layout,
        // and that the new one is not empty.
        unsafe { self.realloc(block.as_ptr(), old, new.size()) }
    }
}

// SAFETY: blocks stay until the heap and all its clones are dropped, also if a value is moved.
unsafe impl Source for Heap {
    fn get(&self, layout: Layout) -> *mut u8 {
        to_null(self.alloc(layout))
    }

    fn get_zeroed(&self, layout: Layout) -> *mut u8 {
        to_null(self.alloc_zeroed(layout))
    }

    unsafe fn put(&self, block: NonNull<u8>, _: Layout) {
        // SAFETY: the caller guarantees that the block is this heap's and in use.
        unsafe { self.dealloc(block) }
    }

    unsafe fn resize(&self, block: NonNull<u8>, _: Layout, new: Layout) -> *mut u8 {
        // SAFETY: the caller guarantees that the block is this heap's and in use.
        to_null(unsafe { self.realloc(block, new) })
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

/// The address of a block of no bytes.
#[inline]
fn dangling(layout: Layout) -> *mut u8 {
    ptr::without_provenance_mut(layout.align())
}

/// Allocates a block with `get`, unless the layout has no bytes.
#[inline]
pub(crate) fn allocate(
    layout: Layout,
    get: impl FnOnce(Layout) -> *mut u8,
) -> Option<NonNull<[u8]>> {
    slice(if layout.size() == 0 { dangling(layout) } else { get(layout) }, layout)
}

/// Frees a block, unless the layout has no bytes.
///
/// # Safety
/// As for `Allocator::deallocate`.
#[inline]
pub(crate) unsafe fn deallocate(source: &impl Source, block: NonNull<u8>, layout: Layout) {
    if layout.size() != 0 {
        // SAFETY: the caller guarantees that the block is the source's and fits the layout.
        unsafe { source.put(block, layout) }
    }
}

/// Grows or shrinks a block. Bytes beyond `old` are not zeroed.
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
    // SAFETY: the caller guarantees that the block is the source's and fits `old`. Both blocks
    // have the bytes that are copied, and are distinct.
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

/// Grows a block, and zeroes its bytes beyond `old`.
///
/// # Safety
/// As for `Allocator::grow_zeroed`.
#[inline]
pub(crate) unsafe fn grow_zeroed(
    source: &impl Source,
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

/// Implements an `Allocator` trait for a [`Source`].
macro_rules! implement {
    ($($type:ty),+) => {$(
        // SAFETY: blocks of a `Source` stay as `Allocator` demands, and the functions of this
        // module keep to the trait's contract.
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
