//! Hints to the processor.

#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
use core::arch::asm;

/// The line at this address will soon be written to: it is fetched from wherever it is, and taken away from other CPUs.
/// Nothing happens where nothing is mapped.
#[inline(always)]
pub(crate) fn to_write(address: *mut u8) {
    // SAFETY: neither changes registers, flags or memory, nor faults, whatever the address. Processors
    // for x86-64 that lack the first do nothing.
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
