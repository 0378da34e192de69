//! Reserves addresses, and commits and decommits memory there: VirtualAlloc, VirtualFree.
//!
//! A chosen range is a reservation. It takes addresses only, no memory and no page file, so no
//! other mapping can come to lie in it. Committed memory counts towards the commit limit of all
//! processes, whether it is resident or not.

use core::ffi::c_void;
use core::ptr::{self, NonNull};

use super::super::hooks::Process;
use super::super::interface::{OsMemory, Refusal};
use super::super::native::NativeFor;
use crate::platform::arch::fail_fast;
use crate::platform::kernel::windows::{
    JobLimits, K32QueryWorkingSetEx, MEM_COMMIT, MEM_DECOMMIT, MEM_RELEASE, MEM_RESERVE,
    MemoryStatus, PAGE_READWRITE, QueryInformationJobObject, Sleep, THIS_PROCESS, VirtualAlloc,
    VirtualFree, VirtualQuery, keeping_error,
};

/// Bytes of a page on x86-64.
const PAGE: usize = 4096;
/// Bytes of which the start of a reservation is a multiple.
const GRANULE: usize = 64 << 10;
/// The most pages for one call of [`K32QueryWorkingSetEx`].
const QUERY_PAGES: usize = 64;

impl<P: Process> OsMemory for NativeFor<P> {
    fn page_size(&self) -> usize {
        PAGE
    }

    /// A multiple of what all processes may commit now, since page files grow. A small one: to Wine
    /// each reserved page costs a byte.
    fn address_space(&self) -> usize {
        MemoryStatus::now().commit.saturating_mul(4).max(1 << 34) as usize
    }

    fn addresses(&self, bytes: usize, align: usize, _attempt: u32) -> Option<NonNull<u8>> {
        let slack = align.saturating_sub(GRANULE);
        let bytes = bytes.checked_add(slack)?;
        let start = allocate(ptr::null_mut(), bytes, MEM_RESERVE);
        let ahead = start.align_offset(align.max(GRANULE));
        (!start.is_null()).then(|| NonNull::new(start.wrapping_add(ahead)))?
    }

    unsafe fn release(&self, start: *mut u8) {
        /// Words of `MEMORY_BASIC_INFORMATION`. The second is the start of the reservation.
        const WORDS: usize = 6;
        let mut found = [0; WORDS];
        // SAFETY: the call fills the words. The caller guarantees that no code uses the range.
        keeping_error(|| unsafe {
            if VirtualQuery(start.cast(), found.as_mut_ptr(), size_of_val(&found)) != 0 {
                VirtualFree(ptr::with_exposed_provenance_mut(found[1]), 0, MEM_RELEASE);
            }
        });
    }

    unsafe fn commit(&self, start: *mut u8, bytes: usize) -> Result<(), Refusal> {
        let committed = allocate(start, bytes, MEM_COMMIT);
        if committed.is_null() { Err(Refusal::Memory) } else { Ok(()) }
    }

    unsafe fn decommit(&self, start: *mut u8, bytes: usize) -> bool {
        // SAFETY: the caller guarantees that the range is committed and unused.
        keeping_error(|| unsafe { VirtualFree(start.cast(), bytes, MEM_DECOMMIT) }) != 0
    }

    /// Between the two calls, other processes may commit what was decommitted, and memory may be
    /// short then. It is the engine's again soon, or there is nothing to go on with.
    unsafe fn purge(&self, start: *mut u8, bytes: usize) -> bool {
        const ATTEMPTS: u32 = 500;
        // SAFETY: the caller guarantees that the range is committed and its contents unused.
        if !unsafe { self.decommit(start, bytes) } {
            return false;
        }
        for _ in 0..ATTEMPTS {
            if !allocate(start, bytes, MEM_COMMIT).is_null() {
                return true;
            }
            // SAFETY: sleeping has no conditions.
            unsafe { Sleep(10) };
        }
        fail_fast()
    }

