//! Where the stacks of a slab lie, how large they are, and the word that says where each ends.

use super::layout::{MARKS_AT, SEEN_END, SLAB_SHIFT, SlabStart};
use crate::frontend::tuning::SLAB_GAP_BYTES;
use crate::frontend::tuning::{
    COLOUR_SLOTS, COLOURED_BLOCKS_MIN, FULL_THREADS_MAX, LATE_BLOCK_BYTES, LATE_MISSES,
    STACK_BLOCKS_MAX, STACK_BLOCKS_MIN, STACK_BYTES_MAX, STACK_STEP_BLOCKS_MAX,
    STACK_STEP_BLOCKS_MIN, STACK_STEP_BYTES, THREAD_STACK_BYTES_MAX, THREAD_STACK_BYTES_MIN,
    TINY_STACK_BLOCKS_MAX, TINY_STACK_BYTES_MAX,
};
use crate::size_class::{CLASSES, SizeClass};

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

    /// What a stack gets that is to look empty to a pop and full to a push: `drain.rs`. The top is a slot that no stack has,
    /// and the limit below it says how many blocks there are, and where. That of a stack that was never set up stays 0: a push that
    /// saw its top, which is 0, may compare that with this limit.
    pub fn closed(self, class: SizeClass) -> Self {
        if self.is_closed() {
            return self;
        }
        let whole = CLOSED_FROM[self.place(class)] + self.held(class);
        Self { top: CLOSED, limit: if self.is_new() { 0 } else { whole as u32 } }
    }

    /// True also where somebody is emptying it.
    pub fn is_closed(self) -> bool {
        self.top == CLOSED || self.is_taken()
    }

    /// What a closed stack gets of whoever is about to empty it, and then nobody else opens: `None` where somebody has.
    pub fn taken(self) -> Option<Self> {
        (self.top == CLOSED).then_some(Self { top: TAKEN, ..self })
    }

    pub fn is_taken(self) -> bool {
        self.top == TAKEN
    }

    /// As [`Header::opened`], for whoever needs a stack that is closed: `None` where it is not, or is taken.
    pub fn reopened(self, class: SizeClass) -> Option<Self> {
        (self.top == CLOSED).then(|| self.opened(class))
    }

    /// What a closed stack can go on with, where it lies: no room beyond what it holds. One that was never set up is as
    /// it was.
    pub fn opened(self, class: SizeClass) -> Self {
        if self.is_new() {
            return Self::default();
        }
        let (place, held) = self.closed_as();
        let top = Stack::of(place, class).bottom + 8 * held as u32;
        Self { top, limit: top }
    }

    /// True where the stack was never set up, closed or not.
    pub fn is_new(self) -> bool {
        self.limit == 0
    }

    /// True where the stack has no room yet: its limit lies below its bottom, a slot for each miss to come.
    pub fn waits(self, class: SizeClass) -> bool {
        let bottom = Stack::of(FULL, class).bottom;
        !self.is_closed() && (bottom - 8 * LATE_MISSES..bottom).contains(&self.limit)
    }

    /// The header after a miss: set up in the full place, nearer to its first room, or with so
    /// much more, up to the class's bound. Seldom needed, in several places.
    #[inline(never)]
    pub fn grown(self, class: SizeClass) -> Self {
        let stack = Stack::of(FULL, class);
        if self.is_closed() {
            return self;
        }
        let top = if self.is_new() { stack.bottom } else { self.top };
        let limit = if self.is_new() && class.size() > LATE_BLOCK_BYTES {
            stack.bottom - 8 * LATE_MISSES
        } else if self.waits(class) {
            self.limit + 8
        } else {
            let room = (self.room(class) + first_capacity(class)) as u32;
            stack.bottom + 8 * room.min(stack.most)
        };
        Self { top, limit }
    }

    /// The header with half the room, but enough for what the stack holds and for what it was first
    /// set up for.
    pub fn shrunk(self, class: SizeClass) -> Self {
        if self.is_closed() {
            return self;
        }
        let bottom = self.stack(class).bottom;
        let room = (self.room(class) / 2).max(first_capacity(class)).max(self.held(class));
        Self { top: self.top, limit: self.limit.min(bottom + 8 * room as u32) }
    }

    /// How many blocks the stack has room for beyond what it was first set up for.
    pub fn extra_capacity(self, class: SizeClass) -> usize {
        self.room(class).saturating_sub(first_capacity(class))
    }

    /// How many blocks the stack has room for.
    #[inline(never)]
    pub fn room(self, class: SizeClass) -> usize {
        if self.is_closed() {
            return 0;
        }
        (self.limit.saturating_sub(self.stack(class).bottom) / 8) as usize
    }

    /// How many blocks it holds; more than there is room for where the room has shrunk.
    #[inline(never)]
    pub fn held(self, class: SizeClass) -> usize {
        if self.is_closed() {
            return self.closed_as().1;
        }
        (self.top.saturating_sub(self.stack(class).bottom) / 8) as usize
    }

    /// Which of the class's places the stack is in; the first for one never set up. Asked where there is time, and in a
    /// dozen places.
    #[inline(never)]
    pub(super) fn place(self, class: SizeClass) -> usize {
        let found = (0..PLACES).rfind(|&place| Stack::of(place, class).contains(self.limit));
        found.unwrap_or(if self.waits(class) { FULL } else { 0 })
    }

    fn stack(self, class: SizeClass) -> Stack {
        Stack::of(self.place(class), class)
    }

    /// Where a closed stack lies, and how many blocks it holds.
    fn closed_as(self) -> (usize, usize) {
        let whole = self.limit as usize;
        let place = CLOSED_FROM.iter().rposition(|&from| from <= whole).unwrap_or(0);
        (place, whole.saturating_sub(CLOSED_FROM[place]))
    }
}

