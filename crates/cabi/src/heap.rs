//! Defines the heaps of `ebbmalloc.h` for C programs.
//!
//! The pointer that C holds is a heap's id, not an address. So a pointer of no heap, or of a
//! deleted one, is noticed, and stops the program.

use core::ffi::c_void;
use core::ptr;

use engine::internals::{ENGINE, HeapId, MIN_ALIGN};

use crate::malloc::refuse;

/// `ebb_heap` in ebbmalloc.h: only pointers to it exist.
#[repr(C)]
pub struct Heap([u8; 0]);

fn id(heap: *mut Heap) -> HeapId {
    HeapId::from_bits(heap.addr() as u64)
}

/// Makes a heap whose blocks may use `limit` bytes together; 0 for no limit. Null without memory.
#[unsafe(no_mangle)]
pub extern "C" fn ebb_heap_new(limit: usize) -> *mut Heap {
    let limit = if limit == 0 { usize::MAX } else { limit };
    match ENGINE.new_heap(limit) {
        Some(id) => ptr::without_provenance_mut(id.to_bits() as usize),
        None => ptr::null_mut(),
    }
}

/// Deletes a heap and all of its blocks. Does nothing for null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebb_heap_delete(heap: *mut Heap) {
    if !heap.is_null() {
        // SAFETY: the caller does not use the heap's blocks again.
        unsafe { ENGINE.delete_heap(id(heap), "ebb_heap_delete") }
    }
}

/// Allocates a block of `size` bytes from the heap. Size 0 returns a unique block, too.
#[unsafe(no_mangle)]
pub extern "C" fn ebb_heap_malloc(heap: *mut Heap, size: usize) -> *mut c_void {
    ENGINE.heap_alloc(id(heap), size, MIN_ALIGN, "ebb_heap_malloc").cast()
}

/// Allocates `count` times `size` zero bytes from the heap.
#[unsafe(no_mangle)]
pub extern "C" fn ebb_heap_calloc(heap: *mut Heap, count: usize, size: usize) -> *mut c_void {
    // A product that saturates fits in no heap.
    let bytes = count.saturating_mul(size);
    ENGINE.heap_alloc_zeroed(id(heap), bytes, MIN_ALIGN, "ebb_heap_calloc").cast()
}

/// Allocates an aligned block from the heap. Sets EINVAL if the alignment is no power of two.
#[unsafe(no_mangle)]
pub extern "C" fn ebb_heap_aligned_alloc(
    heap: *mut Heap,
    align: usize,
    size: usize,
) -> *mut c_void {
    const NAME: &str = "ebb_heap_aligned_alloc";
    if !align.is_power_of_two() {
        ENGINE.check_heap(id(heap), NAME);
        return refuse(libc::EINVAL);
    }
    ENGINE.heap_alloc(id(heap), size, align, NAME).cast()
}

/// Resizes a block of this heap. A null block allocates; size 0 frees and returns null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebb_heap_realloc(
    heap: *mut Heap,
    block: *mut c_void,
    size: usize,
) -> *mut c_void {
    const NAME: &str = "ebb_heap_realloc";
    if block.is_null() {
        return ENGINE.heap_alloc(id(heap), size, MIN_ALIGN, NAME).cast();
    }
    // SAFETY: the caller owns the block, and does not use its old address again.
    unsafe {
        if size == 0 {
            ENGINE.heap_free(id(heap), block.cast(), NAME);
            return ptr::null_mut();
        }
        ENGINE.heap_realloc(id(heap), block.cast(), size, MIN_ALIGN, NAME).cast()
    }
}

/// The bytes that the heap's blocks use, which its limit bounds.
#[unsafe(no_mangle)]
pub extern "C" fn ebb_heap_used(heap: *mut Heap) -> usize {
    ENGINE.heap_used(id(heap), "ebb_heap_used")
}
