use core::ffi::{c_int, c_void};
use snmalloc_sys as sn;

forward::forward! {
    malloc = sn::sn_malloc,
    free = sn::sn_free,
    calloc = sn::sn_calloc,
    realloc = sn::sn_realloc,
    posix_memalign = sn_posix_memalign,
    aligned_alloc = sn_aligned_alloc,
    memalign = sn_memalign,
    malloc_usable_size = sn::sn_malloc_usable_size,
}

// In the library, but not in the crate's bindings.
unsafe extern "C" {
    fn sn_posix_memalign(out: *mut *mut c_void, alignment: usize, size: usize) -> c_int;
    fn sn_aligned_alloc(alignment: usize, size: usize) -> *mut c_void;
    fn sn_memalign(alignment: usize, size: usize) -> *mut c_void;
}
