//! Maps memory at addresses that the engine chooses: mmap(2), munmap(2), madvise(2).
//!
//! A process has T bytes of addresses (128 TiB on x86-64). The kernel puts the program at two
//! thirds of T. The stack, and mappings at addresses of the kernel's choice, lie at the top. Other
//! runtimes prefer the bottom. So the engine's region lies between a quarter and five eighths of
//! T, and its other memory in the eighth below a quarter. Some sanitizers reserve both parts for
//! themselves: then all of it lies right below the kernel's mappings.

use core::ffi::c_void;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicUsize, Ordering};

use super::interface::Refusal;
use super::sanitizer::divides_addresses;
use crate::platform::kernel::auxiliary::page_size;
use crate::platform::kernel::clock;
use crate::platform::kernel::syscall::{advise, call, map, unmap};

/// Bytes of which chosen addresses are a multiple, so that page tables and huge pages fit.
const GRANULE: usize = 2 << 20;
/// If a commit of this many bytes or more fails with EEXIST, it is tried at an address of the
/// kernel's choice. Only if that works does the heap give up the addresses.
const PROBE_MIN_BYTES: usize = 64 << 20;
/// Attempts from this one on choose addresses right below the kernel's mappings.
const UPPER_FROM: u32 = 4;

/// Bytes of the process's address space, a power of two. The stack lies at its end, and libraries
/// not far below.
fn space() -> usize {
    let on_the_stack = 0_u8;
    let highest = ptr::from_ref(&on_the_stack).addr().max(ptr::from_ref(&CALLS).addr());
    highest.next_power_of_two()
}

/// Implements [`super::interface::OsMemory::address_space`].
pub(super) fn address_space() -> usize {
    space() / 4
}

/// Implements [`super::interface::OsMemory::addresses`].
pub(super) fn addresses(bytes: usize, align: usize, attempt: u32) -> Option<NonNull<u8>> {
    let space = space();
    // The most bytes of a request, and the window of starts: its first address and its bytes.
    let (max_bytes, window, window_bytes) = if attempt >= UPPER_FROM || divides_addresses() {
        (space / 256, space - space / 256 * 3, space / 256)
    } else if bytes > space / 64 {
        (space / 4 + space / 64, space / 4, space / 8)
    } else {
        (space / 64, space / 8, space / 8 - space / 64)
    };
    let granule = align.max(GRANULE);
    let start = window.next_multiple_of(granule) + spread() % (window_bytes / granule) * granule;
    (bytes <= max_bytes).then(|| NonNull::new(ptr::with_exposed_provenance_mut(start)))?
}

/// The number of calls of [`spread`].
static CALLS: AtomicUsize = AtomicUsize::new(0);

