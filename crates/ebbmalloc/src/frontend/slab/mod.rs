//! The cache of one virtual CPU or thread: for each size class a small stack of free blocks.
//!
//! A cache is a [`Slab`] of fixed layout, so that both the restartable sequences (`rseq/`) and
//! the plain code below can work on it. All zero bytes are a valid cache: its stacks look empty
//! to a pop and full to a push, and both lead to the slow path, which sets the stack up.
//!
//! Each class has three places in a slab: one for a few blocks, beside the headers, so that an idle
//! thread's cache takes a page or two; one for a few more; and the full one. Caches of virtual
//! CPUs use the full one at once; a thread's stack begins in the smallest and moves as it grows.

// Lowest first: each uses only modules above it in this list.
pub(crate) mod layout;
mod stack_header;

// Not `sync`'s, which loom may replace: slabs lie in raw memory.
use core::sync::atomic::{AtomicPtr, AtomicU32};

pub(crate) use layout::{HEADERS_AT, MARK_MULTIPLIER, MARK_SHIFT, MARKS_AT, SLAB_SHIFT};
use layout::{SEEN_AT, SlabStart};
use stack_header::{CLOSED, FULL, PLACE_BLOCKS, Stack, first_capacity};
pub(crate) use stack_header::{Header, bottom_of, fair_share, used_bytes};

use crate::frontend::miss_history::History;
use crate::platform::sync::{AtomicU64, Lock, Ordering};
use crate::size_class::{CLASSES, SizeClass};

/// Which mark is that of a block.
#[inline(always)]
pub(crate) fn mark_of(block: *mut u8) -> usize {
    ((block.addr() as u32).wrapping_mul(MARK_MULTIPLIER) >> MARK_SHIFT) as usize
}

/// Offset of a block's mark from the start of a slab.
#[inline(always)]
pub(crate) fn mark_at(block: *mut u8) -> usize {
    MARKS_AT + mark_of(block) * size_of::<u32>()
}

/// The cache of one virtual CPU or thread.
#[repr(C, align(4096))]
pub struct Slab {
    start: SlabStart,
    slots: [u8; (1 << SLAB_SHIFT) - size_of::<SlabStart>()],
}

/// The header of the class's stack. Only the owner writes it, and whoever empties caches; statistics read it any time.
///
/// # Safety
/// `slab` is a slab that lives as long as the reference.
pub(crate) unsafe fn header_of<'a>(slab: *mut Slab, class: SizeClass) -> &'a AtomicU64 {
    // SAFETY: in the slab, and an aligned word.
    unsafe { &*slab.byte_add(HEADERS_AT).cast::<AtomicU64>().add(class.index()) }
}

/// The lock of a slab.
///
/// # Safety
/// `slab` is a slab that lives as long as the reference.
pub(crate) unsafe fn lock_of<'a>(slab: *mut Slab) -> &'a Lock<()> {
    // SAFETY: the caller's; the lock is only ever reached through shared references.
    unsafe { &(*slab).start.lock }
}

/// Takes down that a block comes from a slab that has marks, though it was not in a stack there. Where a mark is set at the same
/// time, that is perhaps lost, as when a newer block takes it over.
///
/// # Safety
/// `slab` is a slab that has marks, whose lock, where there is one, the caller holds.
pub(crate) unsafe fn mark_local(slab: *mut Slab, block: *mut u8) {
    // SAFETY: the caller's; beside this only sequences work on marks, or who holds the lock.
    let mark = unsafe { &*slab.byte_add(mark_at(block)).cast::<AtomicU32>() };
    if mark.load(Ordering::Relaxed) == 0 {
        // A slot that never holds a block.
        mark.store(CLOSED, Ordering::Relaxed);
    }
}

/// What a slab's stacks have seen: hints, for anyone to read and write.
///
/// # Safety
/// `slab` is a slab that lives as long as the reference.
pub(crate) unsafe fn history_of<'a>(slab: *mut Slab) -> &'a History {
    // SAFETY: the caller's; it is only ever reached through shared references.
    unsafe { &(*slab).start.history }
}

