//! The cache of one virtual CPU or thread: for each size class a small stack of free blocks.
//!
//! A cache is a [`Slab`] of fixed layout, so that both the restartable sequences (`rseq/`) and
//! the plain code below can work on it. All zero bytes are a valid cache: its stacks look empty
//! to a pop and full to a push, and both lead to the slow path, which sets the stack up.
//!
//! Each class has three places in a slab: one for a few blocks, beside the headers, so that an idle
//! thread's cache takes a page or two; one for a few more; and the full one. Caches of virtual
//! CPUs use the full one at once; a thread's stack begins in the smallest and moves as it grows.

use core::mem::offset_of;

use crate::flow::History;
use crate::size_class::{CLASSES, SizeClass};
use crate::sync::{AtomicU64, Lock, Ordering};

/// log2 of the distance between two slabs, in bytes.
pub(crate) const SLAB_SHIFT: u32 = 18;
/// The most that one stack holds, in bytes of blocks and in blocks.
const STACK_BYTES: usize = 256 * 1024;
const STACK_BLOCKS: usize = 1024;
const STACK_BLOCKS_MIN: usize = 4;
/// What a stack is first set up for; each miss doubles it.
const FIRST_BYTES: usize = 8 * 1024;
const FIRST_BLOCKS: usize = 64;
const FIRST_BLOCKS_MIN: usize = 2;
/// The most that a thread's stack holds, in bytes of blocks.
const THREAD_BYTES: usize = 32 * 1024;
/// So many threads may each hold as much.
const FULL_SHARES: usize = 16;
/// What a thread's stack may hold however many threads there are, in bytes.
const LEAST_BYTES: usize = 4 * 1024;

/// Where a class's stack ends, in bytes from the slab's start. One word, so that one store replaces it.
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

    /// The header after a miss: set up in the full place, or with twice the room, up to the
    /// class's bound.
    pub fn grown(self, class: SizeClass) -> Self {
        let stack = Stack::of(FULL, class);
        if self.is_new() {
            return Self { top: stack.bottom, limit: stack.bottom + 8 * first_room(class) as u32 };
        }
        let room = (self.limit - stack.bottom) * 2;
        Self { top: self.top, limit: stack.bottom + room.min(8 * stack.most) }
    }

    /// The header with half the room, but enough for what the stack holds and for what it was first
    /// set up for.
    pub fn shrunk(self, class: SizeClass) -> Self {
        let bottom = self.stack(class).bottom;
        let room = (self.room(class) / 2).max(first_room(class)).max(self.held(class));
        Self { top: self.top, limit: self.limit.min(bottom + 8 * room as u32) }
    }

    /// How many blocks the stack has room for beyond what it was first set up for.
    pub fn extra_room(self, class: SizeClass) -> usize {
        self.room(class).saturating_sub(first_room(class))
    }

    /// How many blocks the stack has room for.
    pub fn room(self, class: SizeClass) -> usize {
        (self.limit.saturating_sub(self.stack(class).bottom) / 8) as usize
    }

    /// How many blocks it holds; more than there is room for where the room has shrunk.
    pub fn held(self, class: SizeClass) -> usize {
        (self.top.saturating_sub(self.stack(class).bottom) / 8) as usize
    }

    /// Which of the class's places the stack is in; the first for one never set up.
    fn place(self, class: SizeClass) -> usize {
        (0..PLACES).rfind(|&place| Stack::of(place, class).contains(self.limit)).unwrap_or(0)
    }

    fn stack(self, class: SizeClass) -> Stack {
        Stack::of(self.place(class), class)
    }
}

/// Where a class's stack may lie in a slab.
#[derive(Clone, Copy)]
struct Stack {
    /// Offset of the bottom slot, which stays null.
    bottom: u32,
    /// The most blocks of room.
    most: u32,
}

impl Stack {
    #[inline]
    fn of(place: usize, class: SizeClass) -> Self {
        STACKS.0[place][class.index()]
    }

    /// Whether a stack with this limit lies here.
    fn contains(self, limit: u32) -> bool {
        (self.bottom..=self.bottom + 8 * self.most).contains(&limit)
    }
}

/// How many places each class has in a slab, from the smallest to the full one.
const PLACES: usize = 3;
const FULL: usize = PLACES - 1;
/// The most blocks in each but the full place.
const PLACE_BLOCKS: [usize; FULL] = [4, 32];

