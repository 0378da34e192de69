//! The cache of one virtual CPU or thread: for each size class a small stack of free blocks.
//!
//! A cache is a [`Slab`] of fixed layout, so that both the restartable sequences (`rseq/`) and
//! the plain code below can work on it. All zero bytes are a valid cache: its stacks look empty
//! to a pop and full to a push, and both lead to the slow path, which sets the stack up.
//!
//! Each class has three places in a slab: one for a few blocks, beside the headers, so that an idle
//! thread's cache takes a page or two; one for a few more; and the full one. Caches of virtual
//! CPUs use the full one at once; a thread's stack begins in the smallest and moves as it grows.

mod layout;

use core::mem::offset_of;

use layout::{FULL, PLACE_BLOCKS, Stack, first_room};
pub(crate) use layout::{Header, bottom_of, fair_share, used_bytes};

use crate::size_class::{CLASSES, SizeClass};
use crate::streak::History;
use crate::sync::{AtomicU8, AtomicU64, Lock, Ordering};

/// log2 of the distance between two slabs, in bytes.
pub(crate) const SLAB_SHIFT: u32 = 18;

/// The head of a slab; the stacks' slots follow.
#[repr(C)]
struct SlabStart {
    /// Stays null: what a stack that was never set up has on top.
    zero: u64,
    /// Held by whoever works on the slab, in the mode that locks.
    lock: Lock<()>,
    headers: [Header; CLASSES],
    history: History,
    /// Digests of the headers when somebody last looked which stacks are in use.
    seen: [AtomicU8; CLASSES],
}

/// The cache of one virtual CPU or thread.
#[repr(C, align(4096))]
pub struct Slab {
    start: SlabStart,
    slots: [u8; (1 << SLAB_SHIFT) - size_of::<SlabStart>()],
}

/// Offset of the headers from the start of a slab, by class index.
pub(crate) const HEADERS_AT: usize = offset_of!(SlabStart, headers);

/// The header of the class's stack. Only the owner writes it; statistics read it any time.
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
pub(crate) unsafe fn held(slab: *const Slab, class: SizeClass) -> usize {
    // SAFETY: the caller's.
    let header = unsafe { header_of(slab.cast_mut(), class) }.load(Ordering::Relaxed);
    Header::from_bits(header).held(class)
}

/// True where the class's stack has changed since this was last asked. Hardly ever false where it has.
///
/// # Safety
/// `slab` is a slab.
pub(crate) unsafe fn has_changed(slab: *mut Slab, class: SizeClass) -> bool {
    // SAFETY: the caller's; an atomic is only ever reached through shared references.
    unsafe {
        let header = header_of(slab, class).load(Ordering::Relaxed);
        // The upper bits of a multiplication by 2^64 divided by the golden ratio (Knuth's hashing).
        let digest = (header.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
        (*slab).start.seen[class.index()].swap(digest, Ordering::Relaxed) != digest
    }
}

/// Room that stacks of the slab, all in their full places, have beyond what they were first set up for, in
/// bytes of blocks. A glance, where threads work on the slab meanwhile.
///
/// # Safety
/// `slab` is a slab.
pub(crate) unsafe fn extra_room(slab: *mut Slab) -> usize {
    let extra = |class| {
        // SAFETY: the caller's.
        let header = unsafe { header_of(slab, class) }.load(Ordering::Relaxed);
        let room = Header::from_bits(header).limit.saturating_sub(bottom_of(class)) as usize / 8;
        room.saturating_sub(first_room(class)) * class.size()
    };
    SizeClass::all().map(extra).sum()
}

/// One class's stack in a slab that this thread owns for the moment: the plain counterpart of
/// the restartable sequences.
pub(crate) struct OwnedStack {
    slab: *mut Slab,
    class: SizeClass,
}

impl OwnedStack {
    /// # Safety
    /// While the value lives, nobody else works on the slab: the caller holds its lock, or it is
    /// the calling thread's.
    #[inline(always)]
    pub unsafe fn new(slab: *mut Slab, class: SizeClass) -> Self {
        Self { slab, class }
    }

    #[inline(always)]
    pub fn header(&self) -> Header {
        // SAFETY: the slab lives while we own it.
        Header::from_bits(unsafe { header_of(self.slab, self.class) }.load(Ordering::Relaxed))
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

    /// The newest block, which stays; null if there is none.
    #[inline(always)]
    pub fn newest(&self) -> *mut u8 {
        self.at_top(self.header().top)
    }

    /// Puts a block on top; false if there is no room, or if it is there already.
    #[inline(always)]
    pub fn push(&mut self, block: *mut u8) -> bool {
        let header = self.header();
        if header.top >= header.limit || self.at_top(header.top) == block {
            return false;
        }
        // SAFETY: between the top and the limit of the stack, which is ours.
        unsafe { self.at(header.top as usize + 8).cast::<*mut u8>().write(block) };
        // Below the limit, so nothing is carried into the upper half.
        self.set_header(Header::from_bits(header.to_bits() + 8));
        true
    }

    /// As [`Header::grown`], but beginning in the smallest place, and up to `most` blocks; the
    /// stack moves where it outgrows its place. Where it has more room than that, that shrinks.
    /// The header before and after.
    pub fn grow(&mut self, most: usize) -> (Header, Header) {
        let old = self.header();
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
    pub fn pop_batch(&mut self, blocks: &mut [*mut u8]) -> usize {
        let mut header = self.header();
        let taken = self.take(&mut header, blocks);
        self.set_header(header);
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
    pub fn push_batch(&mut self, blocks: &[*mut u8]) -> usize {
        let mut header = self.header();
        let free = header.room(self.class).saturating_sub(header.held(self.class));
        let taken = free.min(blocks.len());
        for &block in &blocks[..taken] {
            header.top += 8;
            // SAFETY: between the top and the limit of the stack, which is ours.
            unsafe { self.at(header.top as usize).cast::<*mut u8>().write(block) };
        }
        self.set_header(header);
        taken
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
