//! Bits that nobody can guess: getrandom(2), or what the kernel gave the process at its start.

use core::ptr;

use crate::platform::kernel::auxiliary;
use crate::platform::kernel::syscall::call;

/// As [`super::interface::Os::random`].
pub(super) fn random() -> u64 {
    let mut bits = 0u64;
    let size = size_of::<u64>();
    // SAFETY: the kernel fills a number.
    let got = unsafe { call!(libc::SYS_getrandom, &raw mut bits, size, libc::GRND_NONBLOCK) };
    if got == Ok(size) {
        return bits;
    }
    // Early in the boot, or in a sandbox: the address of 16 random bytes, or 0.
    let given = ptr::with_exposed_provenance::<u64>(auxiliary::value(libc::AT_RANDOM));
    if given.is_null() {
        return 0;
    }
    // SAFETY: the kernel put them there, for as long as the process lives.
    unsafe { given.read_unaligned() ^ given.add(1).read_unaligned().rotate_left(32) }
}
