//! The cache of one virtual CPU: for each size class a small stack of free blocks.
//!
//! A cache is a [`Slab`] of fixed layout, so that both the restartable sequences (`rseq/`) and
//! the plain code below can work on it. All zero bytes are a valid cache: its stacks look empty
//! to a pop and full to a push, and both lead to the slow path, which sets the stack up.

use core::mem::offset_of;

use crate::size_class::{CLASSES, SizeClass};
use crate::sync::{AtomicU64, Lock, Ordering};

/// log2 of the distance between two slabs, in bytes.
pub(crate) const SLAB_SHIFT: u32 = 18;
/// The most that one stack holds, in bytes of blocks and in blocks.
const STACK_BYTES: usize = 32 * 1024;
const STACK_BLOCKS: usize = 2048;
const STACK_BLOCKS_MIN: usize = 4;
/// What a stack is first set up for; each miss doubles it.
const FIRST_BYTES: usize = 8 * 1024;
const FIRST_BLOCKS: usize = 64;

/// Where a class's stack ends, in bytes from the start of the slab. One aligned word, so that
/// one store replaces it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C, align(8))]
pub(crate) struct Header {
    /// Offset of the newest block, or of the bottom slot where there is none.
    pub top: u32,
    /// Offset that `top` may grow to.
    pub limit: u32,
}

impl Header {
    pub fn to_bits(self) -> u64 {
        self.top as u64 | (self.limit as u64) << 32
    }

    pub fn from_bits(bits: u64) -> Self {
        Self { top: bits as u32, limit: (bits >> 32) as u32 }
    }

    /// True where the stack was never set up.
    pub fn is_new(self) -> bool {
        self.limit == 0
    }

    /// The header after a miss: set up, or with twice the room, up to the class's bound.
    pub fn grown(self, class: SizeClass) -> Self {
        let stack = Stack::of(class);
        if self.is_new() {
            return Self { top: stack.bottom, limit: stack.bottom + 8 * stack.first };
        }
        let room = (self.limit - stack.bottom) * 2;
        Self { top: self.top, limit: stack.bottom + room.min(8 * stack.most) }
    }

    /// How many blocks the stack has room for.
    pub fn room(self, class: SizeClass) -> usize {
        (self.limit.saturating_sub(Stack::of(class).bottom) / 8) as usize
    }

    /// How many blocks it holds.
    pub fn held(self, class: SizeClass) -> usize {
        (self.top.saturating_sub(Stack::of(class).bottom) / 8) as usize
    }
}

/// Where a class's stack lies in a slab.
#[derive(Clone, Copy)]
struct Stack {
    /// Offset of the bottom slot, which stays null.
    bottom: u32,
    /// Blocks of room when it is set up.
    first: u32,
    /// The most blocks of room.
    most: u32,
}

impl Stack {
    #[inline]
    fn of(class: SizeClass) -> Self {
        STACKS[class.index()]
    }
}

static STACKS: [Stack; CLASSES] = {
    let mut stacks = [Stack { bottom: 0, first: 0, most: 0 }; CLASSES];
    let mut offset = size_of::<SlabStart>();
    let mut i = 1;
    while let Some(class) = SizeClass::from_index(i) {
        let most = blocks_in(class, STACK_BYTES, STACK_BLOCKS);
        stacks[i].bottom = offset as u32;
        stacks[i].most = most as u32;
        stacks[i].first = blocks_in(class, FIRST_BYTES, FIRST_BLOCKS) as u32;
        offset += 8 * (most + 1);
        i += 1;
    }
    assert!(offset <= 1 << SLAB_SHIFT);
    stacks
};

/// How many blocks of a class make `bytes`, within bounds.
const fn blocks_in(class: SizeClass, bytes: usize, most: usize) -> usize {
    let blocks = bytes / class.size();
    if blocks < STACK_BLOCKS_MIN {
        STACK_BLOCKS_MIN
    } else if blocks > most {
        most
    } else {
        blocks
    }
}

/// The head of a slab; the stacks' slots follow.
#[repr(C)]
struct SlabStart {
    /// Stays null: what a stack that was never set up has on top.
    zero: u64,
    /// Held by whoever works on the slab, in the mode that locks.
    lock: Lock<()>,
    headers: [Header; CLASSES],
}

/// The cache of one virtual CPU.
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
unsafe fn header_of<'a>(slab: *mut Slab, class: SizeClass) -> &'a AtomicU64 {
    // SAFETY: in the slab, and an aligned word.
    unsafe { &*slab.byte_add(HEADERS_AT).cast::<AtomicU64>().add(class.index()) }
}

/// Offset of the bottom slot of the class's stack.
pub(crate) fn bottom_of(class: SizeClass) -> u32 {
    Stack::of(class).bottom
}

/// The lock of a slab.
///
/// # Safety
/// `slab` is a slab that lives as long as the reference.
pub(crate) unsafe fn lock_of<'a>(slab: *mut Slab) -> &'a Lock<()> {
    // SAFETY: the caller's; the lock is only ever reached through shared references.
    unsafe { &(*slab).start.lock }
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
    let header = Header::from_bits(header);
    header.held(class)
}

/// One class's stack in a slab that this thread owns for the moment: the plain counterpart of
/// the restartable sequences.
pub(crate) struct OwnedStack {
    slab: *mut Slab,
    class: SizeClass,
}

impl OwnedStack {
    /// # Safety
    /// The caller holds the slab's lock while the value lives.
    pub unsafe fn new(slab: *mut Slab, class: SizeClass) -> Self {
        Self { slab, class }
    }

    pub fn header(&self) -> Header {
        // SAFETY: the slab lives while we own it.
        Header::from_bits(unsafe { header_of(self.slab, self.class) }.load(Ordering::Relaxed))
    }

    pub fn set_header(&mut self, header: Header) {
        // SAFETY: as above.
        unsafe { header_of(self.slab, self.class) }.store(header.to_bits(), Ordering::Relaxed);
    }

    /// Takes as many blocks as `blocks` has room for, the newest first; how many came.
    pub fn pop_batch(&mut self, blocks: &mut [*mut u8]) -> usize {
        let mut header = self.header();
        let taken = header.held(self.class).min(blocks.len());
        for block in &mut blocks[..taken] {
            // SAFETY: between the bottom and the top of the stack, which is ours.
            *block = unsafe { self.at(header.top as usize).cast::<*mut u8>().read() };
            header.top -= 8;
        }
        self.set_header(header);
        taken
    }

    /// Puts as many blocks on top as there is room for, the last one topmost; how many went.
    pub fn push_batch(&mut self, blocks: &[*mut u8]) -> usize {
        let mut header = self.header();
        let taken = (header.room(self.class) - header.held(self.class)).min(blocks.len());
        for &block in &blocks[..taken] {
            header.top += 8;
            // SAFETY: between the top and the limit of the stack, which is ours.
            unsafe { self.at(header.top as usize).cast::<*mut u8>().write(block) };
        }
        self.set_header(header);
        taken
    }

    /// The newest block; null if there is none.
    pub fn top(&self) -> *mut u8 {
        // SAFETY: the top is a slot of the stack, or the slab's first word, which is null.
        unsafe { self.at(self.header().top as usize).cast::<*mut u8>().read() }
    }

    fn at(&self, offset: usize) -> *mut u8 {
        // SAFETY: every offset in a header lies in the slab.
        unsafe { self.slab.cast::<u8>().add(offset) }
    }
}
