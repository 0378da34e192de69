//! Heaps of blocks of the system's allocator: each block has a header, by which a list of all
//! blocks of its heap goes.

extern crate std;

use core::alloc::{GlobalAlloc, Layout};
use core::ptr::{self, NonNull};
use std::alloc::System;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::size_class::{SizeClass, UNIT};

/// Identifies a heap, as long as it has an owner.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeapId(NonNull<Mutex<Contents>>);

// SAFETY: all access to a heap is by its lock, and any thread may free a block of the system's
// allocator.
unsafe impl Send for HeapId {}
// SAFETY: the lock allows it, as for `Send`.
unsafe impl Sync for HeapId {}

/// The blocks and the limit of a heap.
pub(crate) struct Contents {
    pub owners: usize,
    /// Bytes of all blocks, rounded as the engine rounds them.
    pub used: usize,
    limit: usize,
    /// The block that was added last; null if there is none.
    newest: *mut Header,
}

/// Lies before each block.
struct Header {
    older: *mut Header,
    newer: *mut Header,
    /// What was asked for, without the header.
    layout: Layout,
}

impl HeapId {
    /// Makes a heap with one owner; `None` if memory is short.
    pub fn new(limit: usize) -> Option<Self> {
        let contents = Contents { owners: 1, used: 0, limit, newest: ptr::null_mut() };
        // SAFETY: the layout has a byte or more.
        let record = unsafe { System.alloc(Layout::new::<Mutex<Contents>>()) };
        let record = NonNull::new(record.cast::<Mutex<Contents>>())?;
        // SAFETY: the memory is new, and has this layout.
        unsafe { record.write(Mutex::new(contents)) };
        Some(Self(record))
    }

    /// Locks the heap. No code panics while it is locked.
    pub fn lock(&self) -> MutexGuard<'_, Contents> {
        // SAFETY: the heap exists: an id is used only while the heap has an owner.
        unsafe { self.0.as_ref() }.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Frees all blocks of a heap, and its record.
    ///
    /// # Safety
    /// No thread uses the heap or its blocks any more.
    pub unsafe fn delete(self) {
        // SAFETY: the caller guarantees that the record and the blocks are not used any more. Each
        // block in the list is in use, and the record came from `System` with this layout.
        unsafe {
            let mut contents = self.lock();
            while !contents.newest.is_null() {
                let block = block_of(contents.newest);
                contents.free(block);
            }
            drop(contents);
            self.0.drop_in_place();
            System.dealloc(self.0.as_ptr().cast(), Layout::new::<Mutex<Contents>>());
        }
    }
}

impl Contents {
    /// Allocates a block; `None` if memory is short, or if the limit forbids it.
    pub fn alloc(&mut self, layout: Layout, zeroed: bool) -> Option<NonNull<u8>> {
        let used = self.used_after(0, layout)?;
        let (whole, offset) = with_header(layout)?;
        // SAFETY: the layout has the bytes of the header at least.
        let start = unsafe {
            match zeroed {
                true => System.alloc_zeroed(whole),
                false => System.alloc(whole),
            }
        };
        let start = NonNull::new(start)?;
        self.used = used;
        // SAFETY: the memory is new, and has a header before this offset.
        Some(unsafe { self.add(start, offset, layout) })
    }

    /// Frees a block.
    ///
    /// # Safety
    /// The block is one of this heap, and is not used any more.
    pub unsafe fn free(&mut self, block: *mut u8) {
        // SAFETY: the caller guarantees that the block is this heap's. So it has a header, and came
        // from `System` with the layout that this says.
        unsafe {
            let header = header_of(block);
            let layout = (*header).layout;
            self.remove(header);
            self.used -= counted(layout).unwrap_or_default();
            let Some((whole, offset)) = with_header(layout) else { return };
            System.dealloc(block_of(header).sub(offset), whole);
        }
    }

