//! Keeps the arenas that a program creates, each a heap of ebbmalloc's.
//!
//! Arena 0 is no heap: it has the blocks of `malloc`, and of threads and caches without number.

use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use shim::Heap;

/// Numbers of arenas lie below it. The flags have room for 4,094.
const LIMIT: usize = 4094;

/// The heap of each arena; null for arena 0, and where there is none.
static HEAPS: [AtomicPtr<Heap>; LIMIT] = [const { AtomicPtr::new(ptr::null_mut()) }; LIMIT];

/// The heap of an arena that was created; null for all others.
pub fn heap(arena: usize) -> *mut Heap {
    HEAPS.get(arena).map_or(ptr::null_mut(), |heap| heap.load(Ordering::Acquire))
}

/// Number of arenas, as if those up to the last one existed.
pub fn count() -> usize {
    (1..LIMIT).rev().find(|&arena| !heap(arena).is_null()).unwrap_or(0) + 1
}

/// Creates an arena, with the smallest free number. `None` if memory is short or no number is left.
pub fn create() -> Option<usize> {
    // SAFETY: it has no precondition.
    let new = unsafe { shim::ebb_heap_new(0) };
    if new.is_null() {
        return None;
    }
    const ORDER: Ordering = Ordering::AcqRel;
    let take = |arena: &usize| {
        let none = ptr::null_mut();
        HEAPS[*arena].compare_exchange(none, new, ORDER, Ordering::Relaxed).is_ok()
    };
    let taken = (1..LIMIT).find(take);
    if taken.is_none() {
        // SAFETY: the heap is new, and has no block.
        unsafe { shim::ebb_heap_delete(new) }
    }
    taken
}

/// Deletes an arena and its blocks. With `again` there is an empty one of the same number then.
/// EFAULT if the program has not created it.
pub fn delete(arena: usize, again: bool) -> c_int {
    if heap(arena).is_null() {
        return libc::EFAULT;
    }
    // SAFETY: it has no precondition.
    let new = if again { unsafe { shim::ebb_heap_new(0) } } else { ptr::null_mut() };
    if again && new.is_null() {
        return libc::EAGAIN;
    }
    let old = HEAPS[arena].swap(new, Ordering::AcqRel);
    // SAFETY: this call took the heap out of the table. The program gives up all of its blocks.
    unsafe { shim::ebb_heap_delete(old) }
    0
}

/// Allocates a block of an arena; of arena 0 if there is none of this number.
pub fn alloc(arena: usize, align: usize, size: usize, zeroed: bool) -> *mut c_void {
    // SAFETY: the heap is one until the program deletes the arena.
    unsafe { shim::heap_alloc(heap(arena), align, size, zeroed) }
}

/// Resizes a block of any arena. If it moves, then to this one. (`realloc` keeps it in its own.)
pub unsafe fn realloc(arena: usize, block: *mut c_void, align: usize, size: usize) -> *mut c_void {
    let heap = heap(arena);
    // SAFETY: the caller owns the block; and as for `alloc`.
    unsafe {
        match heap.is_null() && shim::heap_of(block).is_none_or(|owner| owner.is_null()) {
            true => shim::realloc(block, align, size),
            false => shim::heap_realloc(heap, block, align, size),
        }
    }
}
