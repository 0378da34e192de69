//! Defines the functions on heaps. Any thread may use a heap, under its lock.
//!
//! The main heap is no heap of ebbmalloc's: its blocks are those of `mi_malloc`.

use core::ffi::{c_char, c_void};
use core::ptr;

use shim::Heap;

use crate::zeroing::grown;
use crate::{export, product, refuse};

type Block = *mut c_void;

/// Its address stands for the main heap.
static MAIN: u8 = 0;

fn main() -> *mut Heap {
    (&raw const MAIN).cast::<Heap>().cast_mut()
}

fn is_main(heap: *mut Heap) -> bool {
    heap.is_null() || heap == main()
}

/// Allocates a block of a heap.
pub fn alloc(heap: *mut Heap, size: usize, align: usize, zeroed: bool) -> Block {
    if is_main(heap) {
        return shim::alloc(align, size, zeroed);
    }
    // SAFETY: a call with an invalid heap ends the program.
    unsafe { shim::heap_alloc(heap, align, size, zeroed) }
}

fn alloc_at(heap: *mut Heap, size: usize, align: usize, offset: usize, zeroed: bool) -> Block {
    if !align.is_power_of_two() || !offset.is_multiple_of(align) {
        return refuse(libc::EINVAL);
    }
    alloc(heap, size, align, zeroed)
}

/// Resizes a block of any heap. If it moves, then to this heap.
unsafe fn realloc_at(
    heap: *mut Heap,
    block: Block,
    size: usize,
    align: usize,
    offset: usize,
) -> Block {
    if !align.is_power_of_two() || !offset.is_multiple_of(align) {
        return refuse(libc::EINVAL);
    }
    // SAFETY: the caller owns the block, and does not use its old address if it moves.
    unsafe {
        match is_main(heap) {
            true => shim::realloc(block, align, size),
            false => shim::heap_realloc(heap, block, align, size),
        }
    }
}

/// Copies at most `most` bytes of a string.
pub unsafe fn duplicate(heap: *mut Heap, text: *const c_char, most: usize) -> *mut c_char {
    if text.is_null() {
        return ptr::null_mut();
    }
    // SAFETY: the text ends with a zero byte, or has `most` bytes.
    unsafe {
        let length = libc::strnlen(text, most);
        let copy = alloc(heap, length + 1, 1, false).cast::<c_char>();
        if !copy.is_null() {
            copy.copy_from_nonoverlapping(text, length);
            copy.add(length).write(0);
        }
        copy
    }
}

// SAFETY of all calls below: the caller fulfils the contract of mimalloc's function.