    fn memory_limit(&self) -> Option<u64> {
        let machine = MemoryStatus::now().memory;
        let limits = [machine, job_limit()];
        limits.into_iter().filter(|&limit| limit > 0).min()
    }

    fn memory_taken_percent(&self) -> Option<u64> {
        Some(MemoryStatus::now())
            .filter(|status| status.memory > 0)
            .map(|status| status.load.into())
    }

    fn resident(&self, address: usize, pages: &mut [bool]) {
        for (nth, pages) in pages.chunks_mut(QUERY_PAGES).enumerate() {
            // An address for each page. Windows answers by bits, the lowest of which means that the
            // page is resident.
            let mut found = [[0; 2]; QUERY_PAGES];
            for (at, [page, _]) in found.iter_mut().enumerate() {
                *page = address + (nth * QUERY_PAGES + at) * PAGE;
            }
            let bytes = (pages.len() * size_of_val(&found[0])) as u32;
            // SAFETY: the call reads and writes an entry for each page, of which there are enough.
            let known = keeping_error(|| unsafe {
                K32QueryWorkingSetEx(THIS_PROCESS, found.as_mut_ptr(), bytes)
            });
            let is_resident = |[_, bits]: &[usize; 2]| known != 0 && bits & 1 == 1;
            pages.iter_mut().zip(&found).for_each(|(page, found)| *page = is_resident(found));
        }
    }
}

/// Reserves or commits memory; null if Windows refuses.
fn allocate(start: *mut u8, bytes: usize, kind: u32) -> *mut u8 {
    let start = start.cast::<c_void>();
    // SAFETY: neither changes memory that is committed already.
    keeping_error(|| unsafe { VirtualAlloc(start, bytes, kind, PAGE_READWRITE) }).cast()
}

/// The lowest limit of memory that the job of this process has; 0 for none.
fn job_limit() -> u64 {
    const EXTENDED_LIMITS: i32 = 9;
    const PROCESS_MEMORY: u32 = 0x100;
    const JOB_MEMORY: u32 = 0x200;
    let mut found = JobLimits::default();
    let bytes = size_of::<JobLimits>() as u32;
    // SAFETY: the call fills the struct. A null handle means the job of this process.
    let known = keeping_error(|| unsafe {
        let (job, length) = (ptr::null_mut(), ptr::null_mut());
        QueryInformationJobObject(job, EXTENDED_LIMITS, &mut found, bytes, length)
    });
    let of = |flag, bytes| if known != 0 && found.flags & flag != 0 { bytes } else { 0 };
    let limits = [of(PROCESS_MEMORY, found.process_memory), of(JOB_MEMORY, found.job_memory)];
    limits.into_iter().filter(|&limit| limit > 0).min().unwrap_or(0) as u64
}

#[cfg(test)]
mod tests {
    use super::super::super::native::Native;
    use super::*;

    #[test]
    fn committed_memory_is_aligned_zero_and_purgeable() {
        let start = Native.addresses(64 * PAGE, 2 << 20, 0).unwrap().as_ptr();
        assert_eq!(start.addr() % (2 << 20), 0);
        // SAFETY: the range was just chosen, and is this test's own.
        unsafe {
            Native.commit(start, 2 * PAGE).unwrap();
            assert_eq!(start.read(), 0);
            start.write(7);
            let mut resident = [true; 3];
            Native.resident(start.addr(), &mut resident);
            assert_eq!(resident, [true, false, false]);
            assert!(Native.purge(start, PAGE));
            assert_eq!(start.read(), 0);
            assert!(Native.decommit(start, 2 * PAGE));
            Native.release(start);
        }
        assert!(Native.addresses(usize::MAX / 2, 1 << 16, 0).is_none());
    }

    #[test]
    fn the_machine_has_memory() {
        assert!(Native.memory_limit().is_some_and(|bytes| bytes > 64 << 20));
        assert!(Native.memory_taken_percent().is_some_and(|percent| percent <= 100));
    }
}
