//! Makes glibc's malloc slow (it spins) and fat (it takes and touches twice the requested size), to
//! test the benchmark: it must show both. The other functions are glibc's own and serve these
//! blocks. `PEER_SLOW=crash`, `exit` or `hang` makes it fail.

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
    // SAFETY: glibc's own malloc under its other name; it returns null or `fat` bytes.
    unsafe {
        let block = __libc_malloc(fat);
        if !block.is_null() {
            ptr::write_bytes(block.cast::<u8>(), 1, fat);
        }
        block
    }
}

/// Fails in the way that the environment requests.
fn misbehave() {
    // SAFETY: neither function allocates; the string belongs to the environment.
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
