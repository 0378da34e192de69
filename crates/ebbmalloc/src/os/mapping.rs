//! Address space, and memory in it: mmap(2), mprotect(2), madvise(2).

use core::ffi::c_void;
use core::ptr::{self, NonNull};

use super::linux::keeping_errno;

/// As [`super::Os::reserve`].
pub(super) fn reserve(bytes: usize, align: usize) -> Option<NonNull<u8>> {
    let padded = bytes.checked_add(align)?;
    // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
    let start = keeping_errno(|| unsafe {
        libc::mmap(
            ptr::null_mut(),
            padded,
            libc::PROT_NONE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    });
    if start == libc::MAP_FAILED {
        return None;
    }
    let start = start.cast::<u8>();
    let before = start.align_offset(align);
    // SAFETY: both ends lie in the mapping just made and nobody knows them.
    unsafe {
        let aligned = start.add(before);
        if before > 0 {
            libc::munmap(start.cast(), before);
        }
        if align > before {
            libc::munmap(aligned.add(bytes).cast(), align - before);
        }
        // Fails where there are no huge pages: docs/decisions/0008-no-huge-pages.md.
        keeping_errno(|| libc::madvise(aligned.cast(), bytes, libc::MADV_NOHUGEPAGE));
        NonNull::new(aligned)
    }
}

/// As [`super::Os::commit`].
///
/// # Safety
/// As for that.
pub(super) unsafe fn commit(start: *mut c_void, bytes: usize) -> bool {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the caller's: the range is ours.
    keeping_errno(|| unsafe { libc::mprotect(start, bytes, access) == 0 })
}

/// As [`super::Os::decommit`].
///
/// # Safety
/// As for that.
pub(super) unsafe fn decommit(start: *mut c_void, bytes: usize) -> bool {
    // SAFETY: the caller's: the range is ours and its contents are dead.
    keeping_errno(|| unsafe {
        libc::mprotect(start, bytes, libc::PROT_NONE) == 0 && {
            // Refused for locked memory only, which must be cleared by hand.
            let purged = libc::madvise(start, bytes, libc::MADV_DONTNEED) == 0;
            purged || {
                commit(start, bytes);
                false
            }
        }
    })
}

/// As [`super::Os::purge`].
///
/// # Safety
/// As for that.
pub(super) unsafe fn purge(start: *mut c_void, bytes: usize) -> bool {
    // SAFETY: the caller's: the range is ours and its contents are dead.
    keeping_errno(|| unsafe { libc::madvise(start, bytes, libc::MADV_DONTNEED) == 0 })
}

/// As [`super::Os::populate`].
pub(super) fn populate(start: *mut c_void, bytes: usize) {
    // SAFETY: this changes the contents of no memory.
    keeping_errno(|| unsafe { libc::madvise(start, bytes, libc::MADV_POPULATE_WRITE) });
}
