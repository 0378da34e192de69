//! Sampled blocks (`EBB_SAMPLE`): decides when a block is sampled, and keeps the slots for them.
//!
//! Each sampled block lies in a page of its own between two guard pages. Its record has the stacks
//! that allocated and freed it. The idea is GWP-ASan's (Serebryany and others, "GWP-ASan:
//! Sampling-Based Detection of Memory-Safety Bugs in Production", 2023).

// Lowest first: each uses only modules above it in this list.
mod record;
mod slots;

use crate::options::CAREFUL;
use crate::platform::os::Os;
use crate::platform::sync::{AtomicBool, AtomicUsize, Lock, Ordering};
pub(crate) use record::{SlotFault, SlotRecord, SlotState, Trace};
use slots::GuardedSlots;

/// The sampling state of an engine.
#[repr(C)]
pub(crate) struct Samples {
    /// Address and bytes of the whole reservation: records, slots and guard pages.
    reserved: [AtomicUsize; 2],
    /// Address of the slots and guard pages.
    start: AtomicUsize,
    /// Bytes of the slots and guard pages, 0 without sampling.
    bytes: AtomicUsize,
    /// Blocks that caches may still get before one is sampled. Threads that count at the same time
    /// may lose some counts.
    left: AtomicUsize,
    /// Whether the program has begun. Before that, an unwinder may not be ready.
    begun: AtomicBool,
    pub slots: Lock<GuardedSlots>,
}

impl Samples {
    pub const fn new() -> Self {
        Self {
            reserved: [const { AtomicUsize::new(0) }; 2],
            start: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            left: AtomicUsize::new(0),
            begun: AtomicBool::new(false),
            slots: Lock::new(GuardedSlots::new()),
        }
    }

    /// Sets up sampling of one in `mean` blocks. Returns false if memory is short.
    pub fn set_up(&self, os: &impl Os, mean: u32) -> bool {
        let mut slots = self.slots.lock();
        let Some((start, bytes)) = slots.set_up(os) else {
            return false;
        };
        self.wait(&mut slots, mean, 0);
        let records = slots.records_at();
        self.reserved[0].store(records, Ordering::Relaxed);
        self.reserved[1].store(start + bytes - records, Ordering::Relaxed);
        self.start.store(start, Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Release);
        true
    }

    /// Address and bytes of the whole reservation: records, slots and guard pages.
    pub fn reserved(&self) -> &[AtomicUsize; 2] {
        &self.reserved
    }

    /// Allows sampling from now on.
    pub fn begin(&self) {
        self.begun.store(true, Ordering::Relaxed);
    }

    /// Starts the countdown to the next sampled block.
    ///
    /// Its length is random, `mean` blocks on average, so that no pattern of a program stays in
    /// step with it. `counted` blocks, which were counted but come later, are added.
    pub fn wait(&self, slots: &mut GuardedSlots, mean: u32, counted: usize) {
        let max = 2 * mean as u64 - 1;
        let left = 1 + (slots.random.next() % max) as usize + counted;
        self.left.store(left, Ordering::Relaxed);
    }

    /// Whether blocks are sampled.
    #[inline]
    pub fn on(&self) -> bool {
        CAREFUL && self.bytes.load(Ordering::Acquire) != 0
    }

    /// Counts blocks that a cache is about to get. Returns true if one of them is to be sampled.
    pub fn is_due(&self, blocks: usize) -> bool {
        if !self.on() {
            return false;
        }
        let left = self.left.load(Ordering::Relaxed).saturating_sub(blocks);
        self.left.store(left, Ordering::Relaxed);
        left == 0 && self.begun.load(Ordering::Relaxed)
    }

    /// Whether an address lies in the slots or guard pages.
    #[inline]
    pub fn contains(&self, address: usize) -> bool {
        let bytes = self.bytes.load(Ordering::Acquire);
        CAREFUL && address.wrapping_sub(self.start.load(Ordering::Relaxed)) < bytes
    }
}
