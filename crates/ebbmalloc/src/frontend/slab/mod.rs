//! A cache, of a virtual CPU, a thread, a shared slot, or a transfer cache: a stack of free blocks
//! for each size class.
//!
//! A cache is a [`Slab`] of fixed layout, so that both the restartable sequences (`frontend/rseq/`)
//! and the plain code below can work on it. All zero bytes are a valid cache: its stacks look empty
//! to a pop and full to a push, and both lead to the slow path, which sets the stack up.
//!
//! Each class has three *extents* in a slab, ranges of slots in which its stack may lie. The
//! smallest, for 4 blocks, lies beside the headers, so that the cache of an idle thread takes a
//! page or two. The next is for 32 blocks, and the last is the full one. Stacks of virtual CPUs lie
//! in the full extent from the start; a thread's stack begins in the smallest and moves as it
//! grows.

mod layout;

use core::mem::offset_of;
use core::ptr::NonNull;
// Not `sync`'s, which loom may replace: slabs lie in raw memory.
use core::sync::atomic::{AtomicPtr, AtomicU32};

use layout::{CLOSED, DIGESTS_AT, EXTENT_BLOCKS, Extent, FULL, SlabStart};
pub(crate) use layout::{
    HEADERS_AT, Header, MARK_MULTIPLIER, MARK_SHIFT, MARKS_AT, SLAB_SHIFT, bottom_of, fair_share,
    is_late, used_bytes,
};

use crate::frontend::miss_history::History;
use crate::platform::sync::{AtomicU64, Lock, Ordering};
use crate::size_class::{CLASSES, SizeClass};

/// The number of a block's mark.
#[inline(always)]
pub(crate) fn mark_of(block: *mut u8) -> usize {
    ((block.addr() as u32).wrapping_mul(MARK_MULTIPLIER) >> MARK_SHIFT) as usize
}

/// Offset of a block's mark from the start of a slab.
#[inline(always)]
pub(crate) fn mark_at(block: *mut u8) -> usize {
    MARKS_AT + mark_of(block) * size_of::<u32>()
}

/// The memory of a cache.
#[repr(C, align(4096))]
pub struct SlabMemory {
    start: SlabStart,
    slots: [u8; (1 << SLAB_SHIFT) - size_of::<SlabStart>()],
}

/// A cache, which lives as long as the engine.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slab(NonNull<SlabMemory>);

impl Slab {
    /// # Safety
    /// A slab lies there, and lives as long as the value and all that its methods return.
    #[inline(always)]
    pub unsafe fn new(memory: *mut SlabMemory) -> Self {
        // SAFETY: the caller guarantees that a slab lies there.
        Self(unsafe { NonNull::new_unchecked(memory) })
    }

    #[inline(always)]
    pub fn address(self) -> *mut u8 {
        self.0.as_ptr().cast()
    }

    /// The header of the class's stack, as bits. Only the owner, a drainer, and a thread that
    /// reopens a closed stack write it. Statistics read it at any time.
    #[inline(always)]
    fn header_word<'a>(self, class: SizeClass) -> &'a AtomicU64 {
        self.word(HEADERS_AT + class.index() * size_of::<Header>())
    }

    /// The word at an offset that is the position of one.
    #[inline(always)]
    fn word<'a, T>(self, offset: usize) -> &'a T {
        // SAFETY: by `new`, the slab lives long enough. The callers' offsets are those of atomics,
        // which are only ever reached through shared references.
        unsafe { self.0.byte_add(offset).cast().as_ref() }
    }

    /// The header of the class's stack at this moment.
    pub fn header(self, class: SizeClass) -> Header {
        Header::from_bits(self.header_word(class).load(Ordering::Acquire))
    }

    /// Atomically replaces the header of the class's stack by `to(header)`; false if that is
    /// `None`.
    pub fn change(self, class: SizeClass, to: impl Fn(Header) -> Option<Header>) -> bool {
        let to = |bits| to(Header::from_bits(bits)).map(Header::to_bits);
        self.header_word(class).fetch_update(Ordering::AcqRel, Ordering::Acquire, to).is_ok()
    }

    pub fn lock<'a>(self) -> &'a Lock<()> {
        self.word(offset_of!(SlabMemory, start.lock))
    }

    /// Initializes the lock: zero bytes are no valid lock of loom's types.
    ///
    /// # Safety
    /// No thread uses the slab yet.
    #[cfg(loom)]
    pub unsafe fn set_up_lock(self) {
        // SAFETY: the caller guarantees that no other thread uses the slab.
        unsafe { (&raw mut (*self.0.as_ptr()).start.lock).write(Lock::new(())) }
    }

    /// The miss history of the stacks: hints, which any thread may read and write.
    pub fn history<'a>(self) -> &'a History {
        self.word(offset_of!(SlabMemory, start.history))
    }

