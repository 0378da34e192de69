//! Talks to the kernel: on Linux without the C library, by system calls, files, the clock and
//! waiting on a word; elsewhere by functions of the system's libraries. No function here allocates,
//! or changes `errno` or the last error.

// Lowest first: each uses only modules above it in this list.
#[cfg_attr(any(not(target_os = "linux"), ebbmalloc_posix), path = "plain_functions.rs")]
mod c_functions;
pub(crate) mod bytes;

#[cfg(unix)]
pub(crate) mod cancellation;

cfg_if! {
    if #[cfg(all(target_os = "linux", not(ebbmalloc_posix)))] {
        pub(crate) mod syscall;
        pub(crate) mod file;
        pub(crate) mod proc;
        pub(crate) mod auxiliary;
        pub(crate) mod clock;
    } else {
        #[cfg(windows)]
        pub(crate) mod windows;
    }
}

#[cfg_attr(all(unix, any(not(target_os = "linux"), ebbmalloc_posix)), path = "condition_wait.rs")]
#[cfg_attr(windows, path = "address_wait.rs")]
#[cfg_attr(loom, allow(dead_code, reason = "models park threads themselves"))]
pub(crate) mod futex;
#[cfg(loom)]
pub(crate) mod loom_park;
