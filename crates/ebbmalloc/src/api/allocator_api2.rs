//! Implements `Allocator` of the crate allocator-api2 for `EbbMalloc` and `Heap`, on stable Rust.
//!
//! Containers of that crate, of hashbrown, bump-scope and others take it. The crate implements the
//! trait for `&Heap`, as `Heap` has it.

use core::alloc::Layout;
use core::ptr::NonNull;

use allocator_api2::alloc::{AllocError, Allocator};

use crate::api::allocator as per_container;
use crate::api::global_alloc::{EbbMalloc, Global};
use crate::api::heap::Heap;

per_container::implement!(EbbMalloc, Global, Heap);
