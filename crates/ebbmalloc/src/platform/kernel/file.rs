//! Opening, reading, writing and closing files. The C library's functions for these are cancellation points
//! (POSIX.1-2024, XSH 2.9.5.2), and malloc and its relatives must be none: a thread that `pthread_cancel` ended
//! here would leave the engine's locks taken. So these make the system calls themselves.

use core::ffi::{CStr, c_int};
use core::mem::MaybeUninit;
use core::ptr;

use super::syscall::call;

/// Opens a file for reading; `None` if that is not possible.
pub(crate) fn open(path: &CStr) -> Option<c_int> {
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    // SAFETY: the path ends in a zero byte.
    let file = unsafe { call!(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0) };
    file.ok().map(|file| file as c_int)
}

/// Reads what comes next, as much as there is room for at most; 0 at the end, or if it cannot be read.
pub(crate) fn read(file: c_int, buffer: &mut [u8]) -> usize {
    // SAFETY: the buffer is as long as said.
    unsafe { call!(libc::SYS_read, file, buffer.as_mut_ptr(), buffer.len()) }.unwrap_or(0)
}

/// Writes as much as it can; false if that was nothing. What a program would be told by a signal, and by default be ended: that nobody reads
/// (SIGPIPE), or that the file may not grow (SIGXFSZ, by RLIMIT_FSIZE), is no business of its own here.
pub(crate) fn write_all(file: c_int, text: &[u8]) -> bool {
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
    let (new, old) = (&raw const signals, &raw mut before);
    let _ = unsafe { call!(libc::SYS_rt_sigprocmask, how, new, old, SET_BYTES) };
    before
}

/// Which signals wait for this thread or for the process.
fn pending() -> u64 {
    let mut waiting = 0u64;
    // SAFETY: fills a set.
    let _ = unsafe { call!(libc::SYS_rt_sigpending, &raw mut waiting, SET_BYTES) };
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
    let (set, time) = (&raw const signals, &raw const at_once);
    unsafe { call!(libc::SYS_rt_sigtimedwait, set, info, time, SET_BYTES) }.is_ok()
}

/// Writes as much as it can: so many bytes.
fn write_rest(file: c_int, text: &[u8]) -> usize {
    let mut rest = text;
    while !rest.is_empty() {
        // SAFETY: the buffer is as long as said.
        match unsafe { call!(libc::SYS_write, file, rest.as_ptr(), rest.len()) } {
            Ok(0) | Err(_) => break,
            Ok(written) => rest = &rest[written..],
        }
    }
    text.len() - rest.len()
}

/// Closes a file that [`open`] has opened.
pub(crate) fn close(file: c_int) {
    // SAFETY: the caller's own descriptor.
    let _ = unsafe { call!(libc::SYS_close, file) };
}

/// Reads the start of a file that consists of words; how many.
pub(crate) fn read_words(path: &CStr, words: &mut [usize]) -> usize {
    let Some(file) = open(path) else { return 0 };
    let bytes = size_of_val(words);
    // SAFETY: the buffer is as long as said, and any bytes are words.
    let read = unsafe { call!(libc::SYS_read, file, words.as_mut_ptr(), bytes) };
    close(file);
    read.unwrap_or(0) / size_of::<usize>()
}

/// A descriptor of the same file from `least` on, which goes when another program is run.
pub(crate) fn duplicate(file: c_int, least: c_int) -> Option<c_int> {
    // SAFETY: touches no memory.
    let copy = unsafe { call!(libc::SYS_fcntl, file, libc::F_DUPFD_CLOEXEC, least) };
    copy.ok().map(|copy| copy as c_int)
}

/// What the kernel knows of the file at a path, or without one, of the open file of a descriptor.
pub(crate) fn status(file: c_int, path: &CStr) -> Option<libc::statx> {
    let mut status = MaybeUninit::<libc::statx>::zeroed();
    let (at, wanted) = (status.as_mut_ptr(), libc::STATX_BASIC_STATS);
    let flags = if path.is_empty() { libc::AT_EMPTY_PATH } else { 0 };
    // SAFETY: the path ends in a zero byte; the kernel fills the struct, of which all zero bytes are valid.
    unsafe {
        call!(libc::SYS_statx, file, path.as_ptr(), flags, wanted, at).ok()?;
        Some(status.assume_init())
    }
}
