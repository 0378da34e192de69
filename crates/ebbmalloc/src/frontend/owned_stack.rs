//! Works on a stack by plain loads and stores, for a thread that has its cache to itself: the plain
//! counterpart of the restartable sequences.

use core::sync::atomic::{AtomicPtr, AtomicU32};

use crate::frontend::slab::{EXTENT_BLOCKS, Extent, FULL, Header, Slab};
use crate::platform::sync::Ordering;
use crate::size_class::SizeClass;

/// One class's stack in a slab that this thread owns for the moment: the plain counterpart of the
/// restartable sequences.
///
/// A drainer may close a thread's stack at any moment (`engine/caches/drain.rs`). An operation in
/// progress need not know: each loads the header once and goes by that. It stores no header
///
/// - if it found the stack closed: the store would overwrite the drainer's header.
/// - if it changed nothing: after the drainer has emptied the stack, the store would overwrite the
///   drainer's last header. Then [`OwnedStack::grow`] could not tell that the drainer is done with
///   the slots.
pub(crate) struct OwnedStack {
    slab: Slab,
    class: SizeClass,
    /// Whether pushes read and set marks.
    is_marked: bool,
}

impl OwnedStack {
    /// # Safety
    /// While the value lives, no other thread works on the slab, except to close stacks, reopen
    /// them, and empty those that stay closed. That is, the caller holds the slab's lock, or the
    /// slab is the calling thread's.
    #[inline(always)]
    pub unsafe fn new(slab: Slab, class: SizeClass) -> Self {
        Self { slab, class, is_marked: false }
    }

    /// As [`OwnedStack::new`], for a stack whose pushes read and set marks.
    ///
    /// # Safety
    /// As for [`OwnedStack::new`]; and the slab has marks.
    pub unsafe fn marked(slab: Slab, class: SizeClass) -> Self {
        Self { slab, class, is_marked: true }
    }

    pub fn slab(&self) -> Slab {
        self.slab
    }

    #[inline(always)]
    pub fn header(&self) -> Header {
        self.load_header(Ordering::Relaxed)
    }

    #[inline(always)]
    fn load_header(&self, order: Ordering) -> Header {
        Header::from_bits(self.slab.header_word(self.class).load(order))
    }

    /// Stores the header after all earlier stores to slots: a fork may cut off the stores of
    /// another thread at any point, and the child finds what was stored until then.
    #[inline(always)]
    pub fn set_header(&mut self, header: Header) {
        self.slab.header_word(self.class).store(header.to_bits(), Ordering::Release);
    }

    /// Takes the newest block; null if there is none.
    #[inline(always)]
    pub fn pop(&mut self) -> *mut u8 {
        let bits = self.header().to_bits();
        let block = self.at_top(bits as u32);
        if !block.is_null() {
            // The top is the lower half, and above 8 if there is a block.
            self.set_header(Header::from_bits(bits - 8));
        }
        block
    }

    /// True if the block is certainly in the stack. Without marks, this looks at the newest four
    /// blocks, the capacity of a stack that was just set up.
    pub fn holds(&self, block: *mut u8) -> bool {
        if self.is_marked {
            // SAFETY: the slab has marks.
            return unsafe { self.slab.holds(self.class, block) };
        }
        let top = self.header().top;
        // The slot below the oldest block is null.
        let newest = (0..EXTENT_BLOCKS[0] as u32).map(|nth| self.at_top(top - 8 * nth));
        newest.take_while(|newest| !newest.is_null()).any(|newest| newest == block)
    }

    /// Puts a block on top; false if the stack is full, or if the block is on top already. With
    /// marks, false also if the block's mark is zero, or if it says that the block is in the stack
    /// already; that is certain only if [`OwnedStack::holds`] agrees.
    #[inline(always)]
    pub fn push(&mut self, block: *mut u8) -> bool {
        let header = self.header();
        if header.top >= header.limit || self.at_top(header.top) == block {
            return false;
        }
        if self.is_marked {
            let slot = self.mark(block).load(Ordering::Relaxed).min(header.top);
            if slot == 0 || self.at_top(slot) == block {
                return false;
            }
            self.mark(block).store(header.top + 8, Ordering::Relaxed);
        }
        self.put(header.top as usize + 8, block);
        // Below the limit, so nothing is carried into the upper half.
        self.set_header(Header::from_bits(header.to_bits() + 8));
        true
    }

