//! Forwards to the system's allocator, on targets where the engine does not run.
//!
//! It has what `api` uses of `this_process.rs`: the same functions, with the same contracts.

// Lowest first: each uses only modules above it in this list.
mod heap;
pub(crate) use heap::HeapId;

#[cfg(target_os = "none")]
compile_error!(
    "this target has no system's allocator for ebbmalloc to forward to; make it a dependency of \
     the others only, [target.'cfg(not(target_os = \"none\"))'.dependencies]"
);

extern crate std;

use core::alloc::{GlobalAlloc, Layout};
use core::ptr::{self, NonNull};
use std::alloc::System;

use crate::figures::choice::Choice;
use crate::figures::stats::Stats;
use crate::options::{OnPressure, OnRefusal, SetError, Settings};

/// Whether the engine serves [`ENGINE`].
pub(crate) const IS_ACTIVE: bool = false;

/// What stands in the engine's place.
pub(crate) static ENGINE: Forward = Forward;

pub(crate) struct Forward;

// SAFETY: that of the system's allocator, to which all calls go.
unsafe impl GlobalAlloc for Forward {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps to the same contract. For the functions below too.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as for `alloc`.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as for `alloc`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as for `alloc`.
        unsafe { System.realloc(block, layout, size) }
    }
}

/// Allocates a block. The settings have no effect.
///
/// # Safety
/// As for `GlobalAlloc::alloc`.
pub(crate) unsafe fn alloc_with(_: &Settings, layout: Layout) -> *mut u8 {
    // SAFETY: the caller keeps to the same contract.
    unsafe { System.alloc(layout) }
}

/// Allocates a block of zeros. The settings have no effect.
///
/// # Safety
/// As for `GlobalAlloc::alloc_zeroed`.
pub(crate) unsafe fn alloc_zeroed_with(_: &Settings, layout: Layout) -> *mut u8 {
    // SAFETY: the caller keeps to the same contract.
    unsafe { System.alloc_zeroed(layout) }
}

impl Forward {
    /// All zero, and why.
    pub fn stats(&self) -> Stats {
        let why = "the system's allocator serves: the engine runs on 64-bit Linux and on Windows";
        Stats { choice: Choice { mode: "system", why, ..Choice::UNSET }, ..Stats::EMPTY }
    }

    pub fn set(&self, _: &str, _: &str) -> Result<(), SetError> {
        Err(SetError::NotHere)
    }

    pub fn on_refusal(&self, _: Option<OnRefusal>) {}

    pub fn on_pressure(&self, _: u8, _: Option<OnPressure>) {}

    pub fn trim(&self) -> bool {
        false
    }

    pub fn idle(&self) -> bool {
        false
    }
}

/// Heaps: the last argument of each names the operation, for messages that only the engine has.
impl Forward {
    pub fn new_heap(&self, limit: usize) -> Option<HeapId> {
        HeapId::new(limit)
    }

    pub fn share_heap(&self, id: HeapId, _: &str) {
        id.lock().owners += 1;
    }

    /// Removes an owner from a heap. True if it was the last: the caller then deletes the heap.
    pub fn unshare_heap(&self, id: HeapId, _: &str) -> bool {
        let mut contents = id.lock();
        contents.owners -= 1;
        contents.owners == 0
    }

    /// Deletes a heap and all blocks in it.
    ///
    /// # Safety
    /// The program does not use the heap's blocks any more, and the heap has no owner.
    pub unsafe fn delete_heap(&self, id: HeapId, _: &str) {
        // SAFETY: the caller guarantees the same.
        unsafe { id.delete() }
    }

    pub fn heap_used(&self, id: HeapId, _: &str) -> usize {
        id.lock().used
    }

    pub fn heap_alloc(&self, id: HeapId, size: usize, align: usize, _: &str) -> *mut u8 {
        let block = layout(size, align).and_then(|layout| id.lock().alloc(layout, false));
        to_null(block)
    }

    pub fn heap_alloc_zeroed(&self, id: HeapId, size: usize, align: usize, _: &str) -> *mut u8 {
        let block = layout(size, align).and_then(|layout| id.lock().alloc(layout, true));
        to_null(block)
    }

    /// Resizes a block of this heap.
    ///
    /// # Safety
    /// The block is the heap's and in use. If the result is not null, the program does not use the
    /// old address any more.
    pub unsafe fn heap_realloc(
        &self,
        id: HeapId,
        block: *mut u8,
        size: usize,
        align: usize,
        _: &str,
    ) -> *mut u8 {
        // SAFETY: the caller guarantees the same.
        let resized = |layout| unsafe { id.lock().realloc(block, layout) };
        to_null(layout(size, align).and_then(resized))
    }

    /// Frees a block of this heap.
    ///
    /// # Safety
    /// The block is the heap's, and the program does not use it any more.
    pub unsafe fn heap_free(&self, id: HeapId, block: *mut u8, _: &str) {
        // SAFETY: the caller guarantees the same.
        unsafe { id.lock().free(block) }
    }

    /// Copies bytes of one block to another.
    ///
    /// # Safety
    /// Both are the caller's alone, have as many bytes, and do not overlap.
    #[cfg(any(feature = "allocator-api2", feature = "allocator-api"))]
    pub unsafe fn copy(&self, from: *const u8, to: *mut u8, bytes: usize) {
        // SAFETY: the caller guarantees the same.
        unsafe { from.copy_to_nonoverlapping(to, bytes) }
    }

    /// Clears memory.
    ///
    /// # Safety
    /// The memory is the caller's alone.
    #[cfg(any(feature = "allocator-api2", feature = "allocator-api"))]
    pub unsafe fn clear(&self, start: *mut u8, bytes: usize) {
        // SAFETY: the caller guarantees that it may write there.
        unsafe { start.write_bytes(0, bytes) }
    }
}

/// There is no heap profile.
#[cfg(feature = "profile")]
mod no_profile {
    use core::ffi::CStr;

    use super::Forward;
    use crate::figures::profile::{ProfileHeader, ProfileSamples, ProfileStack};

    impl Forward {
        pub fn start_profile(&self, _: u64) -> bool {
            false
        }

        pub fn stop_profile(&self) {}

        pub fn profile_header(&self) -> Option<ProfileHeader> {
            None
        }

        pub fn profile_age_ms(&self) -> u64 {
            0
        }

        pub fn write_profile(&self, _: &CStr) -> bool {
            false
        }

        pub fn for_each_profile_stack(&self, _: &mut dyn FnMut(&ProfileStack)) -> bool {
            false
        }

        pub fn for_each_profile_samples(&self, _: &mut dyn FnMut(&ProfileSamples)) -> bool {
            false
        }
    }
}

fn layout(size: usize, align: usize) -> Option<Layout> {
    Layout::from_size_align(size, align).ok()
}

fn to_null(block: Option<NonNull<u8>>) -> *mut u8 {
    block.map_or(ptr::null_mut(), NonNull::as_ptr)
}