/// The limit of a closed stack is that of its place, and one more for each block.
const CLOSED_FROM: [usize; PLACES] =
    [1, 2 + PLACE_BLOCKS[0], 3 + PLACE_BLOCKS[0] + PLACE_BLOCKS[1]];

/// Offset of the slot that is the top of all stacks that are closed, and of that of those taken, which stay null: behind the smallest
/// stacks, on the page that stays where it is when the slots of stacks go back to the kernel.
pub(super) const CLOSED: u32 =
    (size_of::<SlabStart>() + 8 * (CLASSES - 1) * (PLACE_BLOCKS[0] + 1)) as u32;
const TAKEN: u32 = CLOSED + 8;
/// A limit of one that is closed lies at or below that.
const _: () = assert!((CLOSED_FROM[FULL] + TINY_STACK_BLOCKS_MAX) as u32 <= CLOSED);
/// Marks and digests lie among the smallest stacks, which no slab has that has those.
const _: () = assert!(size_of::<SlabStart>() <= MARKS_AT && SEEN_END <= CLOSED as usize);

/// Where a class's stack may lie in a slab.
#[derive(Clone, Copy)]
pub(super) struct Stack {
    /// Offset of the bottom slot, which stays null.
    pub bottom: u32,
    /// The most blocks of room.
    pub most: u32,
}

impl Stack {
    #[inline]
    pub fn of(place: usize, class: SizeClass) -> Self {
        STACKS.0[place][class.index()]
    }

    /// Whether a stack with this limit lies here.
    fn contains(self, limit: u32) -> bool {
        (self.bottom..=self.bottom + 8 * self.most).contains(&limit)
    }
}

/// How many places each class has in a slab, from the smallest to the full one.
const PLACES: usize = 3;
pub(super) const FULL: usize = PLACES - 1;
/// The most blocks in each but the full place.
pub(super) const PLACE_BLOCKS: [usize; FULL] = [4, 32];

/// The stacks in each place, and where the last of them ends.
static STACKS: ([[Stack; CLASSES]; PLACES], usize) = {
    let mut stacks = [[Stack { bottom: 0, most: 0 }; CLASSES]; PLACES];
    let mut offset = size_of::<SlabStart>();
    let mut place = 0;
    while place < PLACES {
        let mut i = 1;
        while let Some(class) = SizeClass::from_index(i) {
            let mut most = stack_blocks(class);
            if place < FULL && most > PLACE_BLOCKS[place] {
                most = PLACE_BLOCKS[place];
            }
            // Below the full stack is room for the limits of one that waits.
            if place == FULL {
                let Stack { bottom, most } = stacks[place - 1][i];
                assert!(offset as u32 > bottom + 8 * (most + LATE_MISSES));
            }
            stacks[place][i] = Stack { bottom: offset as u32, most: most as u32 };
            let coloured = place == FULL && most >= COLOURED_BLOCKS_MIN;
            offset += 8 * (most + 1) + if coloured { 8 * COLOUR_SLOTS } else { 0 };
            i += 1;
        }
        // The headers, the smallest stacks or marks, and the slots of those that are closed share a page.
        if place == 0 {
            assert!(offset == CLOSED as usize);
            offset += 16;
            assert!(offset <= 4096);
        }
        place += 1;
    }
    assert!(offset <= (1 << SLAB_SHIFT) - SLAB_GAP_BYTES);
    (stacks, offset)
};

