//! The parts for x86-64 that `mod.rs` lists.

use core::arch::asm;
use core::ffi::{c_int, c_void};

use crate::platform::errno::outcome;

pub(crate) const IS_KNOWN: bool = true;

#[inline]
pub(crate) fn thread_pointer() -> usize {
    let pointer;
    // SAFETY: by the ABI, the thread pointer points to a word that contains its own address.
    unsafe {
        asm!(
            "mov {}, qword ptr fs:[0]",
            out(reg) pointer,
            options(pure, readonly, nostack, preserves_flags),
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
                concat!("mov {address}, qword ptr [rip + ", $name, "@GOTPCREL]"),
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
        // SAFETY: the thread pointer points to a word that contains its own address. The distance
        // comes from the global offset table, or from the descriptor's function. Both stay the
        // same while the thread lives. That function writes only memory of the C library's.
        unsafe {
            if $crate::platform::arch::IS_MALLOC {
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
pub(crate) use thread_variable;

include!("direct.rs");

/// Makes a system call by the processor's instruction for it. Returns what the kernel returns.
///
/// # Safety
/// The arguments meet the contract of that system call.
#[inline]
unsafe fn system_call(number: libc::c_long, six: [usize; 6]) -> usize {
    let result: usize;
    // SAFETY: the caller guarantees the call's own contract. The kernel changes only the registers
    // named here, and nothing on the stack.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as usize => result,
            in("rdi") six[0],
            in("rsi") six[1],
            in("rdx") six[2],
            in("r10") six[3],
            in("r8") six[4],
            in("r9") six[5],
            lateout("rcx") _,
            lateout("r11") _,
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
            "mov {address}, qword ptr [rip + __libc_stack_end@GOTPCREL]",
            address = out(reg) _,
            options(readonly, nostack, preserves_flags),
        );
    }
}

/// # Safety
/// The kernel passed the context to a signal handler.
pub(crate) unsafe fn instruction(context: *const c_void) -> usize {
    // SAFETY: the caller guarantees a context of the kernel's.
    unsafe {
        (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs[libc::REG_RIP as usize] as usize
    }
}

include!("other_stack.rs");

define_call_on!(
    "push rbp",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbp, -16",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    "mov rsp, rdi",
    "mov rax, rsi",
    "mov rdi, rdx",
    "mov rsi, rcx",
    "call rax",
    "mov rsp, rbp",
    "pop rbp",
    ".cfi_def_cfa rsp, 8",
    "ret",
);
