//! Defines `dlopen`, which forgets the flag `RTLD_DEEPBIND`.
//!
//! A module opened with that flag finds the functions of its own libraries before the program's. So
//! it calls the C library's `free`, with blocks that the program has from the `malloc` preloaded
//! here. PHP opens its modules so, and ended at its start, with this library as with all that
//! replace `malloc`. glibc does not let a library change what such a module finds: but without the
//! flag, it finds what the program does.
//!
//! The real `dlopen` looks at its return address: what it opens is searched for where the caller's
//! object says. So a jump goes on to it, not a call.

use core::ffi::c_void;
use core::sync::atomic::{AtomicPtr, Ordering};

/// The next `dlopen` behind this library's, once it was looked up.
static NEXT: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// Looks the next `dlopen` up. With a glibc before 2.34, a program may have none.
extern "C" fn look_up() -> *mut c_void {
    unsafe extern "C" {
        fn dlsym(handle: *mut c_void, symbol: *const core::ffi::c_char) -> *mut c_void;
    }
    extern "C" fn none() -> *mut c_void {
        core::ptr::null_mut()
    }
    const RTLD_NEXT: *mut c_void = core::ptr::without_provenance_mut(usize::MAX);
    // SAFETY: it takes any handle of its own, and a string that ends with zero.
    let found = unsafe { dlsym(RTLD_NEXT, c"dlopen".as_ptr()) };
    let next = if found.is_null() { none as *const () as *mut c_void } else { found };
    NEXT.store(next, Ordering::Relaxed);
    next
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
