//! Reads memory that may not be there: the kernel looks at each page before its first use.
//!
//! A stack that was read wrong may lead anywhere. The kernel is asked by futex(2), the only call
//! for this that every filter allows: a tenth of a microsecond a page. A page that another thread
//! unmaps in the meantime would fault. No live stack has such pages.

use core::ops::Range;

use crate::platform::kernel::{auxiliary, futex};

/// Memory, and the pages of it that were found readable last.
pub(super) struct Memory {
    readable: Range<usize>,
}

impl Memory {
    /// Memory of which nothing is known.
    pub fn unknown() -> Self {
        Self { readable: 0..0 }
    }

    /// Memory of which the page is known that the innermost frame lies in.
    #[inline(always)]
    pub fn of_this_stack() -> Self {
        let (page, local) = (auxiliary::page_size(), 0_u8);
        let start = (&raw const local).addr() / page * page;
        Self { readable: start..start + page }
    }

    /// The word at an address. `None` if it cannot be read, or is not aligned.
    #[inline(always)]
    pub fn word(&mut self, address: usize) -> Option<usize> {
        let is_whole = address.is_multiple_of(size_of::<usize>());
        if !is_whole || !(self.readable.contains(&address) || self.probe(address)) {
            return None;
        }
        // SAFETY: an aligned word does not cross pages, and this page is readable. Volatile, as
        // other code may own and write the word.
        Some(unsafe { core::ptr::with_exposed_provenance::<usize>(address).read_volatile() })
    }

    /// Whether all bytes of a range can be read.
    pub fn can_read(&mut self, range: Range<usize>) -> bool {
        let page = auxiliary::page_size();
        let mut at = range.start;
        while at < range.end {
            if !(self.readable.contains(&at) || self.probe(at)) {
                return false;
            }
            at = match self.readable.end {
                end if end > at => end,
                _ => at / page * page + page,
            };
        }
        true
    }

    /// Asks the kernel whether the page at this address can be read. Notes it if so.
    #[cold]
    #[inline(never)]
    fn probe(&mut self, address: usize) -> bool {
        let page = auxiliary::page_size();
        let start = address / page * page;
        let Some(end) = start.checked_add(page) else { return false };
        // Miri knows no other memory than that of the program.
        if cfg!(miri) || futex::holds(core::ptr::with_exposed_provenance(start), 0).is_err() {
            return false;
        }
        self.readable = match self.readable.clone() {
            known if known.end == start => known.start..end,
            known if known.start == end => start..known.end,
            _ => start..end,
        };
        true
    }
}

#[cfg(all(test, not(any(miri, loom))))]
mod tests {
    use super::*;
    use crate::platform::kernel::syscall::{map, unmap};

    #[test]
    fn only_what_is_mapped_is_read() {
        let page = auxiliary::page_size();
        // SAFETY: the mapping is new, and only this test knows it.
        unsafe {
            let start = map(core::ptr::null_mut(), 4 * page, libc::PROT_READ, 0).unwrap();
            unmap(start.byte_add(2 * page), page);
            libc::mprotect(start.byte_add(3 * page), page, libc::PROT_NONE);
            let at = start.expose_provenance();
            let mut memory = Memory::unknown();
            let found = [0, page, 2 * page - 8, 2 * page - 4, 2 * page, 3 * page];
            let found = found.map(|offset| memory.word(at + offset));
            assert_eq!(found, [Some(0), Some(0), Some(0), None, None, None]);
            assert!(memory.can_read(at..at + 2 * page));
            assert!(!Memory::unknown().can_read(at..at + 2 * page + 1));
            unmap(start, 4 * page);
        }
        let ends = [0, 8, 1 << 50, usize::MAX - 7, usize::MAX];
        assert_eq!(ends.map(|address| Memory::unknown().word(address)), [None; 5]);
    }
}
