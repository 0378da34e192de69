//! The layout of a slab: its head, the headers of its stacks, their positions and capacities.

use core::mem::offset_of;

use crate::frontend::miss_history::History;
use crate::frontend::tuning::{
    FULL_THREADS_MAX, LATE_BLOCK_BYTES, LATE_MISSES, MARKS, MIDDLE_EXTENT_BLOCKS, SLAB_GAP_BYTES,
    SMALLEST_EXTENT_BLOCKS, STACK_BLOCKS_MAX, STACK_BLOCKS_MIN, STACK_BYTES_MAX,
    STACK_STEP_BLOCKS_MAX, STACK_STEP_BLOCKS_MIN, STACK_STEP_BYTES, THREAD_STACK_BLOCKS_MIN,
    THREAD_STACK_BYTES_MAX, THREAD_STACK_BYTES_MIN, TINY_STACK_BLOCKS_MAX, TINY_STACK_BYTES_MAX,
};
use crate::platform::sync::Lock;
use crate::size_class::{CLASSES, SizeClass};

/// log2 of the distance between two slabs, in bytes.
pub(crate) const SLAB_SHIFT: u32 = 18;

/// Offset of the marks, of 32 bits each, from the start of a slab. They share a page with the
/// headers, so an operation needs one TLB entry less (decisions/0002). Caches of threads have their
/// small extents there.
pub(crate) const MARKS_AT: usize = 1024;
/// Offset of the digests, of 32 bits by class index: see [`Digests`](super::Digests). Only slabs
/// that have marks have digests.
pub(super) const DIGESTS_AT: usize = MARKS_AT + MARKS * size_of::<u32>();
const DIGESTS_END: usize = DIGESTS_AT + CLASSES * size_of::<u32>();
/// Multiplier of an address's lower half: the upper bits of the product are the number of its mark.
/// Chosen so that nearly 200 neighbours have different marks, whatever their class.
pub(crate) const MARK_MULTIPLIER: u32 = 0xd050_1e0b;
/// Number of bits of the product below the number of the mark.
pub(crate) const MARK_SHIFT: u32 = 32 - MARKS.ilog2();

/// The head of a slab; the stacks' slots follow.
#[repr(C)]
pub(super) struct SlabStart {
    /// Stays null: the top of a stack that was never set up.
    zero: u64,
    /// Held by the thread that works on the slab, for slabs that are locked: those that threads
    /// share in thread mode and slot mode, and transfer caches.
    pub(super) lock: Lock<()>,
    /// Bits of a [`Header`] for each class.
    headers: [u64; CLASSES],
    pub(super) history: History,
}

/// Offset of the headers from the start of a slab, by class index.
pub(crate) const HEADERS_AT: usize = offset_of!(SlabStart, headers);

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
pub(super) const CLOSED: u32 =
    (size_of::<SlabStart>() + 8 * (CLASSES - 1) * (EXTENT_BLOCKS[0] + 1)) as u32;
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

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn a_stack_that_is_closed_opens_where_it_was() {
        for class in SizeClass::all() {
            for index in 0..EXTENTS {
                let Extent { bottom, max_blocks, .. } = Extent::of(index, class);
                for cached in [0, 1, max_blocks] {
                    let top = bottom + 8 * cached;
                    let closed = Header { top, limit: bottom + 8 * max_blocks }.closed(class);
                    assert!(closed.is_closed() && closed.limit <= closed.top);
                    assert_eq!((closed.len(class), closed.capacity(class)), (cached as usize, 0));
                    let opened = Header { top, limit: top };
                    assert_eq!((closed.closed(class), closed.opened(class)), (closed, opened));
                    assert_eq!(closed.reopened(class), Some(opened));
                    let taken = closed.taken().expect("no thread has opened it");
                    assert!(taken.is_closed() && taken.is_taken() && taken.limit <= taken.top);
                    assert_eq!((taken.len(class), taken.capacity(class)), (cached as usize, 0));
                    assert_eq!((taken.closed(class), taken.opened(class)), (taken, opened));
                    assert_eq!((taken.taken(), taken.reopened(class)), (None, None));
                    assert_eq!((opened.taken(), opened.reopened(class)), (None, None));
                }
                let slots = bottom..=bottom + 8 * max_blocks;
                let apart = |top| !slots.contains(&top);
                assert!(
                    apart(CLOSED) && apart(TAKEN),
                    "a slot of {class:?} is that of closed stacks"
                );
            }
        }
        let new = Header::default();
        let class = SizeClass::of(1).unwrap();
        assert!(new.closed(class).is_closed() && new.closed(class).is_new());
        assert_eq!(new.closed(class).opened(class), new);
        let large = SizeClass::of(16 << 10).unwrap();
        let waiting = new.grown(large).grown(large);
        assert!(waiting.waits(large) && waiting.closed(large).is_closed());
        assert_eq!(waiting.closed(large).opened(large), new);
    }

    /// It grows in steps of its first capacity, so that little capacity is unused.
    #[test]
    fn a_stack_grows_by_what_it_begins_with() {
        for class in SizeClass::all().filter(|class| class.size() <= LATE_BLOCK_BYTES) {
            let Extent { max_blocks, step_blocks, .. } = Extent::of(FULL, class);
            let max_blocks = max_blocks as usize;
            let mut header = Header::default();
            for misses in 1.. {
                header = header.grown(class);
                assert_eq!(header.capacity(class), (misses * step_blocks as usize).min(max_blocks));
                if header.capacity(class) == max_blocks {
                    break;
                }
            }
            assert_eq!(header.grown(class), header);
        }
    }
}
