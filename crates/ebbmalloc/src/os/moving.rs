//! Moving pages from one range of addresses to another, which copies nothing.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU32, Ordering};

use super::futex;
use super::syscall::{call, map};

/// Ranges of pages moved so far, and how many may be.
static MOVES: AtomicU32 = AtomicU32::new(0);
const MOVES_MAX: u32 = 16_384;

/// Moves pages by mremap(2), Linux 5.7 and later. False where that is not possible.
///
/// # Safety
/// As for [`super::Os::move_pages`].
pub(super) unsafe fn move_pages(from: *mut c_void, to: *mut c_void, bytes: usize) -> bool {
    // Each move leaves up to two more mappings, of which a process has some 65,000 (vm.max_map_count).
    // SAFETY: the caller's: both ranges are ours and nobody looks.
    MOVES.load(Ordering::Relaxed) < MOVES_MAX && unsafe { move_mapping(from, to, bytes) }
}

/// # Safety
/// As above.
unsafe fn move_mapping(from: *mut c_void, to: *mut c_void, bytes: usize) -> bool {
    const NEITHER_LOST: c_int = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP;
    // SAFETY: the caller's.
    unsafe {
        let moved = call!(libc::SYS_mremap, from, bytes, bytes, NEITHER_LOST, to) == Ok(to.addr());
        if moved && readable_by_kernel(from) {
            MOVES.fetch_add(1, Ordering::Relaxed);
            return true;
        }
        MOVES.store(MOVES_MAX, Ordering::Relaxed);
        // A kernel that refuses late has unmapped the target first; an emulator (QEMU's user mode) that did
        // as asked thinks that the source is gone. One that refuses at once has taken nothing away: then a new
        // mapping would be refused too, if it is of mappings that there are too many.
        let lost = if moved { from } else { to };
        if readable_by_kernel(lost) {
            return moved;
        }
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let again = map(lost, bytes, access, libc::MAP_NORESERVE | libc::MAP_FIXED);
        assert!(again == Ok(lost), "the kernel took {bytes} bytes at {lost:p} away");
        moved
    }
}

/// Whether system calls can read here. Asked by a call that filters of system calls allow.
fn readable_by_kernel(address: *const c_void) -> bool {
    futex::holds(address.cast(), 0) != Err(libc::EFAULT)
}
