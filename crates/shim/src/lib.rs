//! Serves both shims: ebbmalloc's functions for C, and those that only the engine beside one has.
//!
//! A shim gives programs the functions of another allocator. It has no state of an allocator, and
//! knows ebbmalloc only by the functions of `ebbmalloc.h`. `cargo xtask install` joins it with all
//! of ebbmalloc to one object and one shared library.
//!
//! If libebbmalloc.so is loaded before that shared library, the loader binds all of these functions
//! to it, and the engine beside the shim serves nothing ([`is_beside`]). So a process has one
//! engine, whatever is loaded.

#![no_std]
// The callers are C programs, and the contracts are those of the other allocators.
#![allow(clippy::missing_safety_doc)]

pub mod figures;

use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::{AtomicU8, Ordering};

/// `ebb_heap` in ebbmalloc.h: only pointers to it exist.
#[repr(C)]
pub struct Heap([u8; 0]);

// ebbmalloc.h has their contracts.
unsafe extern "C" {
    pub fn ebb_malloc(size: usize) -> *mut c_void;
    pub fn ebb_calloc(count: usize, size: usize) -> *mut c_void;
    pub fn ebb_realloc(block: *mut c_void, size: usize) -> *mut c_void;
    pub fn ebb_reallocarray(block: *mut c_void, count: usize, size: usize) -> *mut c_void;
    pub fn ebb_free(block: *mut c_void);
    pub fn ebb_posix_memalign(out: *mut *mut c_void, align: usize, size: usize) -> c_int;
    pub fn ebb_aligned_alloc(align: usize, size: usize) -> *mut c_void;
    pub fn ebb_memalign(align: usize, size: usize) -> *mut c_void;
    pub fn ebb_valloc(size: usize) -> *mut c_void;
    pub fn ebb_pvalloc(size: usize) -> *mut c_void;
    pub fn ebb_malloc_usable_size(block: *mut c_void) -> usize;
    pub fn ebb_resize(block: *mut c_void, align: usize, size: usize) -> bool;
    pub fn ebb_remap(block: *mut c_void, align: usize, size: usize) -> *mut c_void;
    pub fn ebb_malloc_trim(keep: usize) -> c_int;
    pub fn ebb_idle() -> c_int;
    pub fn ebb_ctl(name: *const c_char, value: *const c_char) -> c_int;
    pub fn ebb_on_refusal(call: Option<extern "C" fn(usize)>);
    pub fn ebb_stats(format: c_int, buffer: *mut c_char, bytes: usize) -> usize;
    pub fn ebb_heap_new(limit: usize) -> *mut Heap;
    pub fn ebb_heap_delete(heap: *mut Heap);
    pub fn ebb_heap_used(heap: *mut Heap) -> usize;
    pub fn ebb_heap_malloc(heap: *mut Heap, size: usize) -> *mut c_void;
    pub fn ebb_heap_calloc(heap: *mut Heap, count: usize, size: usize) -> *mut c_void;
    pub fn ebb_heap_aligned_alloc(heap: *mut Heap, align: usize, size: usize) -> *mut c_void;
}

// What the engine beside the shim can do (`crates/capi-static/src/beside.rs`). Their names are
// local to the object, so no other library replaces them. The safe ones look at the address only.
unsafe extern "C" {
    safe fn ebb_beside_knows(block: *mut c_void) -> bool;
    fn ebb_beside_heap_of(block: *mut c_void) -> *mut Heap;
    fn ebb_beside_usable(align: usize, size: usize) -> usize;
    fn ebb_beside_class(nth: usize, bytes: *mut usize, span_bytes: *mut usize) -> bool;
    fn ebb_beside_copy(from: *const c_void, to: *mut c_void, bytes: usize);
    fn ebb_beside_clear(start: *mut c_void, bytes: usize);
    safe fn ebb_beside_would_pack(block: *mut c_void) -> bool;
    fn ebb_beside_alloc_packed(align: usize, size: usize) -> *mut c_void;
    fn ebb_beside_free_packed(block: *mut c_void);
    fn ebb_beside_flush_cache();
    fn ebb_beside_scavenges() -> bool;
    pub(crate) fn ebb_beside_stats(buffer: *mut c_char, bytes: usize) -> usize;
}

