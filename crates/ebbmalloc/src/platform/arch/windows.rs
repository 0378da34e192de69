//! The parts for Windows on x86-64 that `mod.rs` lists: there is a thread's block at `gs`, the TEB.

use core::arch::asm;

/// The address of the thread's block.
#[inline]
pub(crate) fn thread_pointer() -> usize {
    const SELF: usize = 0x30;
    let pointer;
    // SAFETY: the field of each thread's block that holds the block's own address.
    unsafe {
        asm!(
            "mov {}, qword ptr gs:[{}]",
            out(reg) pointer,
            const SELF,
            options(pure, readonly, nostack, preserves_flags),
        );
    }
    pointer
}

macro_rules! thread_variable {
    ($symbol:expr) => {{
        let address: *mut u8;
        // SAFETY: the thread's block has the address of a table with an entry for each loaded file
        // that has thread variables; the C runtime's `_tls_index` is the number of this file's.
        // None of it changes while the thread lives.
        unsafe {
            core::arch::asm!(
                "mov {index:e}, dword ptr [rip + _tls_index]",
                "mov {address}, qword ptr gs:[0x58]",
                "mov {address}, qword ptr [{address} + 8 * {index}]",
                concat!("lea {address}, [{address} + ", $symbol, "@SECREL32]"),
                address = out(reg) address,
                index = out(reg) _,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        address
    }};
}
pub(crate) use thread_variable;

/// Ends the process at once, and tells Windows that it failed (`__fastfail`).
pub(crate) fn fail_fast() -> ! {
    const FATAL_APP_EXIT: u32 = 7;
    // SAFETY: the process is meant to end.
    unsafe { asm!("int 0x29", in("ecx") FATAL_APP_EXIT, options(noreturn, nostack)) }
}
