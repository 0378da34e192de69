//! glibc's malloc, made slow (it spins) and fat (it takes and touches twice what is asked
//! for): if the benchmark does not show both, the benchmark is broken. The other functions stay
//! glibc's, whose blocks these are. `PEER_SLOW=crash`, `exit` or `hang` makes it worse than slow.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::{hint, ptr};

unsafe extern "C" {
    fn __libc_malloc(size: usize) -> *mut c_void;
    fn getenv(name: *const c_char) -> *const c_char;
    fn abort() -> !;
    fn _exit(code: c_int) -> !;
    fn pause() -> c_int;
}

#[unsafe(no_mangle)]
unsafe extern "C" fn malloc(size: usize) -> *mut c_void {
    misbehave();
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

/// As the environment wants it.
fn misbehave() {
    // SAFETY: neither function allocates; the string is one of the environment.
    unsafe {
        let how = getenv(c"PEER_SLOW".as_ptr());
        if how.is_null() {
            return;
        }
        match CStr::from_ptr(how).to_bytes() {
            b"crash" => abort(),
            b"exit" => _exit(3),
            b"hang" => loop {
                pause();
            },
            _ => (),
        }
    }
}