export! {
    fn mi_heap_new = () -> *mut Heap {
        unsafe { shim::ebb_heap_new(0) }
    }

    fn mi_heap_main | mi_heap_get_backing = () -> *mut Heap {
        main()
    }

    /// Gives a heap up. Its blocks stay, each until it is freed. So does its record, unless it has
    /// no block now.
    fn mi_heap_delete = (heap: *mut Heap) -> () {
        if !is_main(heap) && unsafe { shim::ebb_heap_used(heap) } == 0 {
            unsafe { shim::ebb_heap_delete(heap) }
        }
    }

    /// Deletes a heap and its blocks. Does nothing for the main heap.
    fn mi_heap_destroy = (heap: *mut Heap) -> () {
        if !is_main(heap) {
            unsafe { shim::ebb_heap_delete(heap) }
        }
    }

    /// Whether a block belongs to the heap. False where the engine of a library that was loaded
    /// before serves: it does not tell.
    fn mi_heap_contains_block | mi_heap_check_owned = (
        heap: *mut Heap, block: *const c_void
    ) -> bool {
        let block = block.cast_mut();
        if !shim::knows(block) {
            return false;
        }
        match unsafe { shim::heap_of(block) } {
            Some(owner) if owner.is_null() => is_main(heap),
            owner => owner == Some(heap),
        }
    }

    /// Whether an address lies in ebbmalloc's memory.
    fn mi_check_owned | mi_is_in_heap_region = (address: *const c_void) -> bool {
        shim::knows(address.cast_mut())
    }

    /// As `mi_collect`: of all heaps.
    fn mi_heap_collect = (_heap: *mut Heap, force: bool) -> () {
        unsafe { crate::mi_collect(force) }
    }

    fn mi_heap_malloc | mi_heap_malloc_small = (heap: *mut Heap, size: usize) -> Block {
        alloc(heap, size, 1, false)
    }

    fn mi_heap_zalloc | mi_heap_zalloc_small = (heap: *mut Heap, size: usize) -> Block {
        alloc(heap, size, 1, true)
    }

    fn mi_heap_calloc = (heap: *mut Heap, count: usize, size: usize) -> Block {
        product(count, size, |bytes| alloc(heap, bytes, 1, true))
    }

    fn mi_heap_mallocn = (heap: *mut Heap, count: usize, size: usize) -> Block {
        product(count, size, |bytes| alloc(heap, bytes, 1, false))
    }

    fn mi_heap_realloc = (heap: *mut Heap, block: Block, size: usize) -> Block {
        unsafe { realloc_at(heap, block, size, 1, 0) }
    }

    fn mi_heap_reallocn = (heap: *mut Heap, block: Block, count: usize, size: usize) -> Block {
        product(count, size, |bytes| unsafe { realloc_at(heap, block, bytes, 1, 0) })
    }

    fn mi_heap_reallocf = (heap: *mut Heap, block: Block, size: usize) -> Block {
        unsafe {
            let new = realloc_at(heap, block, size, 1, 0);
            if new.is_null() {
                shim::ebb_free(block);
            }
            new
        }
    }

    fn mi_heap_rezalloc = (heap: *mut Heap, block: Block, size: usize) -> Block {
        unsafe { grown(block, || realloc_at(heap, block, size, 1, 0)) }
    }

    fn mi_heap_recalloc = (heap: *mut Heap, block: Block, count: usize, size: usize) -> Block {
        product(count, size, |bytes| unsafe {
            grown(block, || realloc_at(heap, block, bytes, 1, 0))
        })
    }

    fn mi_heap_malloc_aligned = (heap: *mut Heap, size: usize, align: usize) -> Block {
        alloc_at(heap, size, align, 0, false)
    }

    fn mi_heap_malloc_aligned_at = (
        heap: *mut Heap, size: usize, align: usize, offset: usize
    ) -> Block {
        alloc_at(heap, size, align, offset, false)
    }

    fn mi_heap_zalloc_aligned = (heap: *mut Heap, size: usize, align: usize) -> Block {
        alloc_at(heap, size, align, 0, true)
    }

    fn mi_heap_zalloc_aligned_at = (
        heap: *mut Heap, size: usize, align: usize, offset: usize
    ) -> Block {
        alloc_at(heap, size, align, offset, true)
    }

    fn mi_heap_calloc_aligned = (
        heap: *mut Heap, count: usize, size: usize, align: usize
    ) -> Block {
        product(count, size, |bytes| alloc_at(heap, bytes, align, 0, true))
    }

    fn mi_heap_calloc_aligned_at = (
        heap: *mut Heap, count: usize, size: usize, align: usize, offset: usize
    ) -> Block {
        product(count, size, |bytes| alloc_at(heap, bytes, align, offset, true))
    }

    fn mi_heap_realloc_aligned = (
        heap: *mut Heap, block: Block, size: usize, align: usize
    ) -> Block {
        unsafe { realloc_at(heap, block, size, align, 0) }
    }

    fn mi_heap_realloc_aligned_at = (
        heap: *mut Heap, block: Block, size: usize, align: usize, offset: usize
    ) -> Block {
        unsafe { realloc_at(heap, block, size, align, offset) }
    }

    fn mi_heap_rezalloc_aligned = (
        heap: *mut Heap, block: Block, size: usize, align: usize
    ) -> Block {
        unsafe { grown(block, || realloc_at(heap, block, size, align, 0)) }
    }

    fn mi_heap_rezalloc_aligned_at = (
        heap: *mut Heap, block: Block, size: usize, align: usize, offset: usize
    ) -> Block {
        unsafe { grown(block, || realloc_at(heap, block, size, align, offset)) }
    }

    fn mi_heap_recalloc_aligned = (
        heap: *mut Heap, block: Block, count: usize, size: usize, align: usize
    ) -> Block {
        product(count, size, |bytes| unsafe {
            grown(block, || realloc_at(heap, block, bytes, align, 0))
        })
    }

    fn mi_heap_recalloc_aligned_at = (
        heap: *mut Heap, block: Block, count: usize, size: usize, align: usize, offset: usize
    ) -> Block {
        product(count, size, |bytes| unsafe {
            grown(block, || realloc_at(heap, block, bytes, align, offset))
        })
    }

    fn mi_heap_strdup = (heap: *mut Heap, text: *const c_char) -> *mut c_char {
        unsafe { duplicate(heap, text, usize::MAX) }
    }

    fn mi_heap_strndup = (heap: *mut Heap, text: *const c_char, most: usize) -> *mut c_char {
        unsafe { duplicate(heap, text, most) }
    }

    /// `realpath`, copied to the heap.
    fn mi_heap_realpath = (
        heap: *mut Heap, path: *const c_char, resolved: *mut c_char
    ) -> *mut c_char {
        unsafe {
            let found = libc::realpath(path, resolved);
            if found.is_null() || !resolved.is_null() {
                return found;
            }
            let copy = duplicate(heap, found, usize::MAX);
            shim::ebb_free(found.cast());
            copy
        }
    }
}