    fn mark(&self, block: *mut u8) -> &AtomicU32 {
        // SAFETY: all callers have seen that the slab has marks.
        unsafe { self.slab.mark(block) }
    }

    /// Doubles the stack's capacity, from four blocks on, up to `max_blocks`. A stack that outgrows
    /// its extent moves to a larger one. A capacity above `max_blocks` shrinks to that. Returns the
    /// header before and after.
    pub fn grow(&mut self, max_blocks: usize) -> (Header, Header) {
        // Acquire: a drainer that emptied the stack has read its slots before they are written
        // again.
        let old = self.load_header(Ordering::Acquire);
        if old.is_closed() {
            return (old, old);
        }
        let (cached, capacity) = (old.len(self.class), old.capacity(self.class));
        let needed = (capacity * 2).max(EXTENT_BLOCKS[0]).min(max_blocks) as u32;
        let from = old.extent_index(self.class);
        let fits = |&index: &usize| Extent::of(index, self.class).max_blocks >= needed;
        let to = (from..FULL).find(fits).unwrap_or(FULL);
        let extent = Extent::of(to, self.class);
        let new = Header {
            top: extent.bottom + 8 * cached as u32,
            limit: extent.bottom + 8 * needed.min(extent.max_blocks),
        };
        if to != from {
            let source = self.at(Extent::of(from, self.class).bottom as usize + 8);
            let target = self.at(extent.bottom as usize + 8);
            // SAFETY: these are two extents of the class, which do not overlap. The blocks fit into
            // the first, and so into the second, which is larger.
            unsafe { source.copy_to_nonoverlapping(target, 8 * cached) };
        }
        self.set_header(new);
        (old, new)
    }

    /// Takes the newest blocks, newest first, as many as fit into `blocks`. Returns how many it
    /// took.
    #[inline(never)]
    pub fn pop_batch(&mut self, blocks: &mut [*mut u8]) -> usize {
        let mut header = self.header();
        if header.is_closed() {
            return 0;
        }
        let taken = self.take(&mut header, blocks);
        self.set_if_any(taken, header);
        taken
    }

    /// As [`OwnedStack::pop_batch`], for a stack that `header` describes. Updates `header`, which
    /// the caller stores.
    pub fn take(&self, header: &mut Header, blocks: &mut [*mut u8]) -> usize {
        let taken = header.len(self.class).min(blocks.len());
        for block in &mut blocks[..taken] {
            // SAFETY: the slot lies between the bottom and the top of the stack, which is ours.
            *block = unsafe { self.at(header.top as usize).cast::<*mut u8>().read() };
            header.top -= 8;
        }
        taken
    }

    /// Puts blocks on top, in their order, as many as fit into the stack. Returns how many it put
    /// there.
    #[inline(never)]
    pub fn push_batch(&mut self, blocks: &[*mut u8]) -> usize {
        let mut header = self.header();
        if header.is_closed() {
            return 0;
        }
        let free = header.capacity(self.class).saturating_sub(header.len(self.class));
        let taken = free.min(blocks.len());
        for &block in &blocks[..taken] {
            header.top += 8;
            self.put(header.top as usize, block);
            if self.is_marked {
                self.mark(block).store(header.top, Ordering::Relaxed);
            }
        }
        self.set_if_any(taken, header);
        taken
    }

    /// Stores the header if any block has changed it.
    fn set_if_any(&mut self, changed: usize, header: Header) {
        if changed > 0 {
            self.set_header(header);
        }
    }

    /// Stores a block in a slot between the top and the limit of the stack: as a whole word, since
    /// [`Slab::has_changed`] may load it meanwhile.
    #[inline(always)]
    fn put(&mut self, slot: usize, block: *mut u8) {
        // SAFETY: the slot lies in the stack, which is ours, and is an aligned word.
        unsafe { &*self.at(slot).cast::<AtomicPtr<u8>>() }.store(block, Ordering::Relaxed);
    }

    /// The block in the slot that a header's top names; null if the stack is empty.
    #[inline(always)]
    fn at_top(&self, top: u32) -> *mut u8 {
        // SAFETY: a top, or a mark, is the offset of an aligned word in the slab. A stack that is
        // new, closed or taken has a top that is always null.
        unsafe { self.at(top as usize).cast::<*mut u8>().read() }
    }

    #[inline(always)]
    fn at(&self, offset: usize) -> *mut u8 {
        // SAFETY: the callers' offsets come from headers, marks and extents, and lie in the slab.
        unsafe { self.slab.address().add(offset) }
    }
}
