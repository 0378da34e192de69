//! Makes system calls directly, and leaves `errno` alone.
//!
//! A preloaded library may have replaced any function of the C library by one that allocates. The
//! engine's calls must not come back to the engine.

use core::ffi::{c_int, c_void};

pub(crate) use crate::platform::arch::call;

/// The descriptor of an anonymous mapping.
const NO_FILE: c_int = -1;

/// Maps private anonymous memory: mmap(2).
///
/// # Safety
/// With MAP_FIXED, the caller owns the mappings in this range.
pub(crate) unsafe fn map(
    address: *mut c_void,
    bytes: usize,
    access: c_int,
    flags: c_int,
) -> Result<*mut c_void, c_int> {
    let flags = flags | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: the kernel picks a free range, or the caller owns the one that it replaces.
    let start = unsafe { call!(libc::SYS_mmap, address, bytes, access, flags, NO_FILE, 0_usize) }?;
    Ok(core::ptr::with_exposed_provenance_mut(start))
}

/// Undoes [`map`]: munmap(2). False if the kernel refuses, for example since splitting a mapping
/// would make too many.
///
/// # Safety
/// The caller owns the range, and no code uses it any more.
pub(crate) unsafe fn unmap(start: *mut c_void, bytes: usize) -> bool {
    // SAFETY: the caller guarantees that the range is its own and unused.
    unsafe { call!(libc::SYS_munmap, start, bytes) }.is_ok()
}

/// Advises the kernel about a range of memory: madvise(2).
///
/// # Safety
/// The caller owns the range. With advice that discards the contents, no code uses them any more.
pub(crate) unsafe fn advise(start: *mut c_void, bytes: usize, advice: c_int) -> Result<(), c_int> {
    // SAFETY: the caller guarantees that the range is its own, and its contents dead if discarded.
    unsafe { call!(libc::SYS_madvise, start, bytes, advice) }.map(|_| ())
}

/// Bytes of the kernel's type for a set of signals.
pub(crate) const SIGNAL_SET_BYTES: usize = size_of::<u64>();

/// Changes which signals this thread blocks: rt_sigprocmask(2). Returns those that it blocked
/// before.
pub(crate) fn change_mask(how: c_int, signals: u64) -> u64 {
    let mut before = 0_u64;
    let (new, old) = (&raw const signals, &raw mut before);
    // SAFETY: the kernel reads one set and fills the other.
    let _ = unsafe { call!(libc::SYS_rt_sigprocmask, how, new, old, SIGNAL_SET_BYTES) };
    before
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::errno::outcome;

    #[test]
    fn results_and_errors_are_told_apart() {
        assert_eq!([0, 1, usize::MAX - 4095].map(outcome), [0, 1, usize::MAX - 4095].map(Ok));
        assert_eq!([usize::MAX, usize::MAX - 4094].map(outcome), [1, 4095].map(Err));
    }

    /// Each argument arrives in its position, and `errno` stays.
    #[test]
    #[cfg(not(miri))]
    fn calls_with_none_to_six_arguments() {
        let page = 4096 * 16;
        // SAFETY: these calls return numbers or map memory of this test's own. `errno` is this
        // thread's.
        unsafe {
            *libc::__errno_location() = 4321;
            assert_eq!(call!(libc::SYS_getpid), Ok(std::process::id() as usize));
            assert_eq!(call!(libc::SYS_close, NO_FILE), Err(libc::EBADF));
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            // The offset must be a multiple of the page size, also without a file.
            let odd = call!(libc::SYS_mmap, 0_usize, page, access, flags, NO_FILE, 1_usize);
            assert_eq!(odd, Err(libc::EINVAL));
            let start = map(core::ptr::null_mut(), page, access, 0).unwrap();
            assert_eq!(start.cast::<u8>().read(), 0);
            start.cast::<u8>().write(1);
            assert_eq!(advise(start, page, libc::MADV_DONTNEED), Ok(()));
            assert_eq!(start.cast::<u8>().read(), 0);
            assert!(unmap(start, page) && !unmap(start.byte_add(1), page));
            assert_eq!(*libc::__errno_location(), 4321);
        }
    }

    #[test]
    #[cfg(not(miri))]
    fn advice_that_the_kernel_does_not_know_is_refused() {
        let bytes = 4096 * 16;
        // SAFETY: this test maps the memory itself.
        unsafe {
            let start = map(core::ptr::null_mut(), bytes, libc::PROT_READ, 0).unwrap();
            assert_eq!(advise(start, bytes, -1), Err(libc::EINVAL));
            assert!(unmap(start, bytes));
        }
    }
}
