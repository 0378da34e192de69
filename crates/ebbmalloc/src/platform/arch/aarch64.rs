//! The parts for AArch64 that `mod.rs` lists.

use core::arch::asm;
use core::ffi::{c_int, c_void};

use crate::platform::errno::outcome;

pub(crate) const IS_KNOWN: bool = true;

#[inline]
pub(crate) fn thread_pointer() -> usize {
    let pointer;
    // SAFETY: reads a register, which has no conditions.
    unsafe {
        asm!(
            "mrs {}, tpidr_el0",
            out(reg) pointer,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    pointer
}

macro_rules! weak {
    ($name:literal) => {{
        let address: *const u8;
        // SAFETY: reads an entry of the table, which the linker or the loader filled.
        unsafe {
            core::arch::asm!(
                concat!(".weak ", $name),
                concat!("adrp {address}, :got:", $name),
                concat!("ldr {address}, [{address}, :got_lo12:", $name, "]"),
                address = out(reg) address,
                options(pure, readonly, nostack, preserves_flags),
            );
        }
        address
    }};
}
pub(crate) use weak;

macro_rules! thread_variable {
    ($symbol:expr) => {{
        let address: *mut u8;
        // SAFETY: a register holds the thread pointer. The distance comes from the global offset
        // table, or from the descriptor's function. Both stay the same while the thread lives.
        // That function writes only memory of the C library's.
        unsafe {
            if $crate::platform::arch::IS_MALLOC {
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
pub(crate) use thread_variable;

include!("direct.rs");

/// Makes a system call by the processor's instruction for it. Returns what the kernel returns.
///
/// # Safety
/// The arguments meet the contract of that system call.
#[inline]
unsafe fn system_call(number: libc::c_long, six: [usize; 6]) -> usize {
    let result: usize;
    // SAFETY: the caller guarantees the call's own contract. The kernel changes only x0.
    unsafe {
        asm!(
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
    result
}

pub(crate) fn name_loader() {
    // SAFETY: reads an entry of the global offset table, which the linker or the loader filled.
    #[cfg(target_env = "gnu")]
    unsafe {
        asm!(
            "adrp {address}, :got:__libc_stack_end",
            "ldr {address}, [{address}, :got_lo12:__libc_stack_end]",
            address = out(reg) _,
            options(readonly, nostack, preserves_flags),
        );
    }
}

/// # Safety
/// The kernel passed the context to a signal handler.
pub(crate) unsafe fn instruction(context: *const c_void) -> usize {
    // SAFETY: the caller guarantees a context of the kernel's.
    unsafe { (*context.cast::<libc::ucontext_t>()).uc_mcontext.pc as usize }
}

include!("other_stack.rs");

define_call_on!(
    "stp x29, x30, [sp, -16]!",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset x29, -16",
    ".cfi_offset x30, -8",
    "mov x29, sp",
    ".cfi_def_cfa_register x29",
    "mov sp, x0",
    "mov x4, x1",
    "mov x0, x2",
    "mov x1, x3",
    "blr x4",
    "mov sp, x29",
    "ldp x29, x30, [sp], 16",
    ".cfi_def_cfa sp, 0",
    "ret",
);
