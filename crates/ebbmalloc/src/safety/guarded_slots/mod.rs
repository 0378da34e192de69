//! Sampled blocks: each in a page of its own between two that nobody may access, with a record of who allocated and
//! who freed it. The idea is GWP-ASan's (Serebryany and others, "GWP-ASan: Sampling-Based Detection of Memory-Safety
//! Bugs in Production", 2023).

mod slots;

use crate::safety::check_table::DEPTH;
use crate::platform::options::CAREFUL;
use crate::platform::os::Os;
use crate::platform::sync::{AtomicBool, AtomicUsize, Lock, Ordering};
use slots::Slots;

/// No slot.
const NONE: u16 = u16::MAX;

/// How things stand with a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    Live,
    Freed,
}

/// What a thread did, and by which calls.
#[derive(Clone, Copy)]
pub(crate) struct Trace {
    pub thread: u32,
    known: u32,
    calls: [usize; DEPTH],
}

impl Trace {
    pub const NONE: Self = Self { thread: 0, known: 0, calls: [0; DEPTH] };

    /// This thread, here.
    #[inline(always)]
    pub fn take(os: &impl Os) -> Self {
        let mut calls = [0; DEPTH];
        let known = os.calls(&mut calls) as u32;
        Self { thread: os.thread_id(), known, calls }
    }

    /// The calls, the innermost first.
    pub fn calls(&self) -> &[usize] {
        &self.calls[..self.known as usize]
    }

    /// The same of a signal handler, without its own: from the instruction on that it interrupted.
    pub fn calls_from(&mut self, instruction: usize) -> &[usize] {
        // Of a call an address within it is known, the byte before where it goes on: here not a call's.
        let known = self.known as usize;
        let within = |&call: &usize| call == instruction.wrapping_sub(1) || call == instruction;
        let first = self.calls[..known].iter().position(within).unwrap_or(known.max(1) - 1);
        self.calls[first] = instruction;
        &self.calls[first..known.max(1)]
    }
}

/// What is known of the block in a slot.
#[derive(Clone, Copy)]
pub(crate) struct Record {
    pub state: State,
    /// The slot that was freed next.
    next: u16,
    /// Its address.
    pub block: usize,
    /// Bytes that were asked for, and that statistics count.
    pub size: usize,
    pub counted: usize,
    pub allocated: Trace,
    pub freed: Trace,
}

/// What a program did wrong with an address in the reservation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// No block was ever here.
    Unknown,
    /// In the page of a block, but not its start.
    Interior,
    /// Freed already.
    Twice,
    /// Freed with this size.
    Size(usize),
    /// Written at this offset from its start; what was found there.
    Written(isize, u8),
}

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
