//! The trait `Allocator` of the standard library, which nightly Rust has. The library gives `&Heap` and
//! `Arc<Heap>` the trait, as `Heap` has it.

use core::alloc::{AllocError, Allocator, Layout};
use core::ptr::NonNull;

use crate::global::EbbMalloc;
use crate::heap::Heap;
use crate::per_container::{self, Source};

per_container::implement!(EbbMalloc, Heap);
