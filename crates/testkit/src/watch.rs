//! Watches that the engine leaves the memory of free blocks alone, resident or not.
//!
//! A mirror holds the expected contents of free memory: those that the program left in its blocks,
//! or a pattern in purged pages. The owner of a block owns that part of the mirror, so it needs no
//! lock. A write by the engine is noticed when a block is handed out there. A read is noticed at
//! once, by Miri: for Miri, free memory is uninitialised.

use std::alloc::{self, Layout};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicU8, Ordering};

/// Fills purged memory. The program must see zeros there, but the engine must not look.
const GONE: u8 = 0xdd;

/// State of a page without any block so far. It may hold records of the engine.
const UNKNOWN: u8 = 0;
/// State of a page that had blocks.
const USED: u8 = 1;
/// State of a page that had blocks, and was purged since.
const PURGED: u8 = 2;

/// The watch over a range of memory that blocks come from.
pub struct Watch {
    start: *mut u8,
    layout: Layout,
    mirror: *mut u8,
    page: usize,
    /// The state of each page. Relaxed accesses suffice: the engine orders a block's free before
    /// its next allocation, or else it is wrong.
    states: Vec<AtomicU8>,
}

// SAFETY: by the rules of an allocator, each part of the memory, and so of the mirror, has one
// owner.
unsafe impl Send for Watch {}
// SAFETY: as for `Send`.
unsafe impl Sync for Watch {}

/// The bytes of a new block that the engine may have written.
#[derive(Clone, Copy)]
pub enum Wrote {
    /// This many bytes at its start.
    First(usize),
    /// Any, with zeros. All must read as zero.
    Zeros,
}

impl Watch {
    /// Watches memory of this layout that is all zero, or not in use yet.
    ///
    /// # Safety
    /// The memory is valid as long as this value.
    pub unsafe fn new(start: *mut u8, layout: Layout, page: usize) -> Self {
        let states = (0..layout.size() / page).map(|_| AtomicU8::new(UNKNOWN)).collect();
        // SAFETY: the layout's size is not zero.
        let mirror = unsafe { alloc::alloc_zeroed(layout) };
        assert!(!mirror.is_null());
        Self { start, layout, mirror, page, states }
    }

    /// The offset of a range; `None` if it is not in the watched memory.
    fn offset(&self, start: *const u8, bytes: usize) -> Option<usize> {
        let offset = start.addr().checked_sub(self.start.addr())?;
        (offset + bytes <= self.layout.size()).then_some(offset)
    }

    /// The mirror of a range; `None` if it is not in the watched memory.
    fn mirror(&self, start: *const u8, bytes: usize) -> Option<*mut u8> {
        // SAFETY: the mirror is as long as the watched memory.
        self.offset(start, bytes).map(|offset| unsafe { self.mirror.add(offset) })
    }

    /// To be called when the program gets a block.
    ///
    /// # Panics
    /// If the engine has written other bytes of it than it may.
    ///
    /// # Safety
    /// The caller owns the block.
    pub unsafe fn receive(&self, block: *mut u8, bytes: usize, wrote: Wrote) {
        let Some(offset) = self.offset(block, bytes) else { return };
        // Not under Miri, for which free memory is uninitialised.
        if let (Wrote::First(kept), false) = (wrote, cfg!(miri)) {
            let kept = kept.min(bytes);
            // SAFETY: the caller owns the block, and so its mirror.
            let [found, expected] = unsafe {
                [block, self.mirror.add(offset)]
                    .map(|at| std::slice::from_raw_parts(at.add(kept), bytes - kept))
            };
            assert!(found == expected, "written while it was free: {bytes} bytes at {block:p}");
        }
        for page in offset / self.page..(offset + bytes).div_ceil(self.page) {
            let purged = self.states[page].swap(USED, Ordering::Relaxed) == PURGED;
            let whole = page * self.page >= offset && (page + 1) * self.page <= offset + bytes;
            // The engine clears pages that are only partly the block's.
            if matches!(wrote, Wrote::Zeros) && purged && whole {
                // SAFETY: the whole page lies in the caller's block.
                unsafe { self.start.add(page * self.page).write_bytes(0, self.page) };
            }
        }
    }

