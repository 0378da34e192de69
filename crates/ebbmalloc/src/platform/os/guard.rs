//! Pages out of reach within a mapping: MADV_GUARD_INSTALL (Linux 6.13). Unlike pages that mprotect(2) takes out of reach they leave
//! the mapping whole, of which a process may have some 65,000 (vm.max_map_count); and the kernel goes on to count them where it counts
//! memory that may be written (RLIMIT_DATA), so they come back also where that limit is reached.

use core::ffi::{c_int, c_void};

use super::mapping;
use crate::platform::kernel::syscall::advise;
use crate::platform::sync::{AtomicBool, Ordering};

const GUARD_INSTALL: c_int = 102;
const GUARD_REMOVE: c_int = 103;

/// Whether the kernel has them.
static KNOWN: AtomicBool = AtomicBool::new(false);

/// As [`super::interface::Os::can_hide`]. Emulators ignore advice that they do not know, so what has been done is looked at.
pub(super) fn can_hide(page: *mut c_void, bytes: usize) -> bool {
    // SAFETY: the caller's page. Of pages out of reach none can be made resident.
    let works = unsafe {
        advise(page, bytes, GUARD_INSTALL).is_ok()
            && advise(page, bytes, libc::MADV_POPULATE_READ) == Err(libc::EFAULT)
            && advise(page, bytes, GUARD_REMOVE).is_ok()
    };
    KNOWN.store(works, Ordering::Relaxed);
    works
}

/// As [`super::interface::Os::hide`].
///
/// # Safety
/// As for that.
pub(super) unsafe fn hide(start: *mut c_void, bytes: usize) -> bool {
    if !KNOWN.load(Ordering::Relaxed) {
        // SAFETY: the caller's.
        return unsafe { mapping::decommit(start, bytes) };
    }
    // SAFETY: the caller's.
    unsafe { advise(start, bytes, GUARD_INSTALL) }.is_ok()
}

/// As [`super::interface::Os::show`].
///
/// # Safety
/// As for that.
pub(super) unsafe fn show(start: *mut c_void, bytes: usize) -> bool {
    if !KNOWN.load(Ordering::Relaxed) {
        // SAFETY: the caller's.
        return unsafe { mapping::commit(start, bytes) }.is_ok();
    }
    // SAFETY: the caller's.
    unsafe { advise(start, bytes, GUARD_REMOVE) }.is_ok()
}
