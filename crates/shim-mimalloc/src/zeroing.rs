//! Clears what a block gained when it was resized.

use core::ffi::c_void;

/// Resizes a block by `resize`, and clears the bytes from its old size on.
///
/// # Safety
/// The caller owns the block, which `resize` resizes or leaves as it is.
pub unsafe fn grown(block: *mut c_void, resize: impl FnOnce() -> *mut c_void) -> *mut c_void {
    // SAFETY: the block is in use, or null; then so is the new one, and these bytes lie in it.
    unsafe {
        let before = shim::ebb_malloc_usable_size(block);
        let new = resize();
        shim::clear_from(new, before);
        new
    }
}
