use core::ffi::{c_int, c_void};
use libmimalloc_sys as mi;

forward::forward! {
    malloc = mi::mi_malloc,
    free = mi::mi_free,
    calloc = mi::mi_calloc,
    realloc = mi::mi_realloc,
    posix_memalign = mi::mi_posix_memalign,
    aligned_alloc = mi::mi_aligned_alloc,
    memalign = mi_memalign,
    malloc_usable_size = mi::mi_usable_size,
}

unsafe extern "C" {
    fn mi_memalign(alignment: usize, size: usize) -> *mut c_void;
}

/// The crate's version is not the library's: the benchmark asks for this one.
#[unsafe(no_mangle)]
extern "C" fn peer_version() -> c_int {
    unsafe { mi::mi_version() }
}
