//! Tells programs without a C library: the Zig package has some, and defines the functions of one
//! that the engine needs (`zig/without_libc.zig`).

use core::mem;

use crate::platform::arch::weak;

/// In a program without a C library, the function that prepares the environment and the variables
/// of the first thread. Constructors call it before the engine starts.
pub(super) fn without_c_library() -> Option<extern "C" fn()> {
    let begin = weak!("ebb_begin_without_c_library");
    // SAFETY: the address is null, which is `None`, or that of the package's function, which has
    // this type.
    unsafe { mem::transmute::<*const u8, Option<extern "C" fn()>>(begin) }
}
