//! A cache, of a virtual CPU, a thread, a shared slot, or a transfer cache: a stack of free blocks
//! for each size class.
//!
//! A cache is a [`Slab`] of fixed layout, so that both the restartable sequences (`frontend/rseq/`)
//! and plain code (`owned_stack.rs`) can work on it. All zero bytes are a valid cache: its stacks
//! look empty to a pop and full to a push, and both lead to the slow path, which sets the stack up.
//!
//! Each class has three *extents* in a slab, ranges of slots in which its stack may lie. The
//! smallest, for 4 blocks, lies beside the headers, so that the cache of an idle thread takes a
//! page or two. The next is for 32 blocks, and the last is the full one. Stacks of virtual CPUs lie
//! in the full extent from the start; a thread's stack begins in the smallest and moves as it
//! grows.
//!
//! The *miss history* of a slab detects streaks, in which a stack misses the same way again and
//! again. If a thread frees and allocates by turns, its stacks are best half full, which serves
//! both. If it only allocates for a while, or only frees, half of the stack would stay unused, and
//! the number of batches costs time. So a refill in a streak fills the whole stack, and a flush in
//! a streak empties it (`engine/caches/miss.rs`; decisions/0007).

use core::mem::offset_of;
use core::ptr::NonNull;
// Not `sync`'s, which loom may replace: slabs lie in raw memory.
use core::sync::atomic::{AtomicPtr, AtomicU32};

use crate::frontend::tuning::{
    FLOW_MISSES, FULL_THREADS_MAX, LATE_BLOCK_BYTES, LATE_MISSES, MARKS, MIDDLE_EXTENT_BLOCKS,
    SLAB_GAP_BYTES, SMALLEST_EXTENT_BLOCKS, STACK_BLOCKS_MAX, STACK_BLOCKS_MIN, STACK_BYTES_MAX,
    STACK_STEP_BLOCKS_MAX, STACK_STEP_BLOCKS_MIN, STACK_STEP_BYTES, THREAD_STACK_BLOCKS_MIN,
    THREAD_STACK_BYTES_MAX, THREAD_STACK_BYTES_MIN, TINY_STACK_BLOCKS_MAX, TINY_STACK_BYTES_MAX,
};
use crate::platform::sync::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Lock, Ordering};
use crate::size_class::{CLASSES, SizeClass};

#[cfg(test)]
mod tests;

/// log2 of the distance between two slabs, in bytes.
pub(crate) const SLAB_SHIFT: u32 = 18;

/// Offset of the marks, of 32 bits each, from the start of a slab. They share a page with the
/// headers, so an operation needs one TLB entry less (decisions/0002). Caches of threads have their
/// small extents there.
pub(crate) const MARKS_AT: usize = 1024;
/// Offset of the digests, of 32 bits by class index: see [`Digests`]. Only slabs that have marks
/// have digests.
const DIGESTS_AT: usize = MARKS_AT + MARKS * size_of::<u32>();
const DIGESTS_END: usize = DIGESTS_AT + CLASSES * size_of::<u32>();
/// Multiplier of an address's lower half: the upper bits of the product are the number of its mark.
/// Chosen so that nearly 200 neighbours have different marks, whatever their class.
pub(crate) const MARK_MULTIPLIER: u32 = 0xd050_1e0b;
/// Number of bits of the product below the number of the mark.
pub(crate) const MARK_SHIFT: u32 = 32 - MARKS.ilog2();

/// The head of a slab; the stacks' slots follow.
#[repr(C)]
struct SlabStart {
    /// Stays null: the top of a stack that was never set up.
    zero: u64,
    /// Held by the thread that works on the slab, for slabs that are locked: those that threads
    /// share in thread mode and slot mode, and transfer caches.
    lock: Lock<()>,
    /// Bits of a [`Header`] for each class.
    headers: [u64; CLASSES],
    history: History,
}

