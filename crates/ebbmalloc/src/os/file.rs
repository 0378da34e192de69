//! Opening, reading, writing and closing files. The C library's functions for these are cancellation points
//! (POSIX.1-2024, XSH 2.9.5.2), and malloc and its relatives must be none: a thread that `pthread_cancel` ended
//! here would leave the engine's locks taken. So these make the system calls themselves.

use core::ffi::{CStr, c_int, c_long};
use core::ptr;

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

/// Writes as much as it can; false if that was nothing. What a program would be told by a signal, and by default be ended: that nobody reads
/// (SIGPIPE), or that the file may not grow (SIGXFSZ, by RLIMIT_FSIZE), is no business of its own here.
pub(super) fn write_all(file: c_int, text: &[u8]) -> bool {
    const UNWANTED: u64 = 1 << (libc::SIGPIPE - 1) | 1 << (libc::SIGXFSZ - 1);
    let before = change_mask(libc::SIG_BLOCK, UNWANTED);
    // Those that waited before are the program's. Where it lets them in, none does.
    let waiting = if before & UNWANTED == 0 { 0 } else { pending() };
    let written = write_rest(file, text);
    while written < text.len() && take_pending(UNWANTED & !waiting) {}
    change_mask(libc::SIG_SETMASK, before);
    written > 0
}

/// Bytes of a set of signals, as the kernel counts them.
const SET_BYTES: usize = size_of::<u64>();

/// Changes which signals wait in this thread; those that did before.
fn change_mask(how: c_int, signals: u64) -> u64 {
    let mut before = 0u64;
    // SAFETY: reads a set and fills another.
    unsafe { libc::syscall(libc::SYS_rt_sigprocmask, how, &signals, &mut before, SET_BYTES) };
    before
}

/// Which signals wait for this thread or for the process.
fn pending() -> u64 {
    let mut waiting = 0u64;
    // SAFETY: fills a set.
    unsafe { libc::syscall(libc::SYS_rt_sigpending, &mut waiting, SET_BYTES) };
    waiting
}

/// Takes one of these signals away if it waits; false if none does.
fn take_pending(signals: u64) -> bool {
    if pending() & signals == 0 {
        return false;
    }
    let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let info = ptr::null_mut::<libc::siginfo_t>();
    // SAFETY: reads a set and a time.
    let signal =
        unsafe { libc::syscall(libc::SYS_rt_sigtimedwait, &signals, info, &at_once, SET_BYTES) };
    signal > 0
}

/// Writes as much as it can: so many bytes.
fn write_rest(file: c_int, text: &[u8]) -> usize {
    let mut rest = text;
    while !rest.is_empty() {
        // SAFETY: the buffer is as long as said.
        match count(unsafe { libc::syscall(libc::SYS_write, file, rest.as_ptr(), rest.len()) }) {
            0 => break,
            written => rest = &rest[written..],
        }
    }
    text.len() - rest.len()
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
