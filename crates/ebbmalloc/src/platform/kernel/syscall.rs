//! System calls, made directly: a preloaded library may have replaced any function of the C library by one that
//! allocates, and these must not come back to the allocator. They leave `errno` alone.

use core::ffi::{c_int, c_void};

/// Makes a system call: its number, then up to six arguments, which are numbers or thin pointers. The result is
/// what the kernel returns, or the number of the error. Unsafe, as the call may do anything.
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
macro_rules! call {
    ($number:expr $(, $argument:expr)* $(,)?) => {
        $crate::platform::kernel::syscall::direct($number, [$($argument as usize),*])
    };
}

/// The same by the C library.
#[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
macro_rules! call {
    ($number:expr $(, $argument:expr)* $(,)?) => {
        $crate::platform::kernel::syscall::by_libc(|| libc::syscall($number $(, $argument)*))
    };
}

pub(crate) use call;

/// Makes a system call by the processor's instruction for it.
///
/// # Safety
/// Whatever the call asks for.
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
#[inline]
pub(crate) unsafe fn direct<const N: usize>(
    number: libc::c_long,
    arguments: [usize; N],
) -> Result<usize, c_int> {
    let mut six = [0; 6];
    six[..N].copy_from_slice(&arguments);
    let result: usize;
    // SAFETY: the caller's. The kernel changes no register but these, and nothing on the stack.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") number as usize => result,
            in("rdi") six[0],
            in("rsi") six[1],
            in("rdx") six[2],
            in("r10") six[3],
            in("r8") six[4],
            in("r9") six[5],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        core::arch::asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") six[0] => result,
            in("x1") six[1],
            in("x2") six[2],
            in("x3") six[3],
            in("x4") six[4],
            in("x5") six[5],
            options(nostack),
        );
    }
    outcome(result)
}

/// What a system call's result means: the last 4,095 numbers are errors, negated.
#[cfg_attr(
    any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))),
    allow(dead_code, reason = "the C library tells them apart there")
)]
#[inline]
fn outcome(result: usize) -> Result<usize, c_int> {
    match result as isize {
        error @ -4095..=-1 => Err(-error as c_int),
        _ => Ok(result),
    }
}

/// What `call` returns; -1 means the error that is in `errno`, which is put back.
#[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
pub(crate) fn by_libc(call: impl FnOnce() -> libc::c_long) -> Result<usize, c_int> {
    super::errno::keeping_errno(|| match call() {
        // SAFETY: the address of this thread's errno is valid while the thread lives.
        -1 => Err(unsafe { *libc::__errno_location() }),
        result => Ok(result as usize),
    })
}

/// In place of a descriptor.
const NO_FILE: c_int = -1;

/// Maps memory of no file: mmap(2).
///
/// # Safety
/// With MAP_FIXED, what is mapped there is the caller's.
pub(crate) unsafe fn map(
    address: *mut c_void,
    bytes: usize,
    access: c_int,
    flags: c_int,
) -> Result<*mut c_void, c_int> {
    let flags = flags | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: the caller's.
    let start = unsafe { call!(libc::SYS_mmap, address, bytes, access, flags, NO_FILE, 0_usize) }?;
    Ok(core::ptr::with_exposed_provenance_mut(start))
}

/// Undoes [`map`]: munmap(2). False if the kernel refuses, as where that would make too many mappings.
///
/// # Safety
/// The range is the caller's, and nobody uses it any more.
pub(crate) unsafe fn unmap(start: *mut c_void, bytes: usize) -> bool {
    // SAFETY: the caller's.
    unsafe { call!(libc::SYS_munmap, start, bytes) }.is_ok()
}

/// Tells the kernel how memory is used: madvise(2).
///
/// # Safety
/// The range is the caller's; some advice ends its contents.
pub(crate) unsafe fn advise(start: *mut c_void, bytes: usize, advice: c_int) -> Result<(), c_int> {
    // SAFETY: the caller's.
    unsafe { call!(libc::SYS_madvise, start, bytes, advice) }.map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_and_errors_are_told_apart() {
        assert_eq!([0, 1, usize::MAX - 4095].map(outcome), [0, 1, usize::MAX - 4095].map(Ok));
        assert_eq!([usize::MAX, usize::MAX - 4094].map(outcome), [1, 4095].map(Err));
    }

    /// Each argument arrives, in its place, and `errno` stays.
    #[test]
    #[cfg(not(miri))]
    fn calls_with_none_to_six_arguments() {
        let page = 4096 * 16;
        // SAFETY: calls that ask for numbers, or for memory of this test's own; this thread's errno.
        unsafe {
            *libc::__errno_location() = 4321;
            assert_eq!(call!(libc::SYS_getpid), Ok(std::process::id() as usize));
            assert_eq!(call!(libc::SYS_close, NO_FILE), Err(libc::EBADF));
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            // The offset of a mapping must be a multiple of the page size, also where there is no file.
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
        // SAFETY: memory of this test's own.
        unsafe {
            let start = map(core::ptr::null_mut(), bytes, libc::PROT_READ, 0).unwrap();
            assert_eq!(advise(start, bytes, -1), Err(libc::EINVAL));
            assert!(unmap(start, bytes));
        }
    }
}
