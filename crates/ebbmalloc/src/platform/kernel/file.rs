//! Opens, reads, writes and closes files by direct system calls.
//!
//! The C library's functions for files are cancellation points (POSIX.1-2024, XSH 2.9.5.2), and
//! malloc and its relatives must not be. A thread that `pthread_cancel` ended here would leave the
//! engine's locks taken.

use core::ffi::{CStr, c_int};
use core::mem::MaybeUninit;
use core::ptr;

use super::syscall::{SIGNAL_SET_BYTES, call, change_mask};

/// Opens a file for reading. `None` if it cannot be opened.
pub(crate) fn open(path: &CStr) -> Option<c_int> {
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    // SAFETY: the kernel reads the path, which ends in a zero byte.
    let file = unsafe { call!(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0) };
    file.ok().map(|file| file as c_int)
}

/// Creates a file for writing, which only its owner may read, or empties one that exists. `None`
/// if that is not possible, or if it is a pipe without a reader.
pub(crate) fn create(path: &CStr) -> Option<c_int> {
    // O_NONBLOCK: else the call would wait for a reader.
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC | libc::O_CLOEXEC | libc::O_NONBLOCK;
    // SAFETY: the kernel reads the path, which ends in a zero byte.
    unsafe {
        let file = call!(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0o600).ok()?;
        // A reader may be slow.
        let _ = call!(libc::SYS_fcntl, file, libc::F_SETFL, 0);
        Some(file as c_int)
    }
}

/// Whether a file may take the place of what is at this path: nothing, or a file with contents that
/// is neither a device nor a pipe nor a link. An empty one may be open in the program, to be read.
pub(crate) fn is_replaceable(path: &CStr) -> bool {
    match status_of(libc::AT_FDCWD, path, libc::AT_SYMLINK_NOFOLLOW) {
        Ok(status) => status.stx_mode as u32 & libc::S_IFMT == libc::S_IFREG && status.stx_size > 0,
        Err(error) => error == libc::ENOENT,
    }
}

/// Gives a file another name, in place of the file that has it. False if that is not possible.
pub(crate) fn rename(from: &CStr, to: &CStr) -> bool {
    let here = libc::AT_FDCWD;
    let (from, to) = (from.as_ptr(), to.as_ptr());
    // SAFETY: the kernel reads the paths, which end in a zero byte.
    unsafe { call!(libc::SYS_renameat2, here, from, here, to, 0) }.is_ok()
}

/// Removes a file.
pub(crate) fn remove(path: &CStr) {
    // SAFETY: the kernel reads the path, which ends in a zero byte.
    let _ = unsafe { call!(libc::SYS_unlinkat, libc::AT_FDCWD, path.as_ptr(), 0) };
}

/// Reads the next bytes into `buffer`; returns their number. 0 at the end of the file, or on an
/// error.
pub(crate) fn read(file: c_int, buffer: &mut [u8]) -> usize {
    // SAFETY: the kernel fills at most the length of the buffer.
    unsafe { call!(libc::SYS_read, file, buffer.as_mut_ptr(), buffer.len()) }.unwrap_or(0)
}

/// Writes as much of `text` as possible. Returns the number of bytes.
///
/// Hides two signals from the program, which by default would end it: SIGPIPE, if the reader of a
/// pipe is gone, and SIGXFSZ, if RLIMIT_FSIZE forbids the file to grow.
pub(crate) fn write_all(file: c_int, text: &[u8]) -> usize {
    const UNWANTED: u64 = 1 << (libc::SIGPIPE - 1) | 1 << (libc::SIGXFSZ - 1);
    let before = change_mask(libc::SIG_BLOCK, UNWANTED);
    // Signals that were pending before are the program's. If it blocks neither, neither is pending.
    let pending_before = if before & UNWANTED == 0 { 0 } else { pending() };
    let written = write(file, text);
    while written < text.len() && take_pending(UNWANTED & !pending_before) {}
    change_mask(libc::SIG_SETMASK, before);
    written
}

/// Which signals are pending for this thread or for the process.
fn pending() -> u64 {
    let mut set = 0u64;
    // SAFETY: the kernel fills the set.
    let _ = unsafe { call!(libc::SYS_rt_sigpending, &raw mut set, SIGNAL_SET_BYTES) };
    set
}

/// Discards one pending signal of these. False if none is pending.
fn take_pending(signals: u64) -> bool {
    if pending() & signals == 0 {
        return false;
    }
    let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let info = ptr::null_mut::<libc::siginfo_t>();
    // SAFETY: the kernel reads the set and the time.
    let (set, time) = (&raw const signals, &raw const at_once);
    unsafe { call!(libc::SYS_rt_sigtimedwait, set, info, time, SIGNAL_SET_BYTES) }.is_ok()
}

/// Writes as much of `text` as possible. Returns the number of bytes.
fn write(file: c_int, text: &[u8]) -> usize {
    let mut rest = text;
    while !rest.is_empty() {
        // SAFETY: the kernel reads no more than the length of `rest`.
        match unsafe { call!(libc::SYS_write, file, rest.as_ptr(), rest.len()) } {
            Ok(0) | Err(_) => break,
            Ok(written) => rest = &rest[written..],
        }
    }
    text.len() - rest.len()
}

/// Closes a file that [`open`] opened.
pub(crate) fn close(file: c_int) {
    // SAFETY: the descriptor is the caller's own.
    let _ = unsafe { call!(libc::SYS_close, file) };
}

/// Duplicates a descriptor; the copy has a number of at least `min`, and is closed on exec.
pub(crate) fn duplicate(file: c_int, min: c_int) -> Option<c_int> {
    // SAFETY: the call touches no memory.
    let copy = unsafe { call!(libc::SYS_fcntl, file, libc::F_DUPFD_CLOEXEC, min) };
    copy.ok().map(|copy| copy as c_int)
}

/// Status of the file at `path`, or if that is empty, of the open file of descriptor `file`.
pub(crate) fn status(file: c_int, path: &CStr) -> Option<libc::statx> {
    status_of(file, path, if path.is_empty() { libc::AT_EMPTY_PATH } else { 0 }).ok()
}

fn status_of(file: c_int, path: &CStr, flags: c_int) -> Result<libc::statx, c_int> {
    let mut status = MaybeUninit::<libc::statx>::zeroed();
    let (out, fields) = (status.as_mut_ptr(), libc::STATX_BASIC_STATS);
    // SAFETY: the path ends in a zero byte. The kernel fills the struct, for which all-zero bytes
    // are valid too.
    unsafe {
        call!(libc::SYS_statx, file, path.as_ptr(), flags, fields, out)?;
        Ok(status.assume_init())
    }
}