/// Bytes at the start of a slab that are ever used.
pub(crate) const fn used_bytes() -> usize {
    STACKS.1
}

/// How many blocks a virtual CPU's stack has room for when it is set up.
pub(super) fn first_capacity(class: SizeClass) -> usize {
    // A table, since summing up a slab's room asks for every class.
    static FIRST: [u8; CLASSES] = {
        let mut first = [0; CLASSES];
        let mut i = 1;
        while let Some(class) = SizeClass::from_index(i) {
            first[i] =
                blocks_in(class, STACK_STEP_BYTES, STACK_STEP_BLOCKS_MIN, STACK_STEP_BLOCKS_MAX)
                    as u8;
            i += 1;
        }
        first
    };
    FIRST[class.index()] as usize
}

/// The most blocks that a virtual CPU's stack holds.
const fn stack_blocks(class: SizeClass) -> usize {
    let tiny = blocks_in(class, TINY_STACK_BYTES_MAX, STACK_BLOCKS_MAX, TINY_STACK_BLOCKS_MAX);
    blocks_in(class, STACK_BYTES_MAX, STACK_BLOCKS_MIN, tiny)
}

/// How many blocks of a class make `bytes`, within bounds.
const fn blocks_in(class: SizeClass, bytes: usize, least: usize, most: usize) -> usize {
    let blocks = bytes / class.size();
    if blocks < least {
        least
    } else if blocks > most {
        most
    } else {
        blocks
    }
}

/// How many blocks of a class the stack of one of so many threads may hold: the most while there are
/// few threads; beyond, all together hold no more, but for a few blocks each, of up to 4 KiB.
pub(crate) fn fair_share(class: SizeClass, threads: usize) -> usize {
    let full = blocks_in(class, THREAD_STACK_BYTES_MAX, STACK_BLOCKS_MIN, TINY_STACK_BLOCKS_MAX);
    let few = (THREAD_STACK_BYTES_MIN / class.size()).min(STACK_BLOCKS_MIN);
    (full * FULL_THREADS_MAX / threads.max(FULL_THREADS_MAX)).max(few)
}

/// Offset of the bottom slot of the class's stack in its full place.
pub(crate) fn bottom_of(class: SizeClass) -> u32 {
    Stack::of(FULL, class).bottom
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    #[test]
    fn a_stack_that_is_closed_opens_where_it_was() {
        for class in SizeClass::all() {
            for place in 0..PLACES {
                let Stack { bottom, most } = Stack::of(place, class);
                for held in [0, 1, most] {
                    let top = bottom + 8 * held;
                    let closed = Header { top, limit: bottom + 8 * most }.closed(class);
                    assert!(closed.is_closed() && closed.limit <= closed.top);
                    assert_eq!((closed.held(class), closed.room(class)), (held as usize, 0));
                    let opened = Header { top, limit: top };
                    assert_eq!((closed.closed(class), closed.opened(class)), (closed, opened));
                    assert_eq!(closed.reopened(class), Some(opened));
                    let taken = closed.taken().expect("nobody has opened it");
                    assert!(taken.is_closed() && taken.is_taken() && taken.limit <= taken.top);
                    assert_eq!((taken.held(class), taken.room(class)), (held as usize, 0));
                    assert_eq!((taken.closed(class), taken.opened(class)), (taken, opened));
                    assert_eq!((taken.taken(), taken.reopened(class)), (None, None));
                    assert_eq!((opened.taken(), opened.reopened(class)), (None, None));
                }
                let slots = bottom..=bottom + 8 * most;
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
    }

    /// In steps of what it begins with, so that little room is beyond what is used.
    #[test]
    fn a_stack_grows_by_what_it_begins_with() {
        for class in SizeClass::all().filter(|class| class.size() <= LATE_BLOCK_BYTES) {
            let most = Stack::of(FULL, class).most as usize;
            let mut header = Header::default();
            for misses in 1.. {
                header = header.grown(class);
                assert_eq!(header.room(class), (misses * first_capacity(class)).min(most));
                if header.room(class) == most {
                    break;
                }
            }
            assert_eq!(header.grown(class), header);
        }
    }

    #[test]
    fn bottoms_of_large_stacks_lie_in_different_lines_of_their_pages() {
        let large = SizeClass::all().filter(|&class| Stack::of(FULL, class).most >= 1024);
        let mut lines: Vec<_> = large.map(|class| bottom_of(class) % 4096 / 64).collect();
        assert_eq!(lines.len(), 13);
        lines.sort_unstable();
        assert!(lines.windows(2).all(|pair| pair[1] - pair[0] >= 4), "{lines:?}");
    }
}
