//! Makes pages of a mapping inaccessible without splitting it: MADV_GUARD_INSTALL (Linux 6.13).
//!
//! mprotect(2) would split the mapping, and a process may have some 65,000 (vm.max_map_count). The
//! kernel goes on to count such pages as writable memory (RLIMIT_DATA), so making them accessible
//! again succeeds even at that limit.

use core::ffi::{c_int, c_void};

use super::mapping;
use crate::platform::kernel::syscall::advise;
use crate::platform::sync::{AtomicBool, Ordering};

const GUARD_INSTALL: c_int = 102;
const GUARD_REMOVE: c_int = 103;

/// Whether the kernel has this advice.
static IS_SUPPORTED: AtomicBool = AtomicBool::new(false);

/// Implements [`super::interface::OsMemory::can_hide`]. Emulators accept advice that they do not
/// know and do nothing, so this checks the effect.
pub(super) fn can_hide(page: *mut c_void, bytes: usize) -> bool {
    // SAFETY: the page is the caller's, and unused. An inaccessible page cannot be made resident.
    let works = unsafe {
        advise(page, bytes, GUARD_INSTALL).is_ok()
            && advise(page, bytes, libc::MADV_POPULATE_READ) == Err(libc::EFAULT)
            && advise(page, bytes, GUARD_REMOVE).is_ok()
    };
    IS_SUPPORTED.store(works, Ordering::Relaxed);
    works
}

/// Implements [`super::interface::OsMemory::hide`].
///
/// # Safety
/// The range is committed, and no code uses it any more.
pub(super) unsafe fn hide(start: *mut c_void, bytes: usize) -> bool {
    if !IS_SUPPORTED.load(Ordering::Relaxed) {
        // SAFETY: the caller guarantees that the range is committed and unused.
        return unsafe { mapping::decommit(start, bytes) };
    }
    // SAFETY: the caller guarantees that the range is committed and unused.
    unsafe { advise(start, bytes, GUARD_INSTALL) }.is_ok()
}

/// Implements [`super::interface::OsMemory::show`].
///
/// # Safety
/// The range is hidden.
pub(super) unsafe fn show(start: *mut c_void, bytes: usize) -> bool {
    if !IS_SUPPORTED.load(Ordering::Relaxed) {
        // SAFETY: the caller guarantees that the range is hidden, which means decommitted here.
        return unsafe { mapping::commit(start, bytes) }.is_ok();
    }
    // SAFETY: the caller guarantees that the range is hidden.
    unsafe { advise(start, bytes, GUARD_REMOVE) }.is_ok()
}
