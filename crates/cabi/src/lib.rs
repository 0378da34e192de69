//! The functions of the C libraries: the names and the rules of libc and of C++, nothing else.
//! What they do is the engine's (`crates/ebbmalloc`).
//!
//! - `malloc`: allocation, `malloc.h` and C23
//! - `report`: what `malloc.h` offers to look inside
//! - `heap`: heaps that a program makes and deletes
//! - `unwinder`: who called, for check mode
//! - `cxx`: every form of C++ operator new and delete
//!
//! `crates/capi` makes libebbmalloc.so of it, `crates/capi-static` libebbmalloc.a. They differ in
//! how they export the C++ operators, which the two kinds of linking let programs replace in
//! different ways. The header is `crates/capi/include/ebbmalloc.h`.

#![no_std]
// The contracts of these functions are those of libc and of C++, for callers in those languages.
#![allow(clippy::missing_safety_doc)]

use engine::internals::{ENGINE, OsProcess};

mod bytes;
pub mod cxx;
mod heap;
mod malloc;
mod report;
mod unwinder;

/// Defines C functions under their libc name and under the same name with the prefix `ebb_`.
macro_rules! export {
    ($($(#[$meta:meta])* fn $name:ident / $prefixed:ident
        ($($arg:ident: $ty:ty),*) $(-> $ret:ty)? $body:block)+) => {$(
        $(#[$meta])*
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $ty),*) $(-> $ret)? $body

        #[doc = concat!("As [`", stringify!($name), "`], whatever else is linked.")]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $prefixed($($arg: $ty),*) $(-> $ret)? $body
    )+};
}
use export;

/// Sets the calling thread's `errno`.
#[cold]
fn set_errno(value: libc::c_int) {
    // SAFETY: the address of this thread's errno is valid.
    unsafe { *libc::__errno_location() = value }
}

/// What a panic handler does: a panic is a bug in the engine, and ends the process.
#[cold]
pub fn panicked(info: &core::panic::PanicInfo) -> ! {
    ENGINE.broken(info)
}

// `core` comes compiled for unwinding and names the routine that an unwinder asks about Rust
// frames. Panics abort, so there is nothing to clean up: C++ exceptions may just pass
// (_URC_CONTINUE_UNWIND, 8). Hidden, because Rust programs have the real one.
core::arch::global_asm!(
    ".weak rust_eh_personality",
    ".hidden rust_eh_personality",
    ".type rust_eh_personality, @function",
    "rust_eh_personality:",
    #[cfg(target_arch = "x86_64")]
    "mov eax, 8",
    #[cfg(target_arch = "aarch64")]
    "mov w0, #8",
    "ret",
);

// The libc crate leaves this to std where its feature `std` is on, which another member of the
// workspace may ask for.
#[link(name = "c")]
unsafe extern "C" {}

/// Sets the engine up, if no earlier allocation has: also a program that allocates nothing gets
/// its statistics.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = {
    extern "C" fn start() {
        malloc::keep_together();
        // Nothing has been allocated here by now: the program's malloc is the sanitizer's.
        if ENGINE.os().objection().is_some() {
            ENGINE.os().withdraw_objection();
            return;
        }
        ENGINE.start();
        if ENGINE.wants_stacks() {
            unwinder::load();
            ENGINE.begin_check();
        }
    }
    start
};
