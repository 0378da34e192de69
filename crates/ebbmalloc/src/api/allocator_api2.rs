//! The trait `Allocator` of the crate allocator-api2, for containers on stable Rust: those of that
//! crate, hashbrown, bump-scope and others. The crate gives `&Heap` the trait, as `Heap` has it.

use core::alloc::Layout;
use core::ptr::NonNull;

use allocator_api2::alloc::{AllocError, Allocator};

use crate::api::allocator::{self as per_container, Source};
use crate::api::global_alloc::EbbMalloc;
use crate::api::heap::Heap;

per_container::implement!(EbbMalloc, Heap);
