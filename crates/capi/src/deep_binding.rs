//! Defines `dlopen` and `dlmopen`, which forget the flag `RTLD_DEEPBIND`.
//!
//! A module opened with that flag finds the functions of its own libraries before the program's. So
//! it calls the C library's `free`, with blocks that the program has from the `malloc` preloaded
//! here. PHP opens its modules so, and crashed at its start, with this library as with all that
//! replace `malloc`. Without the flag, a module finds what the program does. In another namespace
//! (`dlmopen`) modules have a C library of their own, and keep the flag.
//!
//! The real functions use their return address to choose the caller's RUNPATH and namespace. So a
//! jump goes on to them, not a call.

use core::ffi::{CStr, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

/// Defines a function that takes flags, in 64-bit machines' registers for arguments. It runs the
/// given instructions, which clear the flag, and jumps to the next function of its name, which is
/// looked up once.
macro_rules! forget_deep_binding {
    ($name:ident, x86_64: [$($x86_64:literal)*], aarch64: [$($aarch64:literal)*]) => {
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        extern "C" fn $name() {
            static NEXT: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

            extern "C" fn look_up() -> *mut c_void {
                look_up_next(concat!(stringify!($name), "\0"), &NEXT)
            }

            #[cfg(target_arch = "x86_64")]
            core::arch::naked_asm!(
                $($x86_64,)*
                "mov rax, qword ptr [rip + {next}]",
                "test rax, rax",
                "jnz 2f",
                "push rdi",
                "push rsi",
                "push rdx",
                "call {look_up}",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                "2:",
                "jmp rax",
                next = sym NEXT,
                look_up = sym look_up,
            );
            #[cfg(target_arch = "aarch64")]
            core::arch::naked_asm!(
                $($aarch64,)*
                "adrp x16, {next}",
                "ldr x16, [x16, :lo12:{next}]",
                "cbnz x16, 2f",
                "stp x0, x1, [sp, #-32]!",
                "stp x2, x30, [sp, #16]",
                "bl {look_up}",
                "mov x16, x0",
                "ldp x2, x30, [sp, #16]",
                "ldp x0, x1, [sp], #32",
                "2:",
                "br x16",
                next = sym NEXT,
                look_up = sym look_up,
            );
        }
    };
}

// dlopen(path, flags)
forget_deep_binding!(dlopen, x86_64: ["and esi, ~8"], aarch64: ["and w1, w1, #0xfffffff7"]);
// dlmopen(namespace, path, flags); the program's namespace is 0.
forget_deep_binding!(
    dlmopen,
    x86_64: ["test rdi, rdi" "jnz 3f" "and edx, ~8" "3:"],
    aarch64: ["cbnz x0, 3f" "and w2, w2, #0xfffffff7" "3:"]
);

/// Looks a function up, and stores its address in `next`. A program may have none.
fn look_up_next(name: &str, next: &AtomicPtr<c_void>) -> *mut c_void {
    extern "C" fn refuse() -> *mut c_void {
        core::ptr::null_mut()
    }
    let found = CStr::from_bytes_with_nul(name.as_bytes()).ok().and_then(cabi::next_function);
    let Some(found) = found else { return refuse as *const () as *mut c_void };
    next.store(found.as_ptr(), Ordering::Relaxed);
    found.as_ptr()
}
