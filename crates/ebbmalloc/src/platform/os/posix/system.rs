//! Asks macOS, FreeBSD and Android what each tells in a way of its own.

use core::ffi::c_char;

#[cfg(any(target_os = "macos", target_os = "freebsd"))]
mod bsd {
    unsafe extern "C" {
        fn pthread_main_np() -> i32;
    }

    /// Whether the calling thread is the first of the process.
    pub(crate) fn is_first() -> bool {
        // SAFETY: the call has no conditions. It returns -1 before threads can be told apart.
        unsafe { pthread_main_np() != 0 }
    }

    /// Whether the process has more rights than the user who started it.
    pub(crate) fn is_privileged() -> bool {
        // SAFETY: the call has no conditions.
        unsafe { libc::issetugid() != 0 }
    }

    /// Whether the process certainly has one thread only.
    #[cfg(target_os = "macos")]
    pub(crate) fn is_single() -> bool {
        unsafe extern "C" {
            fn pthread_is_threaded_np() -> i32;
        }
        // SAFETY: the call has no conditions.
        unsafe { pthread_is_threaded_np() == 0 }
    }

    /// Whether the process certainly has one thread only.
    #[cfg(target_os = "freebsd")]
    pub(crate) fn is_single() -> bool {
        unsafe extern "C" {
            static __isthreaded: i32;
        }
        // SAFETY: the C library's variable, which may change at any time.
        unsafe { (&raw const __isthreaded).read_volatile() == 0 }
    }
}
#[cfg(any(target_os = "macos", target_os = "freebsd"))]
pub(super) use bsd::{is_first, is_privileged, is_single};

#[cfg(not(any(target_os = "macos", target_os = "freebsd")))]
mod kernel_of_linux {
    /// Whether the calling thread is the first of the process.
    pub(crate) fn is_first() -> bool {
        // SAFETY: the calls have no conditions.
        unsafe { libc::gettid() == libc::getpid() }
    }

    /// Whether the process has more rights than the user who started it.
    pub(crate) fn is_privileged() -> bool {
        // SAFETY: the call takes any key.
        unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
    }

    /// Whether the process certainly has one thread only: bionic does not tell.
    pub(crate) fn is_single() -> bool {
        false
    }
}
#[cfg(not(any(target_os = "macos", target_os = "freebsd")))]
pub(super) use kernel_of_linux::{is_first, is_privileged, is_single};

/// The system's number of the calling thread, cut to 32 bits.
pub(super) fn thread_number() -> u32 {
    #[cfg(target_os = "macos")]
    {
        let mut number = 0;
        // SAFETY: the call fills the number. 0 means the calling thread.
        unsafe { libc::pthread_threadid_np(0, &mut number) };
        number as u32
    }
    // SAFETY: the call has no conditions.
    #[cfg(target_os = "freebsd")]
    unsafe {
        libc::pthread_getthreadid_np() as u32
    }
    // SAFETY: the call has no conditions.
    #[cfg(not(any(target_os = "macos", target_os = "freebsd")))]
    unsafe {
        libc::gettid() as u32
    }
}

/// The list of environment variables, which ends in a null pointer; null before there is one.
pub(super) fn environment() -> *const *const c_char {
    #[cfg(target_os = "macos")]
    // SAFETY: the call returns the address of the list, which is there from the start.
    unsafe {
        libc::_NSGetEnviron().cast::<*const *const c_char>().read()
    }
    #[cfg(not(target_os = "macos"))]
    {
        unsafe extern "C" {
            static environ: *const *const c_char;
        }
        // SAFETY: only the pointer is read.
        unsafe { environ }
    }
}

/// The name of the program; null if it is unknown.
pub(super) fn program() -> *const c_char {
    #[cfg(target_os = "linux")]
    unsafe extern "C" {
        static program_invocation_name: *const c_char;
    }
    #[cfg(target_os = "linux")]
    // SAFETY: only the pointer is read.
    unsafe {
        program_invocation_name
    }
    #[cfg(not(target_os = "linux"))]
    unsafe extern "C" {
        fn getprogname() -> *const c_char;
    }
    #[cfg(not(target_os = "linux"))]
    // SAFETY: the call has no conditions.
    unsafe {
        getprogname()
    }
}

/// Bytes in the unit by which getrusage(2) tells the peak of resident memory.
pub(super) const PEAK_UNIT_BYTES: u64 = if cfg!(target_os = "macos") { 1 } else { 1024 };
