//! Reserves addresses, and commits and decommits memory there: mmap(2), mprotect(2).
//!
//! A chosen range is a mapping without access. It takes addresses only, so no other mapping
//! can come to lie in it.

use core::ffi::{c_int, c_void};
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicUsize, Ordering};

use super::super::hooks::Process;
use super::super::interface::{OsMemory, Refusal};
use super::super::native::NativeFor;
use crate::platform::errno::keeping_errno;

/// Addresses without access need no swap space. FreeBSD sets none aside for any.
#[cfg(not(target_os = "freebsd"))]
const NO_RESERVE: c_int = libc::MAP_NORESERVE;
#[cfg(target_os = "freebsd")]
const NO_RESERVE: c_int = 0;
const ACCESSIBLE: c_int = libc::PROT_READ | libc::PROT_WRITE;
/// How many times the memory of the machine a range of addresses may be.
const ADDRESSES_PER_MEMORY: usize = 8;
/// The most pages for one call of mincore(2).
const QUERY_PAGES: usize = 128;

impl<P: Process> OsMemory for NativeFor<P> {
    fn page_size(&self) -> usize {
        page_size()
    }

    fn address_space(&self) -> usize {
        machine_bytes().saturating_mul(ADDRESSES_PER_MEMORY).clamp(1 << 34, 1 << 44)
    }

    fn addresses(&self, bytes: usize, align: usize, _attempt: u32) -> Option<NonNull<u8>> {
        let page = page_size();
        let wanted = bytes.checked_next_multiple_of(page)?;
        let reserved = wanted.checked_add(align.saturating_sub(page))?;
        // SAFETY: this maps new memory at any free address.
        let start = unsafe { map(ptr::null_mut(), reserved, libc::PROT_NONE, 0) }?.cast::<u8>();
        let ahead = start.align_offset(align.max(page));
        let (chosen, behind) = (start.wrapping_add(ahead), reserved - ahead - wanted);
        // SAFETY: both parts were just mapped, and nothing lies there.
        unsafe {
            unmap(start, ahead);
            unmap(chosen.wrapping_add(wanted), behind);
        }
        NonNull::new(chosen)
    }

    /// The range stays mapped, as its length is not known here. It takes addresses only, and only
    /// where memory is short.
    unsafe fn release(&self, _start: *mut u8) {}

    unsafe fn commit(&self, start: *mut u8, bytes: usize) -> Result<(), Refusal> {
        // SAFETY: the caller guarantees that the range was chosen: it is mapped, and unused.
        let result = keeping_errno(|| unsafe { libc::mprotect(start.cast(), bytes, ACCESSIBLE) });
        if result == 0 { Ok(()) } else { Err(Refusal::Memory) }
    }

    unsafe fn decommit(&self, start: *mut u8, bytes: usize) -> bool {
        // SAFETY: the caller guarantees that the range is committed and unused.
        unsafe { map(start.cast(), bytes, libc::PROT_NONE, libc::MAP_FIXED) }.is_some()
    }

    /// New memory in place of the old. Advice would be cheaper, but after MADV_FREE, and macOS's
    /// MADV_FREE_REUSABLE, the range may read as before. MADV_DONTNEED frees it on Android only.
    unsafe fn purge(&self, start: *mut u8, bytes: usize) -> bool {
        // SAFETY: the caller guarantees that the range is committed and its contents unused.
        let is_purged = unsafe { map(start.cast(), bytes, ACCESSIBLE, libc::MAP_FIXED) }.is_some();
        // FreeBSD unmaps the old memory first, and may then refuse the new.
        // SAFETY: the range is the caller's. Without its memory, the process is meant to end.
        unsafe {
            if !is_purged && libc::mprotect(start.cast(), bytes, ACCESSIBLE) != 0 {
                libc::abort();
            }
        }
        is_purged
    }

    fn memory_limit(&self) -> Option<u64> {
        Some(machine_bytes() as u64).filter(|&bytes| bytes > 0)
    }

    fn resident(&self, address: usize, pages: &mut [bool]) {
        let page = page_size();
        for (nth, pages) in pages.chunks_mut(QUERY_PAGES).enumerate() {
            let mut found = [0_u8; QUERY_PAGES];
            let start = ptr::without_provenance_mut::<c_void>(address + nth * QUERY_PAGES * page);
            // SAFETY: the call fills a byte for each page, of which there are enough.
            let known = keeping_errno(|| unsafe {
                libc::mincore(start, pages.len() * page, found.as_mut_ptr().cast()) == 0
            });
            pages.iter_mut().zip(found).for_each(|(page, found)| *page = known && found & 1 == 1);
        }
    }
}

/// Bytes of memory that the machine has; 0 if the system does not tell.
fn machine_bytes() -> usize {
    // SAFETY: the call has no conditions.
    let pages = keeping_errno(|| unsafe { libc::sysconf(libc::_SC_PHYS_PAGES) });
    usize::try_from(pages).unwrap_or(0).saturating_mul(page_size())
}

/// Bytes in a page, of which there are 4 KiB on x86-64 and 16 KiB on Apple's processors.
fn page_size() -> usize {
    static SIZE: AtomicUsize = AtomicUsize::new(0);
    let size = SIZE.load(Ordering::Relaxed);
    if size != 0 {
        return size;
    }
    // SAFETY: the call has no conditions.
    let size = keeping_errno(|| unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).max(4096) as usize;
    SIZE.store(size, Ordering::Relaxed);
    size
}

/// Maps new memory; `None` if the system refuses.
///
/// # Safety
/// With MAP_FIXED, what is mapped there now is unused.
unsafe fn map(
    start: *mut c_void,
    bytes: usize,
    access: c_int,
    flags: c_int,
) -> Option<*mut c_void> {
    let flags = flags | libc::MAP_PRIVATE | libc::MAP_ANON | NO_RESERVE;
    // SAFETY: the caller guarantees that no code uses what this replaces.
    let mapped = keeping_errno(|| unsafe { libc::mmap(start, bytes, access, flags, -1, 0) });
    (mapped != libc::MAP_FAILED).then_some(mapped)
}

/// Unmaps a range, which may be empty.
///
/// # Safety
/// The range is mapped and unused.
unsafe fn unmap(start: *mut u8, bytes: usize) {
    if bytes > 0 {
        // SAFETY: the caller guarantees that no code uses it.
        keeping_errno(|| unsafe { libc::munmap(start.cast(), bytes) });
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::native::Native;
    use super::*;

    #[test]
    fn committed_memory_is_aligned_zero_and_purgeable() {
        let page = Native.page_size();
        let start = Native.addresses(64 * page, 2 << 20, 0).unwrap().as_ptr();
        assert_eq!(start.addr() % (2 << 20), 0);
        // SAFETY: the range was just chosen, and is this test's own.
        unsafe {
            Native.commit(start, 2 * page).unwrap();
            assert_eq!(start.read(), 0);
            start.write(7);
            let mut resident = [true; 2];
            Native.resident(start.addr(), &mut resident);
            assert_eq!(resident, [true, false]);
            assert!(Native.purge(start, page));
            assert_eq!(start.read(), 0);
            assert!(Native.decommit(start, 2 * page));
            Native.commit(start, page).unwrap();
            assert_eq!(start.read(), 0);
        }
        assert!(Native.addresses(usize::MAX / 2, 1 << 16, 0).is_none());
    }

    #[test]
    fn the_machine_has_memory() {
        assert!(Native.memory_limit().is_some_and(|bytes| bytes > 64 << 20));
        assert!(Native.address_space() >= 1 << 34);
    }
}
