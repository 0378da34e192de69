//! Reads memory that may not be there: the kernel looks at each page before its first use.
//!
//! A stack that was read wrong may lead anywhere. The kernel is asked by futex(2), the only call
//! for this that every filter allows: a tenth of a microsecond a page. A page that another thread
//! unmaps in the meantime would fault. No live stack has such pages.

use core::ops::Range;

use super::known_pages;
use crate::platform::kernel::{auxiliary, futex};

/// The most bytes of a frame whose pages are kept.
const FRAME_BYTES_MAX: usize = 256 << 10;

/// Memory, and the pages of it that were found readable last.
pub(super) struct Memory {
    readable: Range<usize>,
    /// The page of the innermost frame. 0 if earlier walks of the stack are not to be trusted.
    home: usize,
    /// Whether the kernel was asked.
    is_asked: bool,
}

impl Memory {
    /// Memory of which nothing is known.
    pub fn unknown() -> Self {
        Self { readable: 0..0, home: 0, is_asked: false }
    }

    /// Memory of which the page is known that the innermost frame lies in.
    #[inline(always)]
    pub fn of_this_stack() -> Self {
        let (page, local) = (auxiliary::page_size(), 0_u8);
        let start = (&raw const local).addr() / page * page;
        Self { readable: start..start + page, home: start, is_asked: false }
    }

    /// Keeps the pages for the next walk, if the kernel was asked about pages next to the innermost
    /// frame.
    pub fn keep(self) {
        if self.is_asked && self.readable.contains(&self.home) {
            known_pages::keep(self.readable);
        }
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
        if self.home != 0 {
            let known = known_pages::find();
            if known.contains(&address) {
                self.add(known);
                return true;
            }
        }
        if !is_readable(start) {
            return false;
        }
        self.is_asked = true;
        // The pages between belong to the same frame, if they can be read too.
        let mut first = start;
        if self.home != 0 && start.wrapping_sub(self.readable.end) < FRAME_BYTES_MAX {
            while first > self.readable.end && is_readable(first - page) {
                first -= page;
            }
        }
        self.add(first..end);
        true
    }

    /// Notes readable pages. Forgets the others, unless they are next to them.
    fn add(&mut self, pages: Range<usize>) {
        let known = &self.readable;
        let is_next = pages.start <= known.end && known.start <= pages.end;
        self.readable = match is_next && !known.is_empty() {
            true => known.start.min(pages.start)..known.end.max(pages.end),
            false => pages,
        };
    }
}

/// Whether the page that starts at this address can be read. Miri knows none but the program's.
fn is_readable(start: usize) -> bool {
    !cfg!(miri) && futex::holds(core::ptr::with_exposed_provenance(start), 0).is_ok()
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
