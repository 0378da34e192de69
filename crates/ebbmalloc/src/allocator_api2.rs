//! The trait `Allocator` of the crate allocator-api2, for containers on stable Rust: those of that
//! crate, hashbrown, bump-scope and others. The crate gives `&Heap` the trait, as `Heap` has it.

use core::alloc::Layout;
use core::ptr::NonNull;

use allocator_api2::alloc::{AllocError, Allocator};

use crate::global::EbbMalloc;
use crate::heap::Heap;
use crate::per_container::{self, Source};

per_container::implement!(EbbMalloc, Heap);
