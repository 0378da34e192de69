//! Finds thread-local variables, without `std` and in stable Rust.
//!
//! A library that a program opens late may find no room at a fixed distance from the thread
//! pointer. glibc sets some 1.6 KiB aside for all such libraries, and musl none. So the crate uses
//! descriptors (TLSDESC), which both C libraries fill as they load a library. In a program the
//! linker knows the distance, and replaces the call by it. The engine's C libraries (feature
//! `malloc`) load with the program, and read the distance from a table ("initial-exec"):
//! decisions/0035.

use crate::platform::kernel::auxiliary;
use crate::platform::kernel::weak::weak;

/// Whether this engine serves the `malloc` of its process, so that it was loaded with the program.
pub(super) const IS_MALLOC: bool = cfg!(feature = "malloc");

/// The address of the calling thread's variable of this name.
///
/// The assembly declares vector registers as clobbered. Where glibc first makes room for a thread,
/// which calls malloc, its descriptors preserve the other registers only (glibc bug 31372, fixed
/// in 2.40).
#[cfg(all(target_arch = "x86_64", not(any(miri, loom))))]
macro_rules! thread_variable {
    ($symbol:expr) => {{
        let address: *mut u8;
        // SAFETY: the thread pointer points to a word that contains its own address. The distance
        // comes from the global offset table, or from the descriptor's function. Both stay the
        // same while the thread lives. That function writes only memory of the C library's.
        unsafe {
            if $crate::platform::os::thread_variable::IS_MALLOC {
                core::arch::asm!(
                    "mov {address}, qword ptr fs:[0]",
                    concat!("add {address}, qword ptr [rip + ", $symbol, "@GOTTPOFF]"),
                    address = out(reg) address,
                    options(pure, nomem, nostack),
                );
            } else {
                core::arch::asm!(
                    concat!("leaq ", $symbol, "@TLSDESC(%rip), %rax"),
                    concat!("callq *", $symbol, "@TLSCALL(%rax)"),
                    "addq %fs:0, %rax",
                    out("rax") address,
                    out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
                    out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
                    out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
                    out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
                    out("k1") _, out("k2") _, out("k3") _, out("k4") _,
                    out("k5") _, out("k6") _, out("k7") _,
                    out("st(0)") _, out("st(1)") _, out("st(2)") _, out("st(3)") _,
                    out("st(4)") _, out("st(5)") _, out("st(6)") _, out("st(7)") _,
                    options(att_syntax, pure, nomem),
                );
            }
        }
        address
    }};
}

/// The address of the calling thread's variable of this name.
#[cfg(all(target_arch = "aarch64", not(any(miri, loom))))]
macro_rules! thread_variable {
    ($symbol:expr) => {{
        let address: *mut u8;
        // SAFETY: a register holds the thread pointer. The distance comes from the global offset
        // table, or from the descriptor's function. Both stay the same while the thread lives.
        // That function writes only memory of the C library's.
        unsafe {
            if $crate::platform::os::thread_variable::IS_MALLOC {
                core::arch::asm!(
                    concat!("adrp {distance}, :gottprel:", $symbol),
                    concat!("ldr {distance}, [{distance}, :gottprel_lo12:", $symbol, "]"),
                    "mrs {address}, tpidr_el0",
                    "add {address}, {address}, {distance}",
                    address = out(reg) address,
                    distance = out(reg) _,
                    options(pure, nomem, nostack),
                );
            } else {
                core::arch::asm!(
                    concat!("adrp x0, :tlsdesc:", $symbol),
                    concat!("ldr x1, [x0, :tlsdesc_lo12:", $symbol, "]"),
                    concat!("add x0, x0, :tlsdesc_lo12:", $symbol),
                    concat!(".tlsdesccall ", $symbol),
                    "blr x1",
                    "mrs x1, tpidr_el0",
                    "add x0, x0, x1",
                    out("x0") address,
                    out("x1") _,
                    out("lr") _,
                    out("v0") _, out("v1") _, out("v2") _, out("v3") _,
                    out("v4") _, out("v5") _, out("v6") _, out("v7") _,
                    out("v8") _, out("v9") _, out("v10") _, out("v11") _,
                    out("v12") _, out("v13") _, out("v14") _, out("v15") _,
                    out("v16") _, out("v17") _, out("v18") _, out("v19") _,
                    out("v20") _, out("v21") _, out("v22") _, out("v23") _,
                    out("v24") _, out("v25") _, out("v26") _, out("v27") _,
                    out("v28") _, out("v29") _, out("v30") _, out("v31") _,
                    options(pure, nomem),
                );
            }
        }
        address
    }};
}

#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(any(miri, loom))))]
pub(super) use thread_variable;

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