    /// Resizes a block; `None` as for [`Contents::alloc`], and then it stays as it was.
    ///
    /// # Safety
    /// As for [`Contents::free`], unless the result is `None`.
    pub unsafe fn realloc(&mut self, block: *mut u8, layout: Layout) -> Option<NonNull<u8>> {
        // SAFETY: the caller guarantees that the block is this heap's. So it has a header, and came
        // from `System` with the layout that this says.
        unsafe {
            let header = header_of(block);
            let old = (*header).layout;
            if layout.align() > old.align() {
                let moved = self.alloc(layout, false)?;
                let kept = old.size().min(layout.size());
                ptr::copy_nonoverlapping(block, moved.as_ptr(), kept);
                self.free(block);
                return Some(moved);
            }
            // With the same alignment, the block has the same distance from the start.
            let layout = Layout::from_size_align(layout.size(), old.align()).ok()?;
            let used = self.used_after(counted(old)?, layout)?;
            let ((old_whole, offset), (whole, _)) = (with_header(old)?, with_header(layout)?);
            let start = block_of(header).sub(offset);
            self.remove(header);
            let Some(moved) = NonNull::new(System.realloc(start, old_whole, whole.size())) else {
                self.add(NonNull::new_unchecked(start), offset, old);
                return None;
            };
            self.used = used;
            Some(self.add(moved, offset, layout))
        }
    }

    /// The bytes in use when a block of `freed` bytes has become one of this layout; `None` if the
    /// limit forbids it.
    fn used_after(&self, freed: usize, layout: Layout) -> Option<usize> {
        let used = (self.used - freed).checked_add(counted(layout)?)?;
        (used <= self.limit).then_some(used)
    }

    /// Writes the header of the block at this offset, and adds it to the list.
    ///
    /// # Safety
    /// The memory came from `System` as [`with_header`] says for the layout, and has no header in
    /// the list.
    unsafe fn add(&mut self, start: NonNull<u8>, offset: usize, layout: Layout) -> NonNull<u8> {
        // SAFETY: the caller guarantees that the header lies in the memory before the offset; all
        // headers in the list are valid, and this heap is locked.
        unsafe {
            let block = start.add(offset);
            // A container may pass an address that may be used for its own value alone: the header
            // is then reached by this one.
            block.as_ptr().expose_provenance();
            let header = block.cast::<Header>().sub(1).as_ptr();
            header.write(Header { older: self.newest, newer: ptr::null_mut(), layout });
            if !self.newest.is_null() {
                (*self.newest).newer = header;
            }
            self.newest = header;
            block
        }
    }

    /// Removes a block from the list.
    ///
    /// # Safety
    /// The header is in this heap's list.
    unsafe fn remove(&mut self, header: *mut Header) {
        // SAFETY: the caller guarantees that the header is in the list, so its neighbours are too.
        unsafe {
            let (older, newer) = ((*header).older, (*header).newer);
            match newer.is_null() {
                true => self.newest = older,
                false => (*newer).older = older,
            }
            if !older.is_null() {
                (*older).newer = newer;
            }
        }
    }
}

/// The bytes that a block counts: those of its size class, or whole units.
fn counted(layout: Layout) -> Option<usize> {
    match SizeClass::of_aligned(layout.size(), layout.align()) {
        Some(class) => Some(class.size()),
        None => layout.size().checked_next_multiple_of(UNIT),
    }
}

/// The layout of a block with its header, and where the block lies in it. The header is right
/// before the block.
fn with_header(layout: Layout) -> Option<(Layout, usize)> {
    Layout::new::<Header>().extend(layout).ok()
}

fn header_of(block: *mut u8) -> *mut Header {
    ptr::with_exposed_provenance_mut(block.addr() - size_of::<Header>())
}

/// # Safety
/// It is the header of a block.
unsafe fn block_of(header: *mut Header) -> *mut u8 {
    // SAFETY: the block lies right behind.
    unsafe { header.add(1).cast() }
}