/// Makes the lock of a slab, which for loom's types zero bytes are not.
///
/// # Safety
/// `slab` is a slab that nobody uses yet.
#[cfg(loom)]
pub(crate) unsafe fn set_up_lock(slab: *mut Slab) {
    // SAFETY: the caller's.
    unsafe { (&raw mut (*slab).start.lock).write(Lock::new(())) }
}

/// How many blocks of the class the slab holds. Exact for a slab at rest; a glance otherwise.
///
/// # Safety
/// `slab` is a slab.
pub(crate) unsafe fn cached_blocks(slab: *const Slab, class: SizeClass) -> usize {
    // SAFETY: the caller's.
    let header = unsafe { header_of(slab.cast_mut(), class) }.load(Ordering::Relaxed);
    Header::from_bits(header).held(class)
}

/// Seen by class index of what the stacks of a slab were when somebody last looked which are in use.
pub(crate) type Digests = [AtomicU32; CLASSES];

/// The digests of a virtual CPU's slab, which lie in it.
///
/// # Safety
/// `slab` is a virtual CPU's slab that lives as long as the reference.
pub(crate) unsafe fn digests_of<'a>(slab: *mut Slab) -> &'a Digests {
    // SAFETY: the caller's; atomics are only ever reached through shared references.
    unsafe { &*slab.byte_add(SEEN_AT).cast() }
}

