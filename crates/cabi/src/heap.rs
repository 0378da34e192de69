//! Heaps for C programs: ebbmalloc.h has the contract. What C holds as a pointer is a heap's name, not
//! the address of anything; so one that is no heap's, or no longer, is seen and stops the program.

use core::ffi::c_void;
use core::ptr;

use engine::internals::{ENGINE, HeapId, MIN_ALIGN};

use crate::malloc::refuse;

/// `ebb_heap` in ebbmalloc.h: never made, only named.
#[repr(C)]
pub struct Heap([u8; 0]);

fn id(heap: *mut Heap) -> HeapId {
    HeapId::from_bits(heap.addr() as u64)
}

/// A heap whose blocks may use `limit` bytes together, any number for 0; null if memory is short.
#[unsafe(no_mangle)]
pub extern "C" fn ebb_heap_new(limit: usize) -> *mut Heap {
    let limit = if limit == 0 { usize::MAX } else { limit };
    match ENGINE.new_heap(limit) {
        Some(id) => ptr::without_provenance_mut(id.to_bits() as usize),
        None => ptr::null_mut(),
    }
}

/// Deletes a heap and all of its blocks; null is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebb_heap_delete(heap: *mut Heap) {
    if !heap.is_null() {
        // SAFETY: the caller gives all its blocks up.
        unsafe { ENGINE.delete_heap(id(heap), "ebb_heap_delete") }
    }
}

/// A block of `size` bytes; a unique one for 0.
#[unsafe(no_mangle)]
pub extern "C" fn ebb_heap_malloc(heap: *mut Heap, size: usize) -> *mut c_void {
    ENGINE.heap_alloc(id(heap), size, MIN_ALIGN, "ebb_heap_malloc").cast()
}

/// A block of `count` times `size` zero bytes.
#[unsafe(no_mangle)]
pub extern "C" fn ebb_heap_calloc(heap: *mut Heap, count: usize, size: usize) -> *mut c_void {
    // What cannot be counted is beyond any heap.
    let bytes = count.saturating_mul(size);
    ENGINE.heap_alloc_zeroed(id(heap), bytes, MIN_ALIGN, "ebb_heap_calloc").cast()
}

/// An aligned block; EINVAL where the alignment is no power of two.
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

/// Resizes a block of this heap; null allocates, and size 0 frees and returns null.
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
    // SAFETY: the caller's: the block is theirs.
    unsafe {
        if size == 0 {
            ENGINE.heap_free(id(heap), block.cast(), NAME);
            return ptr::null_mut();
        }
        ENGINE.heap_realloc(id(heap), block.cast(), size, MIN_ALIGN, NAME).cast()
    }
}

/// Bytes that the heap's blocks use.
#[unsafe(no_mangle)]
pub extern "C" fn ebb_heap_used(heap: *mut Heap) -> usize {
    ENGINE.heap_used(id(heap), "ebb_heap_used")
}
