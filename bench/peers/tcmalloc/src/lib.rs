use core::ffi::{c_int, c_void};
use libtcmalloc_sys as _;

forward::forward! {
    malloc = TCMallocInternalMalloc,
    free = TCMallocInternalFree,
    calloc = TCMallocInternalCalloc,
    realloc = TCMallocInternalRealloc,
    posix_memalign = TCMallocInternalPosixMemalign,
    aligned_alloc = TCMallocInternalAlignedAlloc,
    memalign = TCMallocInternalMemalign,
    malloc_usable_size = TCMallocInternalMallocSize,
}

// The crate binds only what Rust's allocator trait needs; the C functions are in the library.
unsafe extern "C" {
    fn TCMallocInternalMalloc(size: usize) -> *mut c_void;
    fn TCMallocInternalFree(block: *mut c_void);
    fn TCMallocInternalCalloc(count: usize, size: usize) -> *mut c_void;
    fn TCMallocInternalRealloc(block: *mut c_void, size: usize) -> *mut c_void;
    fn TCMallocInternalPosixMemalign(out: *mut *mut c_void, alignment: usize, size: usize)
    -> c_int;
    fn TCMallocInternalAlignedAlloc(alignment: usize, size: usize) -> *mut c_void;
    fn TCMallocInternalMemalign(alignment: usize, size: usize) -> *mut c_void;
    fn TCMallocInternalMallocSize(block: *mut c_void) -> usize;
    fn TCMalloc_Internal_ForceCpuCacheActivation();
}

/// Nothing else refers to the object file whose constructor turns the per-CPU caches on: without
/// this the linker leaves it out, and tcmalloc falls back to its slow per-thread caches.
#[used]
static PER_CPU: unsafe extern "C" fn() = TCMalloc_Internal_ForceCpuCacheActivation;