/// Every block is aligned to this many bytes.
pub const MIN_ALIGN: usize = 16;

/// Whether the engine beside this shim serves the process. If not, another library's does.
pub fn is_beside() -> bool {
    const UNKNOWN: u8 = 0;
    const NO: u8 = 1;
    const YES: u8 = 2;
    static IS_BESIDE: AtomicU8 = AtomicU8::new(UNKNOWN);
    match IS_BESIDE.load(Ordering::Relaxed) {
        UNKNOWN => {}
        known => return known == YES,
    }
    // SAFETY: the block is freed once, here.
    unsafe {
        let block = ebb_malloc(1);
        if block.is_null() {
            return false;
        }
        let is_known = ebb_beside_knows(block);
        ebb_free(block);
        IS_BESIDE.store(if is_known { YES } else { NO }, Ordering::Relaxed);
        is_known
    }
}

/// Allocates a block at a multiple of `align`, a power of two. `zeroed`: all bytes that the program
/// may use are zero.
pub fn alloc(align: usize, size: usize, zeroed: bool) -> *mut c_void {
    // SAFETY: the alignment is a power of two, and the block is not in use yet.
    unsafe {
        match (align <= MIN_ALIGN, zeroed) {
            (true, false) => ebb_malloc(size),
            (true, true) => ebb_calloc(1, size),
            (false, false) => ebb_aligned_alloc(align, size),
            (false, true) => {
                let block = ebb_aligned_alloc(align, size);
                clear_from(block, 0);
                block
            }
        }
    }
}

/// Resizes a block, which moves if need be. It is then aligned to `align`, a power of two. Null if
/// memory is short; then it stays as it was. Size 0 counts as 1.
pub unsafe fn realloc(block: *mut c_void, align: usize, size: usize) -> *mut c_void {
    let size = size.max(1);
    // SAFETY: the caller owns the block, and does not use its old address if it moves.
    unsafe {
        if block.is_null() {
            return alloc(align, size, false);
        }
        if align <= MIN_ALIGN {
            return ebb_realloc(block, size);
        }
        let moved = ebb_remap(block, align, size);
        if !moved.is_null() {
            return moved;
        }
        move_to(ebb_aligned_alloc(align, size), block, size)
    }
}

/// Copies a block to a new one of `size` bytes, and frees it; unless the new one is null. Returns
/// the new one.
unsafe fn move_to(new: *mut c_void, block: *mut c_void, size: usize) -> *mut c_void {
    if !new.is_null() {
        // SAFETY: the caller owns both blocks, and gives the old one up.
        unsafe {
            let bytes = ebb_malloc_usable_size(block).min(size);
            copy(block, new, bytes);
            ebb_free(block);
        }
    }
    new
}

/// Allocates a block of a heap, of none if it is null, otherwise as [`alloc`].
pub unsafe fn heap_alloc(heap: *mut Heap, align: usize, size: usize, zeroed: bool) -> *mut c_void {
    if heap.is_null() {
        return alloc(align, size, zeroed);
    }
    // SAFETY: a call with an invalid heap ends the program.
    unsafe {
        match (align <= MIN_ALIGN, zeroed) {
            (true, false) => ebb_heap_malloc(heap, size),
            (true, true) => ebb_heap_calloc(heap, 1, size),
            (false, _) => {
                let block = ebb_heap_aligned_alloc(heap, align, size);
                if zeroed {
                    clear_from(block, 0);
                }
                block
            }
        }
    }
}

/// Resizes a block of any heap, or of none, otherwise as [`realloc`]. If it moves, then to this
/// heap; to none if it is null.
pub unsafe fn heap_realloc(
    heap: *mut Heap,
    block: *mut c_void,
    align: usize,
    size: usize,
) -> *mut c_void {
    // SAFETY: the caller owns the block, and does not use its old address if it moves.
    unsafe {
        if block.is_null() {
            return heap_alloc(heap, align, size, false);
        }
        if ebb_resize(block, align, size.max(1)) {
            return block;
        }
        move_to(heap_alloc(heap, align, size, false), block, size)
    }
}

