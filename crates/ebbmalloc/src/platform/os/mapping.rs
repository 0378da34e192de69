//! Memory at addresses that the engine chooses: mmap(2), munmap(2), madvise(2).
//!
//! Where in the address space: of T bytes that a process may have (128 TiB on x86-64), the kernel puts the program at two
//! thirds, the stack and all mappings whose place it chooses at the top, and other runtimes like the bottom. The
//! region lies between a quarter and five eighths of T, what else the engine needs in the eighth below a
//! quarter. Some sanitizers forbid both to all but themselves: then it is below what the kernel maps.

use core::ffi::c_void;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicUsize, Ordering};

use super::interface::Refusal;
use super::sanitizer::divides_addresses;
use crate::platform::kernel::auxiliary::page_size;
use crate::platform::kernel::syscall::{advise, call, map, unmap};

/// Addresses are chosen at multiples of this, so that page tables and huge pages fit.
const GRANULE: usize = 2 << 20;
/// A request of this many bytes or more is tried at another address before the heap gives
/// addresses up for it.
const PROBE_MIN_BYTES: usize = 64 << 20;
/// Attempts from this one on are below what the kernel maps.
const UPPER_FROM: u32 = 4;

/// Bytes that a process may have addresses for, a power of two: the stack lies at their end, and libraries not far below.
fn space() -> usize {
    let on_the_stack = 0_u8;
    let highest = ptr::from_ref(&on_the_stack).addr().max(ptr::from_ref(&CALLS).addr());
    highest.next_power_of_two()
}

/// As [`super::interface::Os::address_space`].
pub(super) fn address_space() -> usize {
    space() / 4
}

/// As [`super::interface::Os::addresses`].
pub(super) fn addresses(bytes: usize, align: usize, attempt: u32) -> Option<NonNull<u8>> {
    let space = space();
    // The most bytes, where to begin, and in how many bytes from there on.
    let (most, from, within) = if attempt >= UPPER_FROM || divides_addresses() {
        (space / 256, space - space / 256 * 3, space / 256)
    } else if bytes > space / 64 {
        (space / 4 + space / 64, space / 4, space / 8)
    } else {
        (space / 64, space / 8, space / 8 - space / 64)
    };
    let granule = align.max(GRANULE);
    let place = from.next_multiple_of(granule) + spread() % (within / granule) * granule;
    (bytes <= most).then(|| NonNull::new(ptr::with_exposed_provenance_mut(place)))?
}

/// How often addresses were chosen.
static CALLS: AtomicUsize = AtomicUsize::new(0);

/// A number for each call, as random as the addresses that the kernel chose for this process: for that it takes no system call,
/// and where they are always the same, as under a debugger, so are these.
fn spread() -> usize {
    let nth = CALLS.fetch_add(1, Ordering::Relaxed);
    let on_the_stack = 0_u8;
    // Several copies of the engine may live in a process.
    let ours = ptr::from_ref(&CALLS).addr();
    let mut bits = (ours as u64).rotate_left(32) ^ ptr::from_ref(&on_the_stack).addr() as u64;
    bits = bits.wrapping_add(nth as u64);
    // The finalizer of MurmurHash3, by Austin Appleby: each bit changes half of all.
    bits = (bits ^ (bits >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    bits = (bits ^ (bits >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    (bits ^ (bits >> 33)) as usize
}

/// As [`super::interface::Os::commit`].
///
/// # Safety
/// As for that.
pub(super) unsafe fn commit(start: *mut c_void, bytes: usize) -> Result<(), Refusal> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping where there is none touches nothing that exists.
    match unsafe { map(start, bytes, access, libc::MAP_FIXED_NOREPLACE) } {
        Ok(mapped) if mapped == start => {
            // Fails where there are no huge pages: docs/decisions/0008-no-huge-pages.md.
            // SAFETY: ours.
            let _ = unsafe { advise(start, bytes, libc::MADV_NOHUGEPAGE) };
            Ok(())
        }
        Ok(elsewhere) => {
            // Before Linux 4.17 the address is a hint. SAFETY: just mapped.
            unsafe { unmap(elsewhere, bytes) };
            Err(Refusal::Addresses)
        }
        Err(libc::EEXIST) if bytes < PROBE_MIN_BYTES || could_map(bytes) => Err(Refusal::Addresses),
        Err(_) => Err(Refusal::Memory),
    }
}

/// Whether the kernel maps `bytes` at an address of its choice. At a chosen address it reports
/// EEXIST before ENOMEM.
fn could_map(bytes: usize) -> bool {
    // SAFETY: new memory, which nobody knows yet.
    unsafe {
        let mapped = map(ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, 0);
        mapped.is_ok_and(|start| unmap(start, bytes))
    }
}

/// As [`super::interface::Os::extend`]: mremap(2) makes no new mapping, other than mmap(2), which refuses before it looks whether its
/// range would join a neighbour.
///
/// # Safety
/// As for that.
pub(super) unsafe fn extend(start: *mut c_void, bytes: usize) -> bool {
    let page = page_size();
    let before = start.wrapping_byte_sub(page);
    // SAFETY: the caller's: the mapping before is ours, and stays where it is.
    let result = unsafe { call!(libc::SYS_mremap, before, page, page + bytes, 0_usize) };
    result == Ok(before.addr())
}

/// As [`super::interface::Os::decommit`].
///
/// # Safety
/// As for that.
pub(super) unsafe fn decommit(start: *mut c_void, bytes: usize) -> bool {
    // SAFETY: the caller's: the range is ours and its contents are dead.
    unsafe { unmap(start, bytes) }
}

/// As [`super::interface::Os::purge`].
///
/// # Safety
/// As for that.
pub(super) unsafe fn purge(start: *mut c_void, bytes: usize) -> bool {
    // SAFETY: the caller's: the range is ours and its contents are dead.
    unsafe {
        advise(start, bytes, libc::MADV_DONTNEED).is_ok()
            // Locked memory, by mlockall(2) for instance. Linux 5.18 and later.
            || advise(start, bytes, libc::MADV_DONTNEED_LOCKED).is_ok()
    }
}

/// As [`super::interface::Os::populate`].
pub(super) fn populate(start: *mut c_void, bytes: usize) {
    // SAFETY: this changes the contents of no memory.
    let _ = unsafe { advise(start, bytes, libc::MADV_POPULATE_WRITE) };
}
