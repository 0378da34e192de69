//! Moves pages from one range of addresses to another without copying.

use core::ffi::{c_int, c_void};

use super::mapping::commit;
use crate::platform::kernel::syscall::{advise, call};

/// Implements [`super::interface::OsMemory::move_pages`] by mremap(2).
///
/// # Safety
/// Both ranges are committed, do not overlap, and are used by no other code. The first lies in one
/// mapping, and is no longer than the second.
pub(super) unsafe fn move_pages(
    from: *mut c_void,
    to: *mut c_void,
    bytes: usize,
    to_bytes: usize,
) -> bool {
    const FLAGS: c_int = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // SAFETY: the caller guarantees that both ranges are committed and unused by others.
    unsafe {
        let moved = call!(libc::SYS_mremap, from, bytes, to_bytes, FLAGS, to) == Ok(to.addr());
        if moved {
            return true;
        }
        // A kernel that refuses late has unmapped the target before, so it is mapped again. One
        // that refuses early has left it mapped: a new mapping is not needed, and would fail too
        // if the process has too many. This advice tells the cases apart: it fails with ENOMEM
        // only where nothing is mapped, and costs no more than the target's contents.
        if advise(to, to_bytes, libc::MADV_DONTNEED) == Err(libc::ENOMEM) {
            assert!(
                commit(to, to_bytes).is_ok(),
                "the kernel took {to_bytes} bytes at {to:p} away"
            );
        }
        false
    }
}