/// Copies bytes of one block to another. Pages that were never touched stay so.
pub unsafe fn copy(from: *const c_void, to: *mut c_void, bytes: usize) {
    // SAFETY: the caller owns both blocks, which have as many bytes.
    unsafe { ebb_beside_copy(from, to, bytes) }
}

/// Clears the bytes of a block from this one on, unless the block is null.
pub unsafe fn clear_from(block: *mut c_void, from: usize) {
    // SAFETY: the caller owns the block, and these bytes lie in it.
    unsafe {
        let bytes = ebb_malloc_usable_size(block).saturating_sub(from);
        match is_beside() {
            _ if bytes == 0 => {}
            true => ebb_beside_clear(block.byte_add(from), bytes),
            false => block.byte_add(from).write_bytes(0, bytes),
        }
    }
}

/// Bytes that the program may use of a block of this size; 0 where none can exist.
pub fn usable_for(align: usize, size: usize) -> usize {
    // SAFETY: both only compute, and the block is freed once.
    unsafe {
        if is_beside() {
            match ebb_beside_usable(align, size) {
                usize::MAX => {}
                known => return known,
            }
        }
        // With another engine, and where bytes behind a block are checked, only a block tells.
        let block = alloc(align, size, false);
        if block.is_null() {
            return 0;
        }
        let usable = ebb_malloc_usable_size(block);
        ebb_free(block);
        usable
    }
}

/// Block size and bytes in a span of the nth size class; `None` if there is none.
pub fn class(nth: usize) -> Option<(usize, usize)> {
    let (mut bytes, mut span_bytes) = (0, 0);
    // SAFETY: both are valid for writes.
    unsafe { ebb_beside_class(nth, &mut bytes, &mut span_bytes) }.then_some((bytes, span_bytes))
}

/// Whether an address lies in ebbmalloc's memory; false where another engine serves.
pub fn knows(address: *mut c_void) -> bool {
    is_beside() && ebb_beside_knows(address)
}

/// The heap that owns a block of the program, null for none; `None` where another engine serves.
pub unsafe fn heap_of(block: *mut c_void) -> Option<*mut Heap> {
    // SAFETY: the caller owns the block.
    is_beside().then(|| unsafe { ebb_beside_heap_of(block) })
}

/// Whether a block of [`alloc_packed`] would lie in a fuller span than this one.
pub fn would_pack(block: *mut c_void) -> bool {
    is_beside() && ebb_beside_would_pack(block)
}

/// Allocates a block past the caches, from a full span.
pub fn alloc_packed(align: usize, size: usize) -> *mut c_void {
    match is_beside() {
        // SAFETY: the alignment is a power of two.
        true => unsafe { ebb_beside_alloc_packed(align, size) },
        false => alloc(align, size, false),
    }
}

/// Frees a block past the caches.
pub unsafe fn free_packed(block: *mut c_void) {
    // SAFETY: the caller gives the block up.
    match is_beside() {
        true => unsafe { ebb_beside_free_packed(block) },
        false => unsafe { ebb_free(block) },
    }
}

/// Empties the calling thread's cache. False if that is not possible.
pub fn flush_cache() -> bool {
    let can = is_beside();
    if can {
        // SAFETY: it has no precondition.
        unsafe { ebb_beside_flush_cache() }
    }
    can
}

/// Whether a scavenger may run; `None` if that is not known.
pub fn scavenges() -> Option<bool> {
    // SAFETY: it has no precondition.
    is_beside().then(|| unsafe { ebb_beside_scavenges() })
}

/// Ends the process with a line on standard error.
#[cold]
pub fn fail(why: &str) -> ! {
    // SAFETY: both are valid calls of the C library.
    unsafe {
        for part in ["ebbmalloc: ", why, "\n"] {
            libc::write(libc::STDERR_FILENO, part.as_ptr().cast(), part.len());
        }
        libc::abort()
    }
}

/// Handles a panic: it is a bug in a shim, and ends the process.
#[cfg(not(test))]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    fail("bug in a shim for another allocator's functions, please report")
}
