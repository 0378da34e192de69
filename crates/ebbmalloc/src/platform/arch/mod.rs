//! Hides the differences between processors, in one file for each. Restartable sequences
//! (`frontend/rseq`) and the unwinder's registers (`os/unwind/registers.rs`) are elsewhere.
//! `windows.rs` has what Windows needs of these, on x86-64, and `posix.rs` what other systems need.
//!
//! - `IS_KNOWN`: whether this build has thread variables of its own and restartable sequences.
//! - `thread_pointer`: a number that differs from those of all other living threads.
//! - `weak!`: the address of a symbol that some C libraries have and others lack; null if the
//!   process has none. It is the weak symbol's entry in the global offset table.
//! - `thread_variable!`: the address of the calling thread's variable of this name
//!   (`os/thread_variable.rs`).
//! - `call!`: makes a system call: its number, then up to six arguments, numbers or thin pointers.
//!   Returns the kernel's result, or the number of the error. Unsafe, as the call may do anything.
//! - `name_loader`: makes the linker look for symbols in the dynamic loader, where glibc defines
//!   those of rseq. mold takes a weak symbol from a library only if the program names another
//!   symbol of it.
//! - `call_on`: calls a function on another stack.
//! - `instruction`: the address of the instruction that a signal interrupted; 0 if it is unknown.

#[cfg_attr(windows, path = "windows.rs")]
#[cfg_attr(all(unix, any(not(target_os = "linux"), ebbmalloc_posix)), path = "posix.rs")]
#[cfg_attr(
    all(
        target_os = "linux",
        not(ebbmalloc_posix),
        any(miri, loom, not(any(target_arch = "x86_64", target_arch = "aarch64")))
    ),
    path = "other.rs"
)]
#[cfg_attr(
    all(target_os = "linux", target_arch = "x86_64", not(any(ebbmalloc_posix, miri, loom))),
    path = "x86_64.rs"
)]
#[cfg_attr(
    all(target_os = "linux", target_arch = "aarch64", not(any(ebbmalloc_posix, miri, loom))),
    path = "aarch64.rs"
)]
mod processor;
pub(crate) use processor::*;

/// Whether this engine serves the `malloc` of its process, so that it was loaded with the program.
#[cfg(all(target_os = "linux", not(ebbmalloc_posix)))]
pub(crate) const IS_MALLOC: bool = cfg!(feature = "malloc");