    /// To be called before the program frees a block.
    ///
    /// # Safety
    /// The caller owns the block, and does not read it again.
    pub unsafe fn free(&self, block: *mut u8, bytes: usize) {
        // SAFETY: the caller owns the block, and does not read it again.
        unsafe {
            self.may_free(block, bytes);
            if cfg!(miri) && self.offset(block, bytes).is_some() {
                forget(block, bytes);
            }
        }
    }

    /// To be called before the program resizes a block: the engine may free it, or a part of it.
    ///
    /// # Safety
    /// The caller owns the block.
    pub unsafe fn may_free(&self, block: *mut u8, bytes: usize) {
        if let (Some(mirror), false) = (self.mirror(block, bytes), cfg!(miri)) {
            // SAFETY: the caller owns the block, and so its mirror.
            unsafe { ptr::copy_nonoverlapping(block, mirror, bytes) };
        }
    }

    /// To be called when a page is purged. If the purge failed, `left` is the byte that fills it.
    /// Returns false, and leaves the page to the caller, if no block is known to have been there.
    ///
    /// # Safety
    /// No other thread uses the page.
    pub unsafe fn purge(&self, page: *mut u8, left: Option<u8>) -> bool {
        let Some(offset) = self.offset(page, self.page) else { return false };
        let state = &self.states[offset / self.page];
        if state.load(Ordering::Relaxed) == UNKNOWN {
            // SAFETY: no other thread uses the page, and so its mirror.
            unsafe { self.mirror.add(offset).write_bytes(left.unwrap_or(0), self.page) };
            return false;
        }
        state.store(if left.is_none() { PURGED } else { USED }, Ordering::Relaxed);
        // SAFETY: no other thread uses the page, and so its mirror.
        unsafe {
            match cfg!(miri) {
                true => forget(page, self.page),
                false => [page, self.mirror.add(offset)]
                    .into_iter()
                    .for_each(|at| at.write_bytes(left.unwrap_or(GONE), self.page)),
            }
        }
        true
    }

    /// To be called when pages move: those of a block passed to [`Watch::may_free`], and those
    /// after it.
    ///
    /// # Safety
    /// No other thread uses the pages, nor those that they move to.
    pub unsafe fn move_pages(&self, from: *const u8, to: *mut u8, bytes: usize) {
        let (Some(at), Some(to)) = (self.offset(from, bytes), self.offset(to, bytes)) else {
            return;
        };
        // SAFETY: no other thread uses these pages, and so their mirrors.
        unsafe { ptr::copy_nonoverlapping(self.mirror.add(at), self.mirror.add(to), bytes) };
        for page in 0..bytes / self.page {
            let state = self.states[at / self.page + page].load(Ordering::Relaxed);
            self.states[to / self.page + page].store(state, Ordering::Relaxed);
        }
    }

    /// Whether a page was purged, and no block was handed out there since.
    pub fn is_purged(&self, page: *const u8) -> bool {
        let offset = self.offset(page, self.page);
        offset.is_some_and(|at| self.states[at / self.page].load(Ordering::Relaxed) == PURGED)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { alloc::dealloc(self.mirror, self.layout) }
    }
}

/// Makes memory uninitialised, so that Miri stops a read of it.
///
/// # Safety
/// The caller owns the memory, which may be written.
unsafe fn forget(start: *mut u8, bytes: usize) {
    let nothing = Box::<[u8]>::new_uninit_slice(bytes);
    // SAFETY: both ranges have `bytes` bytes, and the first is a new allocation.
    unsafe { ptr::copy_nonoverlapping(nothing.as_ptr(), start.cast::<MaybeUninit<u8>>(), bytes) };
}