/// True where the class's stack has changed since this was last asked. Hardly ever false where it has: stacks in use
/// often hold as many blocks as before, but not the same one on top.
///
/// # Safety
/// `slab` is a slab, on which others may work meanwhile: they store blocks as whole words.
pub(crate) unsafe fn has_changed(slab: *mut Slab, class: SizeClass, seen: &Digests) -> bool {
    // SAFETY: the caller's; an atomic is only ever reached through shared references.
    unsafe {
        let header = header_of(slab, class).load(Ordering::Acquire);
        let top = Header::from_bits(header).top as usize;
        let newest = (*slab.byte_add(top).cast::<AtomicPtr<u8>>()).load(Ordering::Relaxed);
        // The upper bits of a multiplication by 2^64 divided by the golden ratio (Knuth's hashing).
        let bits = header ^ newest.addr() as u64;
        let digest = (bits.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32;
        seen[class.index()].swap(digest, Ordering::Relaxed) != digest
    }
}

/// Room that stacks of the slab, all in their full places, have beyond what they were first set up for, in
/// bytes of blocks. A glance, where threads work on the slab meanwhile.
///
/// # Safety
/// `slab` is a slab.
pub(crate) unsafe fn extra_capacity(slab: *mut Slab) -> usize {
    // SAFETY: the caller's.
    unsafe { room(slab, true) }
}

/// Room that all stacks of the slab have, as [`extra_capacity`].
///
/// # Safety
/// `slab` is a slab.
pub(crate) unsafe fn full_capacity(slab: *mut Slab) -> usize {
    // SAFETY: the caller's.
    unsafe { room(slab, false) }
}

/// The room of all stacks, or what is extra of it.
///
/// # Safety
/// `slab` is a slab.
#[inline(never)]
unsafe fn room(slab: *mut Slab, extra: bool) -> usize {
    let counted = |class| {
        // SAFETY: the caller's.
        let header = unsafe { header_of(slab, class) }.load(Ordering::Relaxed);
        let room = Header::from_bits(header).limit.saturating_sub(bottom_of(class)) as usize / 8;
        room.saturating_sub(if extra { first_capacity(class) } else { 0 }) * class.size()
    };
    SizeClass::all().map(counted).sum()
}

/// One class's stack in a slab that this thread owns for the moment: the plain counterpart of
/// the restartable sequences.
///
/// Somebody may close a thread's stack at any moment (`drain.rs`), which is no business of an operation that is under way. So each
/// loads the header once, goes by that, and stores none where it found the stack closed: one that was meant for whoever did
/// that would be gone. Nor where it has changed nothing: over the header of whoever has emptied the stack, one of its own would
/// hide from [`OwnedStack::grow`] that this one is done with the slots.
pub(crate) struct OwnedStack {
    slab: *mut Slab,
    class: SizeClass,
}

impl OwnedStack {
    /// # Safety
    /// While the value lives, nobody else works on the slab, but to close stacks: the caller holds its lock, or it is
    /// the calling thread's.
    #[inline(always)]
    pub unsafe fn new(slab: *mut Slab, class: SizeClass) -> Self {
        Self { slab, class }
    }

    #[inline(always)]
    pub fn header(&self) -> Header {
        self.load_header(Ordering::Relaxed)
    }

    #[inline(always)]
    fn load_header(&self, order: Ordering) -> Header {
        // SAFETY: the slab lives while we own it.
        Header::from_bits(unsafe { header_of(self.slab, self.class) }.load(order))
    }

    /// Ordered after what was written to the slots: the child of a fork may find the stores of
    /// another thread cut off anywhere.
    #[inline(always)]
    pub fn set_header(&mut self, header: Header) {
        // SAFETY: as above.
        unsafe { header_of(self.slab, self.class) }.store(header.to_bits(), Ordering::Release);
    }

    /// Takes the newest block; null if there is none.
    #[inline(always)]
    pub fn pop(&mut self) -> *mut u8 {
        let bits = self.header().to_bits();
        let block = self.at_top(bits as u32);
        if !block.is_null() {
            // The top is the lower half, and above 8 where there is a block.
            self.set_header(Header::from_bits(bits - 8));
        }
        block
    }

    /// Whether a block is one of the newest: of so many as a stack that was just set up has room for.
    pub fn is_near_top(&self, block: *mut u8) -> bool {
        let top = self.header().top;
        // Below the oldest lies a null.
        let newest = (0..PLACE_BLOCKS[0] as u32).map(|nth| self.at_top(top - 8 * nth));
        newest.take_while(|newest| !newest.is_null()).any(|newest| newest == block)
    }

    /// Puts a block on top; false if there is no room, or if it is there already.
    #[inline(always)]
    pub fn push(&mut self, block: *mut u8) -> bool {
        let header = self.header();
        if header.top >= header.limit || self.at_top(header.top) == block {
            return false;
        }
        self.put(header.top as usize + 8, block);
        // Below the limit, so nothing is carried into the upper half.
        self.set_header(Header::from_bits(header.to_bits() + 8));
        true
    }

    /// As [`OwnedStack::push`], with marks: false also if there is none for the block, or if it says that the block is
    /// there already, which is certain only if [`OwnedStack::holds`] says so too.
    pub fn push_marked(&mut self, block: *mut u8) -> bool {
        let top = self.header().top;
        let slot = self.slot_of(block, top);
        let pushed = slot != 0 && self.at_top(slot) != block && self.push(block);
        if pushed {
            self.mark(block, top + 8);
        }
        pushed
    }

    /// As [`OwnedStack::push_batch`], with marks.
    pub fn push_batch_marked(&mut self, blocks: &[*mut u8]) -> usize {
        let top = self.header().top;
        let taken = self.push_batch(blocks);
        for (&block, nth) in blocks[..taken].iter().zip(1..) {
            self.mark(block, top + 8 * nth);
        }
        taken
    }

    /// Whether a block is in the stack, which is in its full place, if it is the newest, or if its mark is its own still.
    pub fn holds(&self, block: *mut u8) -> bool {
        let slot = self.slot_of(block, self.header().top);
        slot > bottom_of(self.class) && self.at_top(slot) == block
    }

    /// The slot that a block's mark names, or the newest if that lies above.
    fn slot_of(&self, block: *mut u8, top: u32) -> u32 {
        // SAFETY: one of the slab's marks.
        unsafe { self.at(mark_at(block)).cast::<u32>().read() }.min(top)
    }

    fn mark(&mut self, block: *mut u8, slot: u32) {
        // SAFETY: one of the slab's marks.
        unsafe { self.at(mark_at(block)).cast::<u32>().write(slot) }
    }

    /// As [`Header::grown`], but beginning in the smallest place, and up to `most` blocks; the
    /// stack moves where it outgrows its place. Where it has more room than that, that shrinks.
    /// The header before and after.
    pub fn grow(&mut self, most: usize) -> (Header, Header) {
        // Whoever has emptied the stack is done with reading its slots, which are written to from now on.
        let old = self.load_header(Ordering::Acquire);
        if old.is_closed() {
            return (old, old);
        }
        let (held, room) = (old.held(self.class), old.room(self.class));
        let wanted = (room * 2).max(PLACE_BLOCKS[0]).min(most) as u32;
        let from = old.place(self.class);
        let fits = |&place: &usize| Stack::of(place, self.class).most >= wanted;
        let to = (from..FULL).find(fits).unwrap_or(FULL);
        let stack = Stack::of(to, self.class);
        let new = Header {
            top: stack.bottom + 8 * held as u32,
            limit: stack.bottom + 8 * wanted.min(stack.most),
        };
        if to != from {
            let source = self.at(Stack::of(from, self.class).bottom as usize + 8);
            let target = self.at(stack.bottom as usize + 8);
            // SAFETY: two places of the class, both of which have room for what is held.
            unsafe { source.copy_to_nonoverlapping(target, 8 * held) };
        }
        self.set_header(new);
        (old, new)
    }

    /// Takes as many blocks as `blocks` has room for, the newest first; how many came.
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

    /// The same for a stack that this header describes: leaves it to the caller to store that.
    pub fn take(&self, header: &mut Header, blocks: &mut [*mut u8]) -> usize {
        let taken = header.held(self.class).min(blocks.len());
        for block in &mut blocks[..taken] {
            // SAFETY: between the bottom and the top of the stack, which is ours.
            *block = unsafe { self.at(header.top as usize).cast::<*mut u8>().read() };
            header.top -= 8;
        }
        taken
    }

    /// Puts as many blocks on top as there is room for, the last one topmost; how many went.
    #[inline(never)]
    pub fn push_batch(&mut self, blocks: &[*mut u8]) -> usize {
        let mut header = self.header();
        if header.is_closed() {
            return 0;
        }
        let free = header.room(self.class).saturating_sub(header.held(self.class));
        let taken = free.min(blocks.len());
        for &block in &blocks[..taken] {
            header.top += 8;
            self.put(header.top as usize, block);
        }
        self.set_if_any(taken, header);
        taken
    }

    /// Stores the header that so many blocks have changed, if any.
    fn set_if_any(&mut self, changed: usize, header: Header) {
        if changed > 0 {
            self.set_header(header);
        }
    }

    /// Stores a block in a slot between the top and the limit of the stack: whole, since somebody may look at it meanwhile
    /// ([`has_changed`]).
    #[inline(always)]
    fn put(&mut self, slot: usize, block: *mut u8) {
        // SAFETY: in the stack, which is ours; the word is aligned.
        unsafe { &*self.at(slot).cast::<AtomicPtr<u8>>() }.store(block, Ordering::Relaxed);
    }

    /// The block in the slot that a header's top names; null where the stack is empty.
    #[inline(always)]
    fn at_top(&self, top: u32) -> *mut u8 {
        // SAFETY: the top is a slot of the stack, or the slab's first word, which is null.
        unsafe { self.at(top as usize).cast::<*mut u8>().read() }
    }

    #[inline(always)]
    fn at(&self, offset: usize) -> *mut u8 {
        // SAFETY: every offset in a header lies in the slab.
        unsafe { self.slab.cast::<u8>().add(offset) }
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
        assert!(used_bytes() + 4096 <= size_of::<Slab>(), "{:#x}", used_bytes());
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
