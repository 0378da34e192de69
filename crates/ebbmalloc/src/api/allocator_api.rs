//! The trait `Allocator` of the standard library, stable since Rust 1.100. The library gives `&Heap` and
//! `Arc<Heap>` the trait, as `Heap` has it.

use core::alloc::{AllocError, Allocator, Layout};
use core::ptr::NonNull;

use crate::api::allocator::{self as per_container, Source};
use crate::api::global_alloc::EbbMalloc;
use crate::api::heap::Heap;

per_container::implement!(EbbMalloc, Heap);

/// What maps and the clones of `Arc` and `Rc` ask for besides, which only nightly Rust has.
#[cfg(feature = "nightly")]
mod unstable {
    use core::alloc::{AllocatorClone, StaticAllocator};

    use super::{EbbMalloc, Heap};

    // SAFETY: there is one allocator in the process, whose blocks stay until they are freed.
    unsafe impl AllocatorClone for EbbMalloc {}
    // SAFETY: as above.
    unsafe impl StaticAllocator for EbbMalloc {}
    // SAFETY: a clone is the same heap, which stays, with its blocks, until the last of them is dropped; and it is not `Copy`.
    unsafe impl AllocatorClone for Heap {}
}
