//! mimalloc under the standard names; the build script exports them.

/// Returns the library's version, which is not the crate's, to the benchmark.
#[unsafe(no_mangle)]
extern "C" fn peer_version() -> core::ffi::c_int {
    // SAFETY: the function returns a constant.
    unsafe { libmimalloc_sys::mi_version() }
}
