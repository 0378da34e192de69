//! Defines `dlopen`, which forgets the flag `RTLD_DEEPBIND`.
//!
//! A module opened with that flag finds the functions of its own libraries before the program's. So
//! it calls the C library's `free`, with blocks that the program has from the `malloc` preloaded
//! here. PHP opens its modules so, and crashed at its start, with this library as with all that
//! replace `malloc`. Without the flag, a module finds what the program does.
//!
//! The real `dlopen` uses its return address to choose the caller's RUNPATH and namespace. So a
//! jump goes on to it, not a call.

use core::ffi::c_void;
use core::sync::atomic::{AtomicPtr, Ordering};

/// The next `dlopen` behind this library's, once it was looked up.
static NEXT: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// Looks the next `dlopen` up.
extern "C" fn look_up() -> *mut c_void {
    extern "C" fn refuse() -> *mut c_void {
        core::ptr::null_mut()
    }
    match cabi::next_function(c"dlopen") {
        Some(next) => {
            NEXT.store(next.as_ptr(), Ordering::Relaxed);
            next.as_ptr()
        }
        None => refuse as *const () as *mut c_void,
    }
}

/// As `dlopen` of the C library, without `RTLD_DEEPBIND` (8).
#[unsafe(naked)]
#[unsafe(no_mangle)]
extern "C" fn dlopen() {
    #[cfg(target_arch = "x86_64")]
    core::arch::naked_asm!(
        "and esi, ~8",
        "mov rax, qword ptr [rip + {next}]",
        "test rax, rax",
        "jnz 2f",
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "call {look_up}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "2:",
        "jmp rax",
        next = sym NEXT,
        look_up = sym look_up,
    );
    #[cfg(target_arch = "aarch64")]
    core::arch::naked_asm!(
        "and w1, w1, #0xfffffff7",
        "adrp x16, {next}",
        "ldr x16, [x16, :lo12:{next}]",
        "cbnz x16, 2f",
        "stp x0, x1, [sp, #-32]!",
        "str x30, [sp, #16]",
        "bl {look_up}",
        "mov x16, x0",
        "ldr x30, [sp, #16]",
        "ldp x0, x1, [sp], #32",
        "2:",
        "br x16",
        next = sym NEXT,
        look_up = sym look_up,
    );
}
