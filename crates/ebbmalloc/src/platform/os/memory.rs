//! Maps memory at addresses that the engine chooses: mmap(2), munmap(2), mremap(2), madvise(2).
//!
//! A process has T bytes of addresses (128 TiB on x86-64). The kernel puts the program at two
//! thirds of T. The stack, and mappings at addresses of the kernel's choice, lie at the top. Other
//! runtimes prefer the bottom. So the engine's region lies between a quarter and five eighths of
//! T, and its other memory in the eighth below a quarter. Some sanitizers reserve both parts for
//! themselves: then all of it lies right below the kernel's mappings.
//!
//! Pages are hidden by MADV_GUARD_INSTALL (Linux 6.13). The kernel goes on to count them as
//! writable memory (RLIMIT_DATA), so showing them again succeeds even at that limit.

use core::ffi::{CStr, c_int};
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicUsize, Ordering};

use super::hooks::Process;
use super::interface::{NotMoved, OsMemory, Refusal};
use super::limit;
use super::native::NativeFor;
use crate::platform::arch::weak;
use crate::platform::kernel::auxiliary::page_size;
use crate::platform::kernel::clock;
use crate::platform::kernel::proc::read_file;
use crate::platform::kernel::syscall::{advise, call, map, unmap};

/// Bytes of which chosen addresses are a multiple, so that page tables and huge pages fit.
const GRANULE: usize = 2 << 20;
/// If a commit of this many bytes or more fails with EEXIST, it is tried at an address of the
/// kernel's choice. Only if that works does the heap give up the addresses.
const PROBE_MIN_BYTES: usize = 64 << 20;
/// Attempts from this one on choose addresses right below the kernel's mappings.
const UPPER_FROM: u32 = 4;

/// The advice to make pages inaccessible.
const GUARD_INSTALL: c_int = 102;
const GUARD_REMOVE: c_int = 103;
/// The most pages for one call of [`mincore`].
const MINCORE_PAGES: usize = 256;

impl<P: Process> OsMemory for NativeFor<P> {
    fn page_size(&self) -> usize {
        page_size()
    }

    fn address_space(&self) -> usize {
        space() / 4
    }

    fn addresses(&self, bytes: usize, align: usize, attempt: u32) -> Option<NonNull<u8>> {
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
        let start =
            window.next_multiple_of(granule) + spread() % (window_bytes / granule) * granule;
        (bytes <= max_bytes).then(|| NonNull::new(ptr::with_exposed_provenance_mut(start)))?
    }