    /// The digests of a slab that has marks.
    ///
    /// # Safety
    /// It has marks: it is no thread's own.
    pub unsafe fn digests<'a>(self) -> &'a Digests {
        self.word(DIGESTS_AT)
    }

    /// The mark of a block.
    ///
    /// # Safety
    /// The slab has marks.
    #[inline(always)]
    unsafe fn mark<'a>(self, block: *mut u8) -> &'a AtomicU32 {
        self.word(mark_at(block))
    }

    /// Records that a block comes from here, though it was not in a stack. If a user of
    /// the slab sets the same mark meanwhile, one of both records is lost. A newer block with this
    /// mark takes it over.
    ///
    /// # Safety
    /// The slab has marks.
    pub unsafe fn mark_local(self, block: *mut u8) {
        // SAFETY: the caller's.
        let mark = unsafe { self.mark(block) };
        if mark.load(Ordering::Relaxed) == 0 {
            // A slot that never holds a block.
            mark.store(CLOSED, Ordering::Relaxed);
        }
    }

    /// True if a block of the caller's is certainly in the stack, which is in its full extent: the
    /// block was freed twice. A block is found if it is the newest, or if no other block has taken
    /// its mark over.
    ///
    /// Other threads may work on the slab meanwhile. But none of them puts this block into the
    /// stack, as it is the caller's. And a slot below a top that was loaded before has held a block
    /// of the stack's since: so if it holds this one, that is there twice.
    ///
    /// # Safety
    /// The slab has marks.
    #[inline]
    pub unsafe fn holds(self, class: SizeClass, block: *mut u8) -> bool {
        let top = self.header(class).top;
        // SAFETY: the caller's.
        let slot = unsafe { self.mark(block) }.load(Ordering::Relaxed).min(top);
        slot > bottom_of(class) && self.in_slot(slot) == block
    }

    /// The block in the slot that a top or a mark names.
    fn in_slot(self, slot: u32) -> *mut u8 {
        self.word::<AtomicPtr<u8>>(slot as usize).load(Ordering::Relaxed)
    }

    /// Number of blocks of the class: exact if no thread works on the slab, else a recent value.
    pub fn cached_blocks(self, class: SizeClass) -> usize {
        self.header(class).len(class)
    }

    /// True if the class's stack has changed since the last call. It is hardly ever false for a
    /// stack that has: stacks in use often hold as many blocks as before, but seldom the same one
    /// on top.
    pub fn has_changed(self, class: SizeClass, digests: &Digests) -> bool {
        let header = self.header(class);
        // The upper bits of a multiplication by 2^64 divided by the golden ratio (Knuth's hashing).
        let bits = header.to_bits() ^ self.in_slot(header.top).addr() as u64;
        let digest = (bits.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32;
        digests[class.index()].swap(digest, Ordering::Relaxed) != digest
    }

    /// Capacity of all stacks beyond their first one, in bytes of blocks. The stacks lie in their
    /// full extents. While threads work on the slab it is a recent value.
    pub fn extra_capacity(self) -> usize {
        self.capacity_bytes(true)
    }

    /// Capacity of all stacks, in bytes of blocks; else as [`Slab::extra_capacity`].
    pub fn total_capacity(self) -> usize {
        self.capacity_bytes(false)
    }

    #[inline(never)]
    fn capacity_bytes(self, beyond_first: bool) -> usize {
        let bytes = |class| {
            let full = Extent::of(FULL, class);
            let blocks = self.header(class).limit.saturating_sub(full.bottom) / 8;
            let first = if beyond_first { full.step_blocks } else { 0 };
            blocks.saturating_sub(first) as usize * class.size()
        };
        SizeClass::all().map(bytes).sum()
    }
}

/// By class index, digests of the stacks of a slab as they were when a round last looked which of
/// them are in use.
pub(crate) type Digests = [AtomicU32; CLASSES];

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

#[cfg(test)]
mod tests {
    use crate::frontend::tuning::MARKS;
    use core::ptr;
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn what_two_cpus_write_lies_a_page_apart() {
        assert!(used_bytes() + 4096 <= size_of::<SlabMemory>(), "{:#x}", used_bytes());
    }

    #[test]
    fn neighbours_have_marks_of_their_own() {
        for class in SizeClass::all() {
            for start in [0, 0x7f12_3456_0000, 0xffff_0000] {
                let block = |nth: usize| ptr::without_provenance_mut(start + nth * class.size());
                let marks: HashSet<_> = (0..190).map(|nth| mark_of(block(nth))).collect();
                assert_eq!(marks.len(), 190, "blocks of {} bytes from {start:#x} on", class.size());
                assert!(marks.iter().all(|&mark| mark < MARKS));
            }
        }
    }
}
