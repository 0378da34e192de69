//! Gets unpredictable bits from the kernel: by getrandom(2), or those that a process gets at its
//! start.

use core::ptr;

use crate::platform::kernel::auxiliary;
use crate::platform::kernel::syscall::call;

/// Implements [`super::interface::OsProcess::random`].
pub(super) fn random() -> u64 {
    let mut bits = 0u64;
    let size = size_of::<u64>();
    // SAFETY: the kernel fills at most `size` bytes of the number.
    let filled = unsafe { call!(libc::SYS_getrandom, &raw mut bits, size, libc::GRND_NONBLOCK) };
    if filled == Ok(size) {
        return bits;
    }
    // Early in the boot, or in a sandbox. AT_RANDOM is the address of 16 random bytes.
    let given = ptr::with_exposed_provenance::<u64>(auxiliary::value(libc::AT_RANDOM));
    if given.is_null() {
        return 0;
    }
    // SAFETY: the kernel put 16 bytes there, which stay as long as the process lives.
    unsafe { given.read_unaligned() ^ given.add(1).read_unaligned().rotate_left(32) }
}
