//! glibc's malloc, made slow (it spins) and fat (it takes and touches twice what is asked
//! for): if the benchmark does not show both, the benchmark is broken. The other functions stay
//! glibc's, whose blocks these are.

use core::ffi::c_void;
use core::{hint, ptr};

unsafe extern "C" {
    fn __libc_malloc(size: usize) -> *mut c_void;
}

#[unsafe(no_mangle)]
unsafe extern "C" fn malloc(size: usize) -> *mut c_void {
    for _ in 0..10 {
        hint::spin_loop();
    }
    let Some(fat) = size.checked_mul(2) else {
        return ptr::null_mut();
    };
    // SAFETY: glibc's own malloc under its other name; a block of `fat` bytes.
    unsafe {
        let block = __libc_malloc(fat);
        if !block.is_null() {
            ptr::write_bytes(block.cast::<u8>(), 1, fat);
        }
        block
    }
}
