//! Opening, reading, writing and closing files. The C library's functions for these are cancellation points
//! (POSIX.1-2024, XSH 2.9.5.2), and malloc and its relatives must be none: a thread that `pthread_cancel` ended
//! here would leave the engine's locks taken. So these make the system calls themselves.

use core::ffi::{CStr, c_int};
use core::mem::MaybeUninit;

use super::syscall::call;

/// Opens a file for reading; `None` if that is not possible.
pub(super) fn open(path: &CStr) -> Option<c_int> {
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    // SAFETY: the path ends in a zero byte.
    let file = unsafe { call!(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0) };
    file.ok().map(|file| file as c_int)
}

/// Reads what comes next, as much as there is room for at most; 0 at the end, or if it cannot be read.
pub(super) fn read(file: c_int, buffer: &mut [u8]) -> usize {
    // SAFETY: the buffer is as long as said.
    unsafe { call!(libc::SYS_read, file, buffer.as_mut_ptr(), buffer.len()) }.unwrap_or(0)
}

/// Writes as much as it can; false if that was nothing.
pub(super) fn write_all(file: c_int, text: &[u8]) -> bool {
    let mut rest = text;
    while !rest.is_empty() {
        // SAFETY: the buffer is as long as said.
        match unsafe { call!(libc::SYS_write, file, rest.as_ptr(), rest.len()) } {
            Ok(0) | Err(_) => break,
            Ok(written) => rest = &rest[written..],
        }
    }
    rest.len() < text.len()
}

/// Closes a file that [`open`] has opened.
pub(super) fn close(file: c_int) {
    // SAFETY: the caller's own descriptor.
    let _ = unsafe { call!(libc::SYS_close, file) };
}

/// Reads the start of a file that consists of words; how many.
pub(super) fn read_words(path: &CStr, words: &mut [usize]) -> usize {
    let Some(file) = open(path) else { return 0 };
    let bytes = size_of_val(words);
    // SAFETY: the buffer is as long as said, and any bytes are words.
    let read = unsafe { call!(libc::SYS_read, file, words.as_mut_ptr(), bytes) };
    close(file);
    read.unwrap_or(0) / size_of::<usize>()
}

/// A descriptor of the same file from `least` on, which goes when another program is run.
pub(super) fn duplicate(file: c_int, least: c_int) -> Option<c_int> {
    // SAFETY: touches no memory.
    let copy = unsafe { call!(libc::SYS_fcntl, file, libc::F_DUPFD_CLOEXEC, least) };
    copy.ok().map(|copy| copy as c_int)
}

/// What the kernel knows of the file at a path, or without one, of the open file of a descriptor.
pub(super) fn status(file: c_int, path: &CStr) -> Option<libc::statx> {
    let mut status = MaybeUninit::<libc::statx>::zeroed();
    let (at, wanted) = (status.as_mut_ptr(), libc::STATX_BASIC_STATS);
    let flags = if path.is_empty() { libc::AT_EMPTY_PATH } else { 0 };
    // SAFETY: the path ends in a zero byte; the kernel fills the struct, of which all zero bytes are valid.
    unsafe {
        call!(libc::SYS_statx, file, path.as_ptr(), flags, wanted, at).ok()?;
        Some(status.assume_init())
    }
}
