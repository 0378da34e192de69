//! mimalloc under the standard names; the build script exports them.

/// The crate's version is not the library's: the benchmark asks for this one.
#[unsafe(no_mangle)]
extern "C" fn peer_version() -> core::ffi::c_int {
    // SAFETY: returns a constant.
    unsafe { libmimalloc_sys::mi_version() }
}