/// The stacks in each place, and where the last of them ends.
static STACKS: ([[Stack; CLASSES]; PLACES], usize) = {
    let mut stacks = [[Stack { bottom: 0, most: 0 }; CLASSES]; PLACES];
    let mut offset = size_of::<SlabStart>();
    let mut place = 0;
    while place < PLACES {
        let mut i = 1;
        while let Some(class) = SizeClass::from_index(i) {
            let mut most = blocks_in(class, STACK_BYTES, STACK_BLOCKS_MIN, STACK_BLOCKS);
            if place < FULL && most > PLACE_BLOCKS[place] {
                most = PLACE_BLOCKS[place];
            }
            stacks[place][i] = Stack { bottom: offset as u32, most: most as u32 };
            offset += 8 * (most + 1);
            i += 1;
        }
        // The headers and the smallest stacks share a page.
        assert!(place > 0 || offset <= 4096);
        place += 1;
    }
    assert!(offset <= 1 << SLAB_SHIFT);
    (stacks, offset)
};

/// Bytes at the start of a slab that are ever used.
pub(crate) fn used_bytes() -> usize {
    STACKS.1
}

/// How many blocks a virtual CPU's stack has room for when it is set up.
fn first_room(class: SizeClass) -> usize {
    // A table, since summing up a slab's room asks for every class.
    static FIRST: [u8; CLASSES] = {
        let mut first = [0; CLASSES];
        let mut i = 1;
        while let Some(class) = SizeClass::from_index(i) {
            first[i] = blocks_in(class, FIRST_BYTES, FIRST_BLOCKS_MIN, FIRST_BLOCKS) as u8;
            i += 1;
        }
        first
    };
    FIRST[class.index()] as usize
}

/// How many blocks of a class make `bytes`, within bounds.
const fn blocks_in(class: SizeClass, bytes: usize, least: usize, most: usize) -> usize {
    match bytes / class.size() {
        blocks if blocks < least => least,
        blocks if blocks > most => most,
        blocks => blocks,
    }
}

/// How many blocks of a class the stack of one of so many threads may hold: the most while threads
/// are few; beyond, all together hold no more, but for a few blocks each, of up to 4 KiB.
pub(crate) fn fair_share(class: SizeClass, threads: usize) -> usize {
    let full = blocks_in(class, THREAD_BYTES, STACK_BLOCKS_MIN, STACK_BLOCKS);
    let few = (LEAST_BYTES / class.size()).min(STACK_BLOCKS_MIN);
    (full * FULL_SHARES / threads.max(FULL_SHARES)).max(few)
}

/// The head of a slab; the stacks' slots follow.
#[repr(C)]
struct SlabStart {
    /// Stays null: what a stack that was never set up has on top.
    zero: u64,
    /// Held by whoever works on the slab, in the mode that locks.
    lock: Lock<()>,
    headers: [Header; CLASSES],
    history: History,
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
unsafe fn header_of<'a>(slab: *mut Slab, class: SizeClass) -> &'a AtomicU64 {
    // SAFETY: in the slab, and an aligned word.
    unsafe { &*slab.byte_add(HEADERS_AT).cast::<AtomicU64>().add(class.index()) }
}

/// Offset of the bottom slot of the class's stack in its full place.
pub(crate) fn bottom_of(class: SizeClass) -> u32 {
    Stack::of(FULL, class).bottom
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
        let block = self.newest(bits as u32);
        if !block.is_null() {
            // The top is the lower half, and above 8 where there is a block.
            self.set_header(Header::from_bits(bits - 8));
        }
        block
    }

    /// Puts a block on top; false if there is no room, or if it is there already.
    #[inline(always)]
    pub fn push(&mut self, block: *mut u8) -> bool {
        let header = self.header();
        if header.top >= header.limit || self.newest(header.top) == block {
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
    fn newest(&self, top: u32) -> *mut u8 {
        // SAFETY: the top is a slot of the stack, or the slab's first word, which is null.
        unsafe { self.at(top as usize).cast::<*mut u8>().read() }
    }

    #[inline(always)]
    fn at(&self, offset: usize) -> *mut u8 {
        // SAFETY: every offset in a header lies in the slab.
        unsafe { self.slab.cast::<u8>().add(offset) }
    }
}
