//! Moving pages from one range of addresses to another, which copies nothing.

use core::ffi::{c_int, c_void};

use super::mapping::commit;
use crate::platform::kernel::syscall::{advise, call};

/// Moves pages by mremap(2).
///
/// # Safety
/// As for [`super::interface::Os::move_pages`].
pub(super) unsafe fn move_pages(
    from: *mut c_void,
    to: *mut c_void,
    bytes: usize,
    room: usize,
) -> bool {
    const TO: c_int = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // SAFETY: the caller's: both ranges are ours and nobody looks.
    unsafe {
        let moved = call!(libc::SYS_mremap, from, bytes, room, TO, to) == Ok(to.addr());
        if moved {
            return true;
        }
        // A kernel that refuses late has unmapped the target first. One that refuses at once has taken nothing away: then a
        // new mapping would be refused too, if it is of mappings that there are too many. Only where nothing is
        // mapped does this advice, which costs nothing more than the target's contents, end in ENOMEM.
        if advise(to, room, libc::MADV_DONTNEED) == Err(libc::ENOMEM) {
            assert!(commit(to, room).is_ok(), "the kernel took {room} bytes at {to:p} away");
        }
        false
    }
}
