//! Reads the thread pointer, which tells threads apart without a call.

/// The thread pointer: a number that differs from those of all other living threads.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
pub(crate) fn thread_pointer() -> usize {
    let pointer;
    // SAFETY: by the ABI, the thread pointer points to a word that contains its own address.
    unsafe {
        core::arch::asm!(
            "mov {}, qword ptr fs:[0]",
            out(reg) pointer,
            options(pure, readonly, nostack, preserves_flags),
        );
    }
    pointer
}

/// The thread pointer: a number that differs from those of all other living threads.
#[cfg(all(target_arch = "aarch64", not(miri)))]
#[inline]
pub(crate) fn thread_pointer() -> usize {
    let pointer;
    // SAFETY: reads a register, which has no conditions.
    unsafe {
        core::arch::asm!(
            "mrs {}, tpidr_el0",
            out(reg) pointer,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    pointer
}

/// A number that differs from those of all other living threads, from the C library.
#[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
pub(crate) fn thread_pointer() -> usize {
    // SAFETY: pthread_self(3) has no conditions.
    unsafe { libc::pthread_self() as usize }
}
