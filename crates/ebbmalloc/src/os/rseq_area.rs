//! Where the C library registered each thread for restartable sequences, by the symbols that
//! glibc has since 2.35 (its manual, "Restartable Sequences").

/// Offset of the area from the thread pointer and its size in bytes, 0 where registering failed;
/// or why there is none that could be used.
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(super) fn registered_by_libc() -> Result<(isize, usize), &'static str> {
    let (offset, size): (*const isize, *const u32);
    // SAFETY: reads two addresses from the global offset table; a weak symbol that nobody
    // defines (musl, glibc before 2.35) has address 0.
    unsafe {
        core::arch::asm!(
            ".weak __rseq_offset",
            ".weak __rseq_size",
            "mov {offset}, qword ptr [rip + __rseq_offset@GOTPCREL]",
            "mov {size}, qword ptr [rip + __rseq_size@GOTPCREL]",
            offset = out(reg) offset,
            size = out(reg) size,
            options(nomem, nostack, preserves_flags),
        );
        if offset.is_null() || size.is_null() {
            return Err("the C library has no rseq support");
        }
        Ok((*offset, *size as usize))
    }
}

/// There are no sequences for this architecture yet (`rseq/`).
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
pub(super) fn registered_by_libc() -> Result<(isize, usize), &'static str> {
    Err("no restartable sequences for this architecture yet")
}