/// A different number for each call, as random as the addresses that the kernel chose for this
/// process. So it takes no system call, and repeats where those addresses do, as under a debugger.
fn spread() -> usize {
    let nth = CALLS.fetch_add(1, Ordering::Relaxed);
    let on_the_stack = 0_u8;
    // Differs between copies of the engine in one process.
    let copy = ptr::from_ref(&CALLS).addr();
    let mut bits = (copy as u64).rotate_left(32) ^ ptr::from_ref(&on_the_stack).addr() as u64;
    bits = bits.wrapping_add(nth as u64);
    // The finalizer of MurmurHash3, by Austin Appleby: each bit of the input changes half of all
    // bits.
    bits = (bits ^ (bits >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    bits = (bits ^ (bits >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    (bits ^ (bits >> 33)) as usize
}

/// Implements [`super::interface::OsMemory::commit`].
///
/// # Safety
/// The range was chosen and is not committed.
pub(super) unsafe fn commit(start: *mut c_void, bytes: usize) -> Result<(), Refusal> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: MAP_FIXED_NOREPLACE never replaces a mapping.
    match unsafe { map(start, bytes, access, libc::MAP_FIXED_NOREPLACE) } {
        Ok(mapped) if mapped == start => {
            // Against huge pages: decisions/0008. Fails if the kernel has none.
            // SAFETY: the range was just mapped for the engine. The advice changes no contents.
            let _ = unsafe { advise(start, bytes, libc::MADV_NOHUGEPAGE) };
            Ok(())
        }
        Ok(elsewhere) => {
            // Before Linux 4.17 the address is only a hint.
            // SAFETY: the range was just mapped, and no code knows it.
            unsafe { unmap(elsewhere, bytes) };
            Err(Refusal::Addresses)
        }
        Err(libc::EEXIST) if bytes < PROBE_MIN_BYTES || could_map(bytes) => Err(Refusal::Addresses),
        Err(_) => Err(Refusal::Memory),
    }
}

/// Whether the kernel can map `bytes` bytes at an address of its choice. At a chosen address it
/// reports EEXIST before ENOMEM.
fn could_map(bytes: usize) -> bool {
    // SAFETY: this maps new memory, and unmaps it before any code knows it.
    unsafe {
        let mapped = map(ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, 0);
        mapped.is_ok_and(|start| unmap(start, bytes))
    }
}

/// Implements [`super::interface::OsMemory::extend`] by mremap(2), which makes no new mapping.
/// mmap(2) would refuse at the limit of mappings, before it checks whether the range would merge
/// with its neighbour.
///
/// # Safety
/// The range was chosen and is not committed, and the page before it is committed.
pub(super) unsafe fn extend(start: *mut c_void, bytes: usize) -> bool {
    let page = page_size();
    let before = start.wrapping_byte_sub(page);
    // SAFETY: the caller guarantees that the page before is the engine's. Without MREMAP_MAYMOVE
    // it stays.
    let result = unsafe { call!(libc::SYS_mremap, before, page, page + bytes, 0_usize) };
    result == Ok(before.addr())
}

/// Implements [`super::interface::OsMemory::decommit`].
///
/// # Safety
/// The range is committed, and no code uses it any more.
pub(super) unsafe fn decommit(start: *mut c_void, bytes: usize) -> bool {
    // SAFETY: the caller guarantees that the range is committed and unused.
    unsafe { unmap(start, bytes) }
}

/// Implements [`super::interface::OsMemory::purge`].
///
/// # Safety
/// The range is committed, and no code uses its contents any more.
pub(super) unsafe fn purge(start: *mut c_void, bytes: usize) -> bool {
    // SAFETY: the caller guarantees that the range is committed and its contents unused.
    unsafe {
        advise(start, bytes, libc::MADV_DONTNEED).is_ok()
            // For memory that is locked, for example by mlockall(2). Since Linux 5.18.
            || advise(start, bytes, libc::MADV_DONTNEED_LOCKED).is_ok()
    }
}

/// Implements [`super::interface::OsMemory::back_by_huge_page`]. The kernel does not say which
/// pages it took, but the time does: after a huge page, there is no second page fault.
///
/// The advice is taken back at once. So mappings do not split, and the kernel's daemon, which joins
/// pages later, makes no huge page out of what was purged.
///
/// # Safety
/// The range is committed, reads as zero, and no code uses it.
pub(super) unsafe fn back_by_huge_page(start: *mut c_void, bytes: usize) -> Option<u64> {
    /// A fault of a huge page takes this many times as long as the next access.
    const FAULT_TO_ACCESS: u64 = 16;
    /// A fault of a small page takes more than this many times as long as an access.
    const SMALL_FAULT_TO_ACCESS: u64 = 8;
    // SAFETY: the advice changes no contents.
    unsafe { advise(start, bytes, libc::MADV_HUGEPAGE) }.ok()?;
    // SAFETY: both lie in the range, which the caller guarantees is committed and holds zeros.
    let [first_ns, second_ns, third_ns] =
        [0, bytes / 2, bytes / 2].map(|at| unsafe { ns_to_touch(start.byte_add(at), 1) });
    // SAFETY: as before.
    let _ = unsafe { advise(start, bytes, libc::MADV_NOHUGEPAGE) };
    let is_huge =
        second_ns * FAULT_TO_ACCESS < first_ns && second_ns <= third_ns * SMALL_FAULT_TO_ACCESS;
    is_huge.then_some(first_ns)
}

/// Implements [`super::interface::OsMemory::back_by_small_pages`].
///
/// # Safety
/// The range is committed, reads as zero, and no code uses it.
pub(super) unsafe fn back_by_small_pages(start: *mut c_void, bytes: usize) -> u64 {
    // SAFETY: as the caller guarantees.
    unsafe { ns_to_touch(start, bytes / page_size()) }
}

/// Writes a zero to each of `pages` pages. Returns the nanoseconds that it took.
///
/// # Safety
/// The pages are committed, read as zero, and no code uses them.
unsafe fn ns_to_touch(start: *mut c_void, pages: usize) -> u64 {
    let now_ns = || {
        let now = clock::time(libc::CLOCK_MONOTONIC);
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    };
    let before_ns = now_ns();
    for page in 0..pages {
        // SAFETY: the caller guarantees that the page may be written.
        unsafe { start.byte_add(page * page_size()).cast::<u8>().write_volatile(0) };
    }
    now_ns().saturating_sub(before_ns)
}
