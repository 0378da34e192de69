//! Finds the calling thread's words ([`ThreadWords`]), in a thread-local variable.
//!
//! Uses neither `std` nor Rust's thread-local variables, whose access costs a call in a shared
//! library.

use core::sync::atomic::Ordering;

use super::thread_words::ThreadWords;
use crate::platform::arch::{IS_KNOWN, thread_variable};
use crate::platform::kernel::syscall::call;

/// The symbol of the words. It includes the version: a program may contain several versions of
/// this crate.
macro_rules! symbol {
    () => {
        concat!("__ebbmalloc_thread_", env!("CARGO_PKG_VERSION"))
    };
}

// The words, a thread variable. The loader sets it up, all zero.
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(any(miri, loom))))]
core::arch::global_asm!(
    ".pushsection .tbss.ebbmalloc, \"awT\", @nobits",
    concat!(".globl ", symbol!()),
    concat!(".hidden ", symbol!()),
    concat!(".type ", symbol!(), ", @object"),
    concat!(".size ", symbol!(), ", {size}"),
    ".balign 16",
    concat!(symbol!(), ":"),
    ".zero {size}",
    ".popsection",
    size = const size_of::<ThreadWords>(),
);

/// The address of the calling thread's words. Where threads have none of their own, all share some.
/// Nothing is stored in these, as threads cannot be watched.
#[inline(always)]
pub(super) fn words() -> *const ThreadWords {
    static NONE: ThreadWords = ThreadWords::new();
    if IS_KNOWN { thread_variable!(symbol!()).cast() } else { &raw const NONE }
}

/// The kernel's number of the calling thread; 0 if the kernel refuses to tell. Each thread makes
/// the system call once: a filter that it installs later may kill for gettid(2).
pub(super) fn number() -> u32 {
    // SAFETY: the words live as long as the thread.
    let cached = unsafe { &(*words()).number };
    let number = cached.load(Ordering::Relaxed);
    if number != 0 {
        return number;
    }
    // SAFETY: the call touches no memory.
    let number = unsafe { call!(libc::SYS_gettid) }.map_or(0, |number| number as u32);
    if IS_KNOWN {
        cached.store(number, Ordering::Relaxed);
    }
    number
}

#[cfg(all(test, not(any(miri, loom))))]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_a_thread_is_the_kernel_s() {
        // SAFETY: gettid(2) has no conditions.
        let kernel = || unsafe { libc::gettid() } as u32;
        let other = std::thread::spawn(move || assert_eq!([number(), number()], [kernel(); 2]));
        assert_eq!([number(), number()], [kernel(); 2]);
        other.join().unwrap();
    }
}
