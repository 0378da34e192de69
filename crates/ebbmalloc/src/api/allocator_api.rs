//! Implements `Allocator` of the standard library for `EbbMalloc` and `Heap`, since Rust 1.100.
//!
//! The library implements the trait for `&Heap` and `Arc<Heap>`, as `Heap` has it.

use core::alloc::{AllocError, Allocator, Layout};
use core::ptr::NonNull;

use crate::api::allocator as per_container;
use crate::api::global_alloc::{EbbMalloc, Global};
use crate::api::heap::Heap;

per_container::implement!(EbbMalloc, Global, Heap);

/// Traits of nightly Rust that maps, and clones of `Arc` and `Rc`, need too.
#[cfg(feature = "nightly")]
mod unstable {
    use core::alloc::{AllocatorClone, StaticAllocator};

    use super::{EbbMalloc, Global, Heap};

    // SAFETY: all values are the one allocator of the process.
    unsafe impl AllocatorClone for EbbMalloc {}
    // SAFETY: as for `EbbMalloc`.
    unsafe impl AllocatorClone for Global {}
    // SAFETY: the allocator is never dropped: blocks stay until they are freed.
    unsafe impl StaticAllocator for EbbMalloc {}
    // SAFETY: as for `EbbMalloc`.
    unsafe impl StaticAllocator for Global {}
    // SAFETY: clones are the same heap, which keeps its blocks until the last clone is dropped;
    // and `Heap` is not `Copy`.
    unsafe impl AllocatorClone for Heap {}
}
