//! Memory for what check mode knows: one reservation apart from all blocks, handed out from the bottom up.

use core::ptr;

use crate::os::{Os, choose};

/// A place in the arena, in grains from its start; 0 is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ref(u32);

impl Ref {
    pub const NONE: Self = Self(0);

    pub fn is_none(self) -> bool {
        self == Self::NONE
    }
}

/// What everything in the arena is a multiple of, in bytes.
const GRAIN: usize = 16;
/// As far as a [`Ref`] reaches.
const MOST: usize = GRAIN << 32;
/// With less than this there is no checking.
const LEAST: usize = 256 << 10;
/// The most that is committed ahead of need.
const STEP_MOST: usize = 1 << 20;

/// The reservation. Its memory is zero when it is handed out.
pub(crate) struct Arena {
    start: *mut u8,
    reserved: usize,
    committed: usize,
    /// Bytes that were taken, which begin behind the first grain: that is nobody's.
    taken: usize,
}

// SAFETY: the memory is the arena's alone.
unsafe impl Send for Arena {}

impl Arena {
    pub const fn new() -> Self {
        Self { start: ptr::null_mut(), reserved: 0, committed: 0, taken: 0 }
    }

    /// Reserves: the rest of a limited address space is for others. False if there is too little.
    pub fn set_up(&mut self, os: &impl Os) -> bool {
        let page = os.page_size();
        let bytes = MOST.min(os.address_space() / 8) / page * page;
        if self.start.is_null()
            && bytes >= LEAST
            && let Some(start) = choose(os, bytes, page)
        {
            (self.start, self.reserved, self.committed) = (start.as_ptr(), bytes, page);
        }
        !self.start.is_null()
    }

    /// Bytes that there are at most.
    pub fn reserved(&self) -> usize {
        self.reserved
    }

    /// Memory for so many bytes, zero; `None` if there is no more.
    pub fn take(&mut self, os: &impl Os, bytes: usize) -> Option<Ref> {
        let bytes = bytes.next_multiple_of(GRAIN);
        let start = GRAIN + self.taken;
        let end = start.checked_add(bytes).filter(|&end| end <= self.reserved)?;
        if end > self.committed {
            let page = os.page_size();
            let step = (self.reserved / 256).min(STEP_MOST);
            let ahead = (end + step).next_multiple_of(page).min(self.reserved);
            if !self.commit(os, ahead) && !self.commit(os, end.next_multiple_of(page)) {
                return None;
            }
        }
        self.taken += bytes;
        Some(Ref((start / GRAIN) as u32))
    }

    fn commit(&mut self, os: &impl Os, end: usize) -> bool {
        // SAFETY: reserved, and nothing lies there yet.
        let done =
            unsafe { os.commit(self.start.add(self.committed), end - self.committed) }.is_ok();
        if done {
            self.committed = end;
        }
        done
    }

    /// Where something lies that was taken.
    pub fn at<T>(&self, place: Ref) -> *mut T {
        debug_assert!(!place.is_none() && align_of::<T>() <= GRAIN);
        // SAFETY: what was taken lies in the reservation.
        unsafe { self.start.add(place.0 as usize * GRAIN).cast() }
    }
}

/// Heads of chains, by hash. How many never changes: chains grow longer instead.
pub(crate) struct Buckets {
    first: Ref,
    count: usize,
}

impl Buckets {
    pub const fn new() -> Self {
        Self { first: Ref::NONE, count: 0 }
    }

    /// So many buckets, a power of two.
    pub fn set_up(&mut self, arena: &mut Arena, os: &impl Os, count: usize) -> bool {
        if let Some(first) = arena.take(os, count * size_of::<Ref>()) {
            *self = Self { first, count };
        }
        self.count != 0
    }

    /// The head of the chain for this hash, whose upper bits count.
    pub fn head(&self, arena: &Arena, hash: u64) -> *mut Ref {
        let nth = (hash >> 32) as usize & (self.count - 1);
        // SAFETY: there are as many.
        unsafe { arena.at::<Ref>(self.first).add(nth) }
    }

    pub fn count(&self) -> usize {
        self.count
    }

    /// The head of a chain, by its number.
    pub fn nth(&self, arena: &Arena, nth: usize) -> Ref {
        debug_assert!(nth < self.count);
        // SAFETY: there are as many; zero bytes are none.
        unsafe { *arena.at::<Ref>(self.first).add(nth) }
    }
}
