//! Sampled blocks: each in a page of its own between two that nobody may access, with a record of who allocated and
//! who freed it. The idea is GWP-ASan's (Serebryany and others, "GWP-ASan: Sampling-Based Detection of Memory-Safety
//! Bugs in Production", 2023).

// Lowest first: each uses only modules above it in this list.
mod record;
mod slots;

use crate::platform::options::CAREFUL;
use crate::platform::os::Os;
use crate::platform::sync::{AtomicBool, AtomicUsize, Lock, Ordering};
pub(crate) use record::{Fault, Record, State, Trace};
use slots::Slots;

/// What an engine has for it.
#[repr(C)]
pub(crate) struct Samples {
    /// Address and bytes of all of it: of slots, what lies between them, and their records before them.
    reserved: [AtomicUsize; 2],
    /// Where slots lie, and how many bytes there are of them and between them: 0 where there is no sampling.
    start: AtomicUsize,
    bytes: AtomicUsize,
    /// Blocks that caches get until one is sampled. Threads that count at a time may lose a few of their steps.
    left: AtomicUsize,
    /// Whether the program has begun: before, an unwinder may not be ready.
    begun: AtomicBool,
    pub slots: Lock<Slots>,
}

impl Samples {
    pub const fn new() -> Self {
        Self {
            reserved: [const { AtomicUsize::new(0) }; 2],
            start: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            left: AtomicUsize::new(0),
            begun: AtomicBool::new(false),
            slots: Lock::new(Slots::new()),
        }
    }

    /// Makes it ready: one of `mean` blocks. False if memory is short.
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

    /// Address and bytes of all that sampling takes.
    pub fn reserved(&self) -> &[AtomicUsize; 2] {
        &self.reserved
    }

    /// Blocks may be sampled from here on.
    pub fn begin(&self) {
        self.begun.store(true, Ordering::Relaxed);
    }

    /// Starts to count anew: so many blocks on average, by chance, so that programs do not fall into step; and
    /// those on top that were counted, but will come later.
    pub fn wait(&self, slots: &mut Slots, mean: u32, counted: usize) {
        let most = 2 * mean as u64 - 1;
        let left = 1 + (slots.random.next() % most) as usize + counted;
        self.left.store(left, Ordering::Relaxed);
    }

    /// True where blocks are sampled.
    #[inline]
    pub fn on(&self) -> bool {
        CAREFUL && self.bytes.load(Ordering::Acquire) != 0
    }

    /// Counts blocks that a cache is about to get; true if one of them is to be sampled.
    pub fn is_due(&self, blocks: usize) -> bool {
        if !self.on() {
            return false;
        }
        let left = self.left.load(Ordering::Relaxed).saturating_sub(blocks);
        self.left.store(left, Ordering::Relaxed);
        left == 0 && self.begun.load(Ordering::Relaxed)
    }

    /// Whether an address lies where sampled blocks do.
    #[inline]
    pub fn contains(&self, address: usize) -> bool {
        let bytes = self.bytes.load(Ordering::Acquire);
        CAREFUL && address.wrapping_sub(self.start.load(Ordering::Relaxed)) < bytes
    }
}
