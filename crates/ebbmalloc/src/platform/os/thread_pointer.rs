//! What tells threads apart, without a call.

/// The thread pointer: a number that no other thread alive has.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
pub(super) fn thread_pointer() -> usize {
    let pointer;
    // SAFETY: the word that the thread pointer points to is its own address (the ABI has it so).
    unsafe {
        core::arch::asm!(
            "mov {}, qword ptr fs:[0]",
            out(reg) pointer,
            options(pure, readonly, nostack, preserves_flags),
        );
    }
    pointer
}

/// As above.
#[cfg(all(target_arch = "aarch64", not(miri)))]
#[inline]
pub(super) fn thread_pointer() -> usize {
    let pointer;
    // SAFETY: reads a register.
    unsafe {
        core::arch::asm!(
            "mrs {}, tpidr_el0",
            out(reg) pointer,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    pointer
}

/// As above, by the C library.
#[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
pub(super) fn thread_pointer() -> usize {
    // SAFETY: asks for a number.
    unsafe { libc::pthread_self() as usize }
}