    unsafe fn commit(&self, start: *mut u8, bytes: usize) -> Result<(), Refusal> {
        let start = start.cast();
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: MAP_FIXED_NOREPLACE never replaces a mapping.
        match unsafe { map(start, bytes, access, libc::MAP_FIXED_NOREPLACE) } {
            Ok(mapped) if mapped == start => {
                // Against huge pages: decisions/0037. Fails if the kernel has none.
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
            Err(libc::EEXIST) if bytes < PROBE_MIN_BYTES || could_map(bytes) => {
                Err(Refusal::Addresses)
            }
            Err(_) => Err(Refusal::Memory),
        }
    }

    /// By mremap(2), which makes no new mapping. mmap(2) would refuse at the limit of mappings,
    /// before it checks whether the range would merge with its neighbour.
    unsafe fn extend(&self, start: *mut u8, bytes: usize) -> bool {
        let page = page_size();
        let before = start.wrapping_byte_sub(page);
        // SAFETY: the caller guarantees that the page before is the engine's. Without
        // MREMAP_MAYMOVE it stays.
        let result = unsafe { call!(libc::SYS_mremap, before, page, page + bytes, 0_usize) };
        result == Ok(before.addr())
    }

    unsafe fn decommit(&self, start: *mut u8, bytes: usize) -> bool {
        // SAFETY: the caller guarantees that the range is committed and unused.
        unsafe { unmap(start.cast(), bytes) }
    }

    /// Emulators accept advice that they do not know and do nothing, so this checks the effect.
    fn can_hide(&self, page: *mut u8) -> bool {
        let (page, bytes) = (page.cast(), page_size());
        // SAFETY: the page is the caller's, and unused. An inaccessible page cannot be made
        // resident.
        unsafe {
            advise(page, bytes, GUARD_INSTALL).is_ok()
                && advise(page, bytes, libc::MADV_POPULATE_READ) == Err(libc::EFAULT)
                && advise(page, bytes, GUARD_REMOVE).is_ok()
        }
    }

    unsafe fn hide(&self, start: *mut u8, bytes: usize) -> bool {
        // SAFETY: the caller guarantees that the range is committed and unused.
        unsafe { advise(start.cast(), bytes, GUARD_INSTALL) }.is_ok()
    }

    unsafe fn show(&self, start: *mut u8, bytes: usize) -> bool {
        // SAFETY: the advice makes hidden pages accessible, and changes no others.
        unsafe { advise(start.cast(), bytes, GUARD_REMOVE) }.is_ok()
    }

    unsafe fn purge(&self, start: *mut u8, bytes: usize) -> bool {
        let start = start.cast();
        // SAFETY: the caller guarantees that the range is committed and its contents unused.
        unsafe {
            advise(start, bytes, libc::MADV_DONTNEED).is_ok()
                // For memory that is locked, for example by mlockall(2). Since Linux 5.18.
                || advise(start, bytes, libc::MADV_DONTNEED_LOCKED).is_ok()
        }
    }

    /// By the system's setting, not that of the process (`PR_SET_THP_DISABLE`). Where the kernel
    /// lacks huge pages, it refuses each.
    fn has_huge_pages(&self, bytes: usize) -> bool {
        // Since Linux 6.8 there is a setting for each size, by default that of all.
        let never = |path: &CStr| {
            let mut text = [0; 64];
            let choices = read_file(path, &mut text);
            let is_chosen = |choice: &[u8]| choices.windows(choice.len()).any(|at| at == choice);
            match is_chosen(b"[inherit]") || choices.is_empty() {
                true => None,
                false => Some(is_chosen(b"[never]")),
            }
        };
        // It takes the place of a page table of the lowest level: a page of entries of 8 bytes.
        bytes == page_size() / 8 * page_size()
            && !never(c"/sys/kernel/mm/transparent_hugepage/hugepages-2048kB/enabled")
                .or_else(|| never(c"/sys/kernel/mm/transparent_hugepage/enabled"))
                .unwrap_or(false)
    }

    /// The kernel does not say which pages it took. The coarse clock needs neither the time-stamp
    /// counter, which a program may forbid, nor a system call where there is none.
    ///
    /// The advice is taken back at once. So mappings do not split, and the kernel's daemon, which
    /// joins pages later, makes no huge page out of what was purged.
    unsafe fn back_by_huge_page(&self, start: *mut u8, bytes: usize) -> Option<u64> {
        let now = || clock::time(libc::CLOCK_MONOTONIC_COARSE);
        // SAFETY: the advice changes no contents.
        unsafe { advise(start.cast(), bytes, libc::MADV_HUGEPAGE) }.ok()?;
        let before = now();
        // SAFETY: it lies in the range, which the caller guarantees is committed and holds zeros.
        unsafe { start.write_volatile(0) };
        let after = now();
        // SAFETY: as before.
        let _ = unsafe { advise(start.cast(), bytes, libc::MADV_NOHUGEPAGE) };
        let passed_s = after.tv_sec - before.tv_sec;
        u64::try_from(passed_s * 1_000_000_000 + after.tv_nsec - before.tv_nsec).ok()
    }

    unsafe fn allow_huge_pages(&self, start: *mut u8, bytes: usize, allowed: bool) -> bool {
        let advice = if allowed { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE };
        // SAFETY: the advice changes no contents.
        unsafe { advise(start.cast(), bytes, advice) }.is_ok()
    }

    unsafe fn move_pages(
        &self,
        from: *mut u8,
        to: *mut u8,
        bytes: usize,
        to_bytes: usize,
    ) -> Result<(), NotMoved> {
        const FLAGS: c_int = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        // SAFETY: the caller guarantees that both ranges are committed and unused by others.
        unsafe {
            let moved = call!(libc::SYS_mremap, from, bytes, to_bytes, FLAGS, to) == Ok(to.addr());
            if moved {
                return Ok(());
            }
            // Or they were never there: a program may keep pages of a block from its children.
            let has_moved = is_mapped(to, page_size());
            let moved_bytes = if has_moved { unmapped_bytes(from, bytes) } else { 0 };
            let (to, to_bytes) = (to.byte_add(moved_bytes), to_bytes - moved_bytes);
            // A kernel that refuses late has unmapped the target before, so it is mapped again. One
            // that refuses early has left it mapped: a new mapping is not needed, and would fail
            // too if the process has too many. This advice tells the cases apart: it fails with
            // ENOMEM only where something is not mapped, and costs no more than the target's
            // contents.
            let is_lost = advise(to.cast(), to_bytes, libc::MADV_DONTNEED) == Err(libc::ENOMEM);
            // Fails if the process is beyond its own limit, for instance; or where some pages have
            // moved, if a part of the rest is still mapped.
            let commit = || self.commit(to, to_bytes).is_ok();
            let is_lost = is_lost
                && !commit()
                && !(moved_bytes > 0 && unmap(to.cast(), to_bytes) && commit());
            let refusal = if is_lost { Refusal::Addresses } else { Refusal::Memory };
            Err(NotMoved { moved_bytes, refusal })
        }
    }

    fn memory_limit(&self) -> Option<u64> {
        limit::limit()
    }

    fn memory_taken_percent(&self) -> Option<u64> {
        limit::taken_percent()
    }

    fn resident(&self, address: usize, pages: &mut [bool]) {
        let page = self.page_size();
        for (nth, pages) in pages.chunks_mut(MINCORE_PAGES).enumerate() {
            let start = address + nth * MINCORE_PAGES * page;
            if !mincore(start, page, pages) {
                // Part of it is not mapped.
                for (nth, one) in pages.chunks_mut(1).enumerate() {
                    if !mincore(start + nth * page, page, one) {
                        one[0] = false;
                    }
                }
            }
        }
    }
}

/// Whether all pages of a range are mapped.
fn is_mapped(start: *mut u8, bytes: usize) -> bool {
    // SAFETY: the advice changes neither contents nor mappings.
    unsafe { advise(start.cast(), bytes, libc::MADV_WILLNEED) != Err(libc::ENOMEM) }
}

/// Bytes at the beginning of a range that are not mapped, if the rest is.
///
/// From Linux 6.17 on, one call moves several mappings, in order. A program divides ours by
/// mprotect(2) or userfaultfd(2), for example. If the kernel refuses a later one, the first have
/// moved.
fn unmapped_bytes(start: *mut u8, bytes: usize) -> usize {
    let page = page_size();
    let is_unmapped = |nth: usize| !is_mapped(start.wrapping_byte_add(nth * page), page);
    let (mut from, mut to) = (0, if is_unmapped(0) { bytes / page } else { 0 });
    while from < to {
        let middle = from.midpoint(to);
        (from, to) = if is_unmapped(middle) { (middle + 1, to) } else { (from, middle) };
    }
    from * page
}

/// Bytes of the process's address space, a power of two. The stack lies at its end, and libraries
/// not far below.
fn space() -> usize {
    let on_the_stack = 0_u8;
    let highest = ptr::from_ref(&on_the_stack).addr().max(ptr::from_ref(&CALLS).addr());
    highest.next_power_of_two()
}

/// Whether ThreadSanitizer or MemorySanitizer runs this program. They reserve most addresses, and
/// end the program if one of those is taken when they set themselves up, which may be after the
/// engine.
fn divides_addresses() -> bool {
    !weak!("__tsan_init").is_null() || !weak!("__msan_init").is_null()
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

/// Whether the kernel can map `bytes` bytes at an address of its choice. At a chosen address it
/// reports EEXIST before ENOMEM.
fn could_map(bytes: usize) -> bool {
    // SAFETY: this maps new memory, and unmaps it before any code knows it.
    unsafe {
        let mapped = map(ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, 0);
        mapped.is_ok_and(|start| unmap(start, bytes))
    }
}

/// Sets which of at most [`MINCORE_PAGES`] pages of `page` bytes are resident: mincore(2). False
/// if part of the range is not mapped.
fn mincore(address: usize, page: usize, pages: &mut [bool]) -> bool {
    // A byte for each page. The lowest bit means resident.
    let mut flags = [0_u8; MINCORE_PAGES];
    let bytes = pages.len() * page;
    // SAFETY: the kernel fills a byte for each page, of which there are at most `MINCORE_PAGES`.
    let done = unsafe { call!(libc::SYS_mincore, address, bytes, flags.as_mut_ptr()) }.is_ok();
    if done {
        pages.iter_mut().zip(&flags).for_each(|(page, flag)| *page = flag & 1 == 1);
    }
    done
}

#[cfg(test)]
mod tests {
    use std::{format, fs};

    use super::super::native::Native;
    use super::*;

    #[test]
    fn committed_memory_is_aligned_zero_and_purgeable() {
        let page = Native.page_size();
        let start = Native.addresses(16 * page, 1 << 21, 0).unwrap().as_ptr();
        assert_eq!(start.addr() % (1 << 21), 0);
        // SAFETY: the range was just chosen, and is this test's own.
        unsafe {
            Native.commit(start, page).unwrap();
            assert_eq!(start.read(), 0);
            start.write(7);
            assert!(Native.purge(start, page));
            assert_eq!(start.read(), 0);
        }
        assert!(Native.addresses(usize::MAX / 2, 1 << 16, 0).is_none());
    }

    #[test]
    fn huge_pages_are_what_the_processor_and_the_system_have() {
        let setting = ["hugepages-2048kB/enabled", "enabled"].into_iter().find_map(|file| {
            let text = fs::read_to_string(format!("/sys/kernel/mm/transparent_hugepage/{file}"));
            text.ok().filter(|text| !text.contains("[inherit]"))
        });
        let is_never = setting.is_some_and(|text| text.contains("[never]"));
        for (bytes, page) in [(2 << 20, 4 << 10), (32 << 20, 16 << 10), (512 << 20, 64 << 10)] {
            assert_eq!(Native.has_huge_pages(bytes), page_size() == page && !is_never);
        }
    }

    #[test]
    fn committed_memory_is_not_for_huge_pages() {
        if !fs::exists("/sys/kernel/mm/transparent_hugepage").unwrap() {
            return;
        }
        let start = Native.addresses(8 << 20, 1 << 21, 0).unwrap().as_ptr();
        // SAFETY: the range was just chosen, and is this test's own.
        unsafe { Native.commit(start, 4 << 20) }.unwrap();
        let mappings = fs::read_to_string("/proc/self/smaps").unwrap();
        let (_, mapping) = mappings.split_once(&format!("{:x}-", start.addr())).unwrap();
        let flags = mapping.lines().find(|line| line.starts_with("VmFlags:")).unwrap();
        assert!(flags.contains(" nh"), "{flags}");
    }
}
