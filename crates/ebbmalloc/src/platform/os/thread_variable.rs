//! Finds thread-local variables, without `std` and in stable Rust.
//!
//! A library that a program opens late may find no room at a fixed distance from the thread
//! pointer. glibc sets some 1.6 KiB aside for all such libraries, and musl none. So the crate uses
//! descriptors (TLSDESC), which both C libraries fill as they load a library. In a program the
//! linker knows the distance, and replaces the call by it. The engine's C libraries (feature
//! `malloc`) load with the program, and read the distance from a table ("initial-exec"):
//! decisions/0035.
//!
//! The assembly (`platform/arch/`) declares vector registers as clobbered. Where glibc first makes
//! room for a thread, which calls malloc, its descriptors preserve the other registers only (glibc
//! bug 31372, fixed in 2.40).

use crate::platform::arch::{IS_MALLOC, weak};
use crate::platform::kernel::auxiliary;

/// Whether a variable certainly has the same distance from the thread pointer in all threads. That
/// holds in a library that was loaded with the program as its `malloc`, and in the program itself.
pub(super) fn is_static() -> bool {
    IS_MALLOC || is_program()
}

/// Whether this code is part of the program, and not of a library. The kernel tells where the
/// program's headers lie.
fn is_program() -> bool {
    /// Offset of the field of an ELF header that has the distance to the program headers.
    const PHOFF: usize = 32;
    let header = weak!("__ehdr_start");
    if header.is_null() {
        return false;
    }
    // SAFETY: the linker defines the symbol as this file's ELF header, if that is loaded at all.
    let distance = unsafe { header.add(PHOFF).cast::<usize>().read() };
    header.addr() + distance == auxiliary::value(libc::AT_PHDR)
}
