//! Defines the functions of the C libraries: gives the engine (`crates/ebbmalloc`) the names and
//! rules of libc and C++, and nothing else.
//!
//! - `malloc`: allocation, as `malloc.h` and C23 have it
//! - `report`: the functions of `malloc.h` that report on the heap
//! - `control`: options that change while the program runs
//! - `heap`: heaps that a program makes and deletes
//! - `profile`: heap profiles
//! - `cxx`: every form of C++ operator new and delete
//! - `bytes`: memcpy, memset and bcmp for the engine itself
//!
//! `crates/capi` makes libebbmalloc.so of it, `crates/capi-static` libebbmalloc.a. They export the
//! C++ operators differently, since the two kinds of linking let programs replace these in
//! different ways. The header is `crates/capi/include/ebbmalloc.h`.

#![no_std]
// The callers are C and C++, and the contracts are those of libc and of C++.
#![allow(clippy::missing_safety_doc)]

use core::ffi::{c_char, c_int};
use engine::internals::{ENGINE, OsProcess};

mod bytes;
mod control;
pub mod cxx;
mod heap;
mod malloc;
mod profile;
mod report;

pub use engine::internals::next_function;
pub use report::Cut;

/// Defines C functions under their libc name, and under that name with the prefix `ebb_`.
macro_rules! export {
    ($($(#[$meta:meta])* fn $name:ident / $prefixed:ident
        ($($arg:ident: $ty:ty),*) $(-> $ret:ty)? $body:block)+) => {$(
        $(#[$meta])*
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $ty),*) $(-> $ret)? $body

        #[doc = concat!("As [`", stringify!($name), "`]: always ebbmalloc's, whatever is linked.")]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $prefixed($($arg: $ty),*) $(-> $ret)? $body
    )+};
}
use export;

/// Sets the calling thread's `errno`.
#[cold]
fn set_errno(value: libc::c_int) {
    // SAFETY: libc returns the valid address of this thread's `errno`.
    unsafe { *libc::__errno_location() = value }
}

/// Handles a panic: it is a bug in the engine, and ends the process.
#[cold]
pub fn panicked(info: &core::panic::PanicInfo) -> ! {
    ENGINE.broken(info)
}

// The compiled `core` refers to the routine that an unwinder asks about Rust frames. Panics abort,
// so frames have nothing to clean up, and C++ exceptions may pass (_URC_CONTINUE_UNWIND, 8). The
// symbol is hidden because Rust programs have the real one.
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

// With its feature `std`, which another member of the workspace may enable, the libc crate leaves
// linking libc to std.
#[link(name = "c")]
unsafe extern "C" {}

/// Sets the engine up, unless an earlier allocation has. So a program that allocates nothing prints
/// its statistics, too. In a program with the static library this runs before the program's own
/// constructors, whose priorities begin at 101.
#[used]
#[unsafe(link_section = ".init_array.00090")]
static START: extern "C" fn(c_int, *const *const c_char, *const *const c_char) = {
    // glibc passes these arguments; with musl they are undefined.
    extern "C" fn start(_: c_int, _: *const *const c_char, environment: *const *const c_char) {
        // SAFETY: only with glibc does this run before the C library knows the environment.
        unsafe { engine::internals::note_environment(environment) };
        malloc::keep_together();
        if ENGINE.os().objection().is_some() {
            // Else the first allocation stops the program.
            if engine::internals::has_malloc_of_others(START as usize) {
                ENGINE.os().withdraw_objection();
            }
            return;
        }
        ENGINE.start();
        if ENGINE.wants_stacks() {
            ENGINE.begin_check();
        }
    }
    start
};
