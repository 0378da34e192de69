//! Opening, reading, writing and closing files. The C library's functions for these are cancellation points
//! (POSIX.1-2024, XSH 2.9.5.2), and malloc and its relatives must be none: a thread that `pthread_cancel` ended
//! here would leave the engine's locks taken. So these make the system calls themselves.

use core::ffi::{CStr, c_int, c_long};

/// Opens a file for reading; `None` if that is not possible.
pub(super) fn open(path: &CStr) -> Option<c_int> {
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    // SAFETY: the path ends in a zero byte.
    let file = unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags) };
    (file >= 0).then_some(file as c_int)
}

/// Reads what comes next, as much as there is room for at most; 0 at the end, or if it cannot be read.
pub(super) fn read(file: c_int, buffer: &mut [u8]) -> usize {
    // SAFETY: the buffer is as long as said.
    count(unsafe { libc::syscall(libc::SYS_read, file, buffer.as_mut_ptr(), buffer.len()) })
}

/// Writes as much as it can; false if that was nothing.
pub(super) fn write_all(file: c_int, text: &[u8]) -> bool {
    let mut rest = text;
    while !rest.is_empty() {
        // SAFETY: the buffer is as long as said.
        match count(unsafe { libc::syscall(libc::SYS_write, file, rest.as_ptr(), rest.len()) }) {
            0 => break,
            written => rest = &rest[written..],
        }
    }
    rest.len() < text.len()
}

/// Closes a file that [`open`] has opened.
pub(super) fn close(file: c_int) {
    // SAFETY: the caller's own descriptor.
    unsafe { libc::syscall(libc::SYS_close, file) };
}

/// What a call has read or written; 0 for an error.
fn count(result: c_long) -> usize {
    usize::try_from(result).unwrap_or(0)
}
