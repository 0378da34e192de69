//! Address space, and memory in it: mmap(2), mprotect(2), madvise(2).

use core::ffi::c_void;
use core::ptr::{self, NonNull};

use super::syscall::{advise, map, protect, unmap};

/// As [`super::Os::reserve`].
pub(super) fn reserve(bytes: usize, align: usize) -> Option<NonNull<u8>> {
    let padded = bytes.checked_add(align)?;
    // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
    let start = unsafe { map(ptr::null_mut(), padded, libc::PROT_NONE, libc::MAP_NORESERVE).ok()? };
    let start = start.cast::<u8>();
    let before = start.align_offset(align);
    // SAFETY: both ends lie in the mapping just made and nobody knows them.
    unsafe {
        let aligned = start.add(before);
        if before > 0 {
            unmap(start.cast(), before);
        }
        if align > before {
            unmap(aligned.add(bytes).cast(), align - before);
        }
        // Fails where there are no huge pages: docs/decisions/0008-no-huge-pages.md.
        let _ = advise(aligned.cast(), bytes, libc::MADV_NOHUGEPAGE);
        NonNull::new(aligned)
    }
}

/// As [`super::Os::commit`].
///
/// # Safety
/// As for that.
pub(super) unsafe fn commit(start: *mut c_void, bytes: usize) -> bool {
    // SAFETY: the caller's: the range is ours.
    unsafe { protect(start, bytes, libc::PROT_READ | libc::PROT_WRITE) }
}

/// As [`super::Os::decommit`].
///
/// # Safety
/// As for that.
pub(super) unsafe fn decommit(start: *mut c_void, bytes: usize) -> bool {
    // SAFETY: the caller's: the range is ours and its contents are dead.
    unsafe {
        protect(start, bytes, libc::PROT_NONE) && {
            // Refused for locked memory only, which must be cleared by hand.
            let purged = purge(start, bytes);
            purged || {
                commit(start, bytes);
                false
            }
        }
    }
}

/// As [`super::Os::purge`].
///
/// # Safety
/// As for that.
pub(super) unsafe fn purge(start: *mut c_void, bytes: usize) -> bool {
    // SAFETY: the caller's: the range is ours and its contents are dead.
    unsafe { advise(start, bytes, libc::MADV_DONTNEED) }.is_ok()
}

/// As [`super::Os::populate`].
pub(super) fn populate(start: *mut c_void, bytes: usize) {
    // SAFETY: this changes the contents of no memory.
    let _ = unsafe { advise(start, bytes, libc::MADV_POPULATE_WRITE) };
}
