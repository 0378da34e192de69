//! Sees to it that the engine leaves memory alone that no block in use lies in, resident or not.
//!
//! Beside the memory lies a mirror of what it must hold where it is free: what the program left in its blocks, or a pattern
//! where it was given back. Whoever owns a block owns its part of the mirror, so nobody has to lock it. A write by the engine
//! is seen when a block is handed out there, and a read at once, by Miri, for which free memory holds nothing at all.

use std::alloc::{self, Layout};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicU8, Ordering};

/// What memory is filled with that was given back: it reads as zero, but only the program may find that out.
const GONE: u8 = 0xdd;

/// A page's state: nobody is known to have had a block there. It may hold what the engine knows of others.
const UNKNOWN: u8 = 0;
/// Blocks were there.
const USED: u8 = 1;
/// The same; it was given back since.
const PURGED: u8 = 2;

/// The range of memory that blocks come from.
pub struct Watch {
    start: *mut u8,
    layout: Layout,
    mirror: *mut u8,
    page: usize,
    /// One for each page. Relaxed will do: whoever gets a block knows what was done to it before, or else the engine is wrong.
    states: Vec<AtomicU8>,
}

// SAFETY: each part of the memory has one owner, by the rules of an allocator.
unsafe impl Send for Watch {}
// SAFETY: as above.
unsafe impl Sync for Watch {}

/// What the engine may have done to a new block.
#[derive(Clone, Copy)]
pub enum Wrote {
    /// It has set so many bytes at its beginning, and no others.
    First(usize),
    /// It has set some to zero, and all must read as zero.
    Zeros,
}

impl Watch {
    /// Watches memory that is as long and aligned as `layout` says, and all zero or not in use yet.
    ///
    /// # Safety
    /// It is valid as long as the value.
    pub unsafe fn new(start: *mut u8, layout: Layout, page: usize) -> Self {
        let states = (0..layout.size() / page).map(|_| AtomicU8::new(UNKNOWN)).collect();
        // SAFETY: the size is not zero.
        let mirror = unsafe { alloc::alloc_zeroed(layout) };
        assert!(!mirror.is_null());
        Self { start, layout, mirror, page, states }
    }

    /// The offset of a range, where it is in what is watched.
    fn offset(&self, start: *const u8, bytes: usize) -> Option<usize> {
        let offset = start.addr().checked_sub(self.start.addr())?;
        (offset + bytes <= self.layout.size()).then_some(offset)
    }

    /// The mirror of that range.
    fn mirror(&self, start: *const u8, bytes: usize) -> Option<*mut u8> {
        // SAFETY: the mirror is as long as what it mirrors.
        self.offset(start, bytes).map(|offset| unsafe { self.mirror.add(offset) })
    }

    /// The program gets a block.
    ///
    /// # Panics
    /// If the engine has written where it must not.
    ///
    /// # Safety
    /// The block is the caller's.
    pub unsafe fn receive(&self, block: *mut u8, bytes: usize, wrote: Wrote) {
        let Some(offset) = self.offset(block, bytes) else { return };
        // Miri knows nothing of free memory to compare.
        if let (Wrote::First(kept), false) = (wrote, cfg!(miri)) {
            let kept = kept.min(bytes);
            // SAFETY: the block and its mirror are the caller's.
            let [free, known] = unsafe {
                [block, self.mirror.add(offset)]
                    .map(|at| std::slice::from_raw_parts(at.add(kept), bytes - kept))
            };
            assert!(free == known, "written while it was free: {bytes} bytes at {block:p}");
        }
        for page in offset / self.page..(offset + bytes).div_ceil(self.page) {
            let purged = self.states[page].swap(USED, Ordering::Relaxed) == PURGED;
            let whole = page * self.page >= offset && (page + 1) * self.page <= offset + bytes;
            // Where the page is not all of this block, the engine has to clear it.
            if matches!(wrote, Wrote::Zeros) && purged && whole {
                // SAFETY: a page of the block.
                unsafe { self.start.add(page * self.page).write_bytes(0, self.page) };
            }
        }
    }

    /// The program is about to free a block.
    ///
    /// # Safety
    /// The block is the caller's, who does not look at it again.
    pub unsafe fn free(&self, block: *mut u8, bytes: usize) {
        // SAFETY: the caller's.
        unsafe {
            self.may_free(block, bytes);
            if cfg!(miri) && self.offset(block, bytes).is_some() {
                forget(block, bytes);
            }
        }
    }

    /// The engine may free a block, or a part of it: it is about to be resized.
    ///
    /// # Safety
    /// The block is the caller's.
    pub unsafe fn may_free(&self, block: *mut u8, bytes: usize) {
        if let (Some(mirror), false) = (self.mirror(block, bytes), cfg!(miri)) {
            // SAFETY: the block and its mirror are the caller's.
            unsafe { ptr::copy_nonoverlapping(block, mirror, bytes) };
        }
    }

    /// Memory is given back, or was to be: then it is left to chance, a byte, what it contains. False if it is not for blocks, as far
    /// as is known.
    ///
    /// # Safety
    /// Nobody uses the page.
    pub unsafe fn purge(&self, page: *mut u8, left: Option<u8>) -> bool {
        let Some(offset) = self.offset(page, self.page) else { return false };
        let state = &self.states[offset / self.page];
        if state.load(Ordering::Relaxed) == UNKNOWN {
            // SAFETY: as below.
            unsafe { self.mirror.add(offset).write_bytes(left.unwrap_or(0), self.page) };
            return false;
        }
        state.store(if left.is_none() { PURGED } else { USED }, Ordering::Relaxed);
        // SAFETY: nobody uses them, so they are the caller's.
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

    /// Pages move to where nobody has a block: those of one that may be freed, and what is behind it.
    ///
    /// # Safety
    /// Nobody uses the pages, nor those where they move to.
    pub unsafe fn move_pages(&self, from: *const u8, to: *mut u8, bytes: usize) {
        let (Some(at), Some(to)) = (self.offset(from, bytes), self.offset(to, bytes)) else {
            return;
        };
        // SAFETY: the caller's.
        unsafe { ptr::copy_nonoverlapping(self.mirror.add(at), self.mirror.add(to), bytes) };
        for page in 0..bytes / self.page {
            let state = self.states[at / self.page + page].load(Ordering::Relaxed);
            self.states[to / self.page + page].store(state, Ordering::Relaxed);
        }
    }

    /// Whether a page was given back, and nobody has had a block there since.
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

/// Has memory hold nothing, so that Miri stops whoever reads it.
///
/// # Safety
/// It is the caller's to write.
unsafe fn forget(start: *mut u8, bytes: usize) {
    let nothing = Box::<[u8]>::new_uninit_slice(bytes);
    // SAFETY: both are as long.
    unsafe { ptr::copy_nonoverlapping(nothing.as_ptr(), start.cast::<MaybeUninit<u8>>(), bytes) };
}
