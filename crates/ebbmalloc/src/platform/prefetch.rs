//! Prefetch hints to the processor.

#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
use core::arch::asm;

/// Fetches the cache line at this address for writing, which takes it away from other CPUs. Does
/// nothing where nothing is mapped.
#[inline(always)]
pub(crate) fn to_write(address: *mut u8) {
    // SAFETY: neither instruction changes registers, flags or memory, or faults, whatever the
    // address. x86-64 processors without PREFETCHW run it as a no-op.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    unsafe {
        asm!("prefetchw [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    unsafe {
        asm!("prfm pstl1keep, [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = address;
}