/// Offset of the headers from the start of a slab, by class index.
pub(crate) const HEADERS_AT: usize = offset_of!(SlabStart, headers);

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
    pub(super) fn header_word<'a>(self, class: SizeClass) -> &'a AtomicU64 {
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

    /// Opens the class's stack again with all its blocks, if it is closed and not taken.
    ///
    /// A closed stack that is not taken has not changed. So an operation in progress may still
    /// store a header that it made from the one before the closing. Any thread may do this for any
    /// slab.
    pub fn reopen(self, class: SizeClass) {
        self.change(class, |header| header.reopened(class));
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
    pub(super) unsafe fn mark<'a>(self, block: *mut u8) -> &'a AtomicU32 {
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

/// The top of a class's stack and the limit of the top, in bytes from the start of the slab. It is
/// one aligned word, so that one store replaces it. `docs/rseq.md` lists the states of a stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C, align(8))]
pub(crate) struct Header {
    /// Offset of the newest block, or of the bottom slot if there is none.
    pub top: u32,
    /// The highest offset that `top` may reach.
    pub limit: u32,
}

impl Header {
    pub fn to_bits(self) -> u64 {
        self.top as u64 | (self.limit as u64) << 32
    }

    pub fn from_bits(bits: u64) -> Self {
        Self { top: bits as u32, limit: (bits >> 32) as u32 }
    }

    /// The header with which a drainer closes the stack (`engine/caches/drain.rs`): the stack then
    /// looks empty to a pop and full to a push.
    ///
    /// The top is a slot that belongs to no stack. The limit lies below it, and encodes the extent
    /// and the number of blocks. For a stack that was never set up the limit stays 0: a push that
    /// loaded its top, which is 0, before the closing may compare that with this limit.
    pub fn closed(self, class: SizeClass) -> Self {
        if self.is_closed() {
            return self;
        }
        let encoded = CLOSED_FROM[self.extent_index(class)] + self.len(class);
        // A stack that waits for capacity begins to wait again: rare misses must not add up.
        let begins_anew = self.is_new() || self.waits(class);
        Self { top: CLOSED, limit: if begins_anew { 0 } else { encoded as u32 } }
    }

    /// True for a closed stack, and for one that a drainer has taken.
    pub fn is_closed(self) -> bool {
        self.top == CLOSED || self.is_taken()
    }

    /// The header with which a drainer takes a closed stack before it empties it: no other thread
    /// reopens the stack then. `None` if the stack is not closed, or is already taken.
    pub fn taken(self) -> Option<Self> {
        (self.top == CLOSED).then_some(Self { top: TAKEN, ..self })
    }

    pub fn is_taken(self) -> bool {
        self.top == TAKEN
    }

    /// As [`Header::opened`], for a thread that needs a closed stack. `None` if the stack is not
    /// closed, or is taken.
    pub fn reopened(self, class: SizeClass) -> Option<Self> {
        (self.top == CLOSED).then(|| self.opened(class))
    }

    /// The header of a closed stack once it is open again: in the same extent, with capacity for
    /// just the blocks in it. A stack that was never set up, or that waited, becomes new again.
    pub fn opened(self, class: SizeClass) -> Self {
        if self.is_new() {
            return Self::default();
        }
        let (extent, cached) = self.decode_closed();
        let top = Extent::of(extent, class).bottom + 8 * cached as u32;
        Self { top, limit: top }
    }

    /// True if the stack was never set up, or not since it was last drained; also while it is
    /// closed.
    pub fn is_new(self) -> bool {
        self.limit == 0
    }

    /// True if the stack has no capacity yet. Its limit then lies below its bottom, by a slot for
    /// each miss that is still to come.
    pub fn waits(self, class: SizeClass) -> bool {
        let bottom = Extent::of(FULL, class).bottom;
        !self.is_closed() && (bottom - 8 * LATE_MISSES..bottom).contains(&self.limit)
    }

    /// The header after a miss. A new stack is set up in its full extent, one that waits comes a
    /// step nearer to its first capacity, and any other gets a step more, up to the class's bound.
    #[inline(never)] // Seldom needed, but called from several functions.
    pub fn grown(self, class: SizeClass) -> Self {
        if is_late(class) && self.is_new() && !self.is_closed() {
            let bottom = Extent::of(FULL, class).bottom;
            Self { top: bottom, limit: bottom - 8 * LATE_MISSES }
        } else if self.waits(class) {
            Self { limit: self.limit + 8, ..self }
        } else {
            self.widened(class)
        }
    }

    /// As [`Header::grown`], but the stack does not wait.
    pub fn widened(self, class: SizeClass) -> Self {
        if self.is_closed() {
            return self;
        }
        let full = Extent::of(FULL, class);
        let top = if self.is_new() { full.bottom } else { self.top };
        let capacity = self.capacity(class) as u32 + full.step_blocks;
        Self { top, limit: full.bottom + 8 * capacity.min(full.max_blocks) }
    }

    /// The stack's capacity in blocks; 0 while it is closed.
    #[inline(never)]
    pub fn capacity(self, class: SizeClass) -> usize {
        if self.is_closed() {
            return 0;
        }
        (self.limit.saturating_sub(self.extent(class).bottom) / 8) as usize
    }

    /// Number of blocks in the stack, closed or not. May exceed a capacity that has shrunk.
    #[inline(never)]
    pub fn len(self, class: SizeClass) -> usize {
        if self.is_closed() {
            return self.decode_closed().1;
        }
        (self.top.saturating_sub(self.extent(class).bottom) / 8) as usize
    }

    /// The index of the extent that the stack is in; 0 for a stack that was never set up.
    #[inline(never)] // Called from a dozen functions, none of them hot.
    pub(super) fn extent_index(self, class: SizeClass) -> usize {
        let found = (0..EXTENTS).rfind(|&index| Extent::of(index, class).contains(self.limit));
        found.unwrap_or(if self.waits(class) { FULL } else { 0 })
    }

    fn extent(self, class: SizeClass) -> Extent {
        Extent::of(self.extent_index(class), class)
    }

    /// The index of the extent of a closed stack, and the number of blocks in it.
    fn decode_closed(self) -> (usize, usize) {
        let encoded = self.limit as usize;
        let extent = CLOSED_FROM.iter().rposition(|&from| from <= encoded).unwrap_or(0);
        (extent, encoded.saturating_sub(CLOSED_FROM[extent]))
    }
}

/// Limits of closed stacks without blocks, by extent. Each block adds one.
const CLOSED_FROM: [usize; EXTENTS] =
    [1, 2 + EXTENT_BLOCKS[0], 3 + EXTENT_BLOCKS[0] + EXTENT_BLOCKS[1]];

/// Offset of the slot that is the top of every closed stack. It stays null, as does the next slot,
/// [`TAKEN`]. Both lie behind the small extents, on the page that stays resident when the slots of
/// stacks go back to the kernel.
const CLOSED: u32 = (size_of::<SlabStart>() + 8 * (CLASSES - 1) * (EXTENT_BLOCKS[0] + 1)) as u32;
/// Offset of the slot that is the top of every stack that a drainer has taken.
const TAKEN: u32 = CLOSED + 8;
/// The limit of a closed stack never lies above its top.
const _: () = assert!((CLOSED_FROM[FULL] + TINY_STACK_BLOCKS_MAX) as u32 <= CLOSED);
/// Marks and digests overlap the small extents: no slab uses both.
const _: () = assert!(size_of::<SlabStart>() <= MARKS_AT && DIGESTS_END <= CLOSED as usize);

/// Whether stacks of this class get capacity only after many misses.
pub(crate) fn is_late(class: SizeClass) -> bool {
    class.size() > LATE_BLOCK_BYTES
}

/// A range of slots in a slab in which a class's stack may lie.
#[derive(Clone, Copy)]
pub(super) struct Extent {
    /// Offset of the bottom slot, which stays null.
    pub bottom: u32,
    /// The most blocks that fit.
    pub max_blocks: u32,
    /// The first capacity of a virtual CPU's stack of this class, and each step by which it grows.
    pub step_blocks: u32,
}

impl Extent {
    #[inline]
    pub fn of(index: usize, class: SizeClass) -> Self {
        LAYOUT.0[index][class.index()]
    }

    /// True if the stack that has this limit lies here.
    fn contains(self, limit: u32) -> bool {
        (self.bottom..=self.bottom + 8 * self.max_blocks).contains(&limit)
    }
}

/// Number of extents that each class has in a slab, from the smallest to the full one.
const EXTENTS: usize = 3;
pub(super) const FULL: usize = EXTENTS - 1;
/// The most blocks in each extent but the full one.
pub(super) const EXTENT_BLOCKS: [usize; FULL] = [SMALLEST_EXTENT_BLOCKS, MIDDLE_EXTENT_BLOCKS];

/// The extents of a slab by index and class, and the offset of the end of the last one.
static LAYOUT: ([[Extent; CLASSES]; EXTENTS], usize) = {
    let mut extents = [[Extent { bottom: 0, max_blocks: 0, step_blocks: 0 }; CLASSES]; EXTENTS];
    let mut offset = size_of::<SlabStart>();
    let mut index = 0;
    while index < EXTENTS {
        let mut i = 1;
        while let Some(class) = SizeClass::from_index(i) {
            let mut max_blocks = stack_blocks_max(class);
            if index < FULL && max_blocks > EXTENT_BLOCKS[index] {
                max_blocks = EXTENT_BLOCKS[index];
            }
            // The limit of a stack that waits lies between its full extent and its smaller ones.
            if index == FULL {
                let Extent { bottom, max_blocks, .. } = extents[index - 1][i];
                assert!(offset as u32 > bottom + 8 * (max_blocks + LATE_MISSES));
            }
            let step_blocks =
                blocks_in(class, STACK_STEP_BYTES, STACK_STEP_BLOCKS_MIN, STACK_STEP_BLOCKS_MAX)
                    as u32;
            extents[index][i] =
                Extent { bottom: offset as u32, max_blocks: max_blocks as u32, step_blocks };
            offset += 8 * (max_blocks + 1);
            i += 1;
        }
        // One page has the headers, the small extents or the marks, and the tops of closed and
        // taken stacks.
        if index == 0 {
            assert!(offset == CLOSED as usize);
            offset += 16;
            assert!(offset <= 4096);
        }
        index += 1;
    }
    assert!(offset <= (1 << SLAB_SHIFT) - SLAB_GAP_BYTES);
    (extents, offset)
};

/// Bytes at the start of a slab that are ever used.
pub(crate) const fn used_bytes() -> usize {
    LAYOUT.1
}

/// The most blocks that a virtual CPU's stack holds.
const fn stack_blocks_max(class: SizeClass) -> usize {
    let tiny = blocks_in(class, TINY_STACK_BYTES_MAX, STACK_BLOCKS_MAX, TINY_STACK_BLOCKS_MAX);
    blocks_in(class, STACK_BYTES_MAX, STACK_BLOCKS_MIN, tiny)
}

/// The number of blocks of a class in `bytes`, within bounds.
const fn blocks_in(class: SizeClass, bytes: usize, min: usize, max: usize) -> usize {
    let blocks = bytes / class.size();
    if blocks < min {
        min
    } else if blocks > max {
        max
    } else {
        blocks
    }
}

/// The most blocks of a class that a thread's stack may hold while this many threads have caches.
///
/// Up to [`FULL_THREADS_MAX`] threads fill their stacks. More threads together hold no more than
/// these. But each may always hold up to [`THREAD_STACK_BLOCKS_MIN`] blocks, of
/// [`THREAD_STACK_BYTES_MIN`] together.
pub(crate) fn fair_share(class: SizeClass, threads: usize) -> usize {
    let full =
        blocks_in(class, THREAD_STACK_BYTES_MAX, THREAD_STACK_BLOCKS_MIN, TINY_STACK_BLOCKS_MAX);
    let min = (THREAD_STACK_BYTES_MIN / class.size()).min(THREAD_STACK_BLOCKS_MIN);
    (full * FULL_THREADS_MAX / threads.max(FULL_THREADS_MAX)).max(min)
}

/// Offset of the bottom slot of the class's full extent.
pub(crate) fn bottom_of(class: SizeClass) -> u32 {
    Extent::of(FULL, class).bottom
}

/// How a cache missed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MissKind {
    /// It was empty: an allocation found no block.
    Underflow = 1,
    /// It was full: a free found no slot for its block.
    Overflow = 2,
}

/// The lowest bits of a streak, which count misses. The bits above are a [`MissKind`].
const COUNT_BITS: u32 = 4;

/// The miss history of one cache. All zero bytes are an empty history.
///
/// It consists of hints. Plain loads and stores may lose an update; only the sizes of batches
/// depend on it.
#[repr(C)]
pub(crate) struct History {
    /// Misses of stacks that got no more capacity.
    pub refused: AtomicUsize,
    /// True once a stack was set up here.
    pub used: AtomicBool,
    /// For each class, the kind of the last miss, and how many like it came in a row.
    streaks: [AtomicU8; CLASSES],
}

impl History {
    /// Records a miss. Returns how many of the same kind came before it in a row, up to
    /// [`FLOW_MISSES`].
    pub fn note(&self, class: SizeClass, kind: MissKind) -> u8 {
        let streak = &self.streaks[class.index()];
        let old = streak.load(Ordering::Relaxed);
        let (last, count) = (old >> COUNT_BITS, old % (1 << COUNT_BITS));
        if last != kind as u8 {
            streak.store((kind as u8) << COUNT_BITS | 1, Ordering::Relaxed);
            return 0;
        }
        if count < FLOW_MISSES {
            streak.store(old + 1, Ordering::Relaxed);
        }
        count
    }
}
