//! Caches that are emptied while others work on them, as `drain.rs` does it: one stack, and whoever works on it step by step.

use core::ptr;
use std::vec::Vec;

use crate::frontend::slab::{Header, bottom_of};
use crate::platform::sync::{AtomicU32, Lock, Ordering, ProtocolU64};
use crate::size_class::SizeClass;

/// What is wrong in a mutant.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mistake {
    None,
    /// Whoever empties the cache does not have the kernel restart what is in progress.
    NoRestart,
    /// A stack that was never set up has a limit above its top while it is closed.
    RoomWhileClosed,
    /// Sequences store the top alone.
    HalfCommit,
    /// Whoever empties the cache does not have its thread pass a barrier.
    NoBarrier,
    /// Whoever empties the cache does not look whether its thread is at work.
    BusyIgnored,
    /// A thread may be seen to be done before what it stored is.
    EndUnordered,
    /// A thread that leaves takes what its cache holds while it still may be emptied.
    LeavesUnseen,
    /// A thread that leaves does not open its stack, which may be closed.
    LeavesClosed,
    /// Whoever empties the cache does not take the stack first.
    NotTaken,
}

/// One stack of a slab.
struct Stack {
    class: SizeClass,
    header: ProtocolU64,
    /// The slab's first two words, and the slots from the bottom on.
    slots: [ProtocolU64; 6],
}

impl Stack {
    /// One that was never set up, for blocks of `size` bytes.
    fn new(size: usize) -> Self {
        let class = SizeClass::of(size).expect("a small size");
        Self { class, header: ProtocolU64::new(0), slots: [0; 6].map(ProtocolU64::new) }
    }

    fn header(&self, order: Ordering) -> Header {
        Header::from_bits(self.header.load(order))
    }

    /// By a swap, since loom does not see that a plain store comes after the swap whose value it replaces.
    fn set_header(&self, header: Header) {
        self.header.swap(header.to_bits(), Ordering::AcqRel);
    }

    /// Replaces the header at once by what `to` makes of it; false if that is nothing.
    fn change(&self, to: impl Fn(Header) -> Option<Header>) -> bool {
        let change = |bits| to(Header::from_bits(bits)).map(Header::to_bits);
        self.header.fetch_update(Ordering::AcqRel, Ordering::Acquire, change).is_ok()
    }

    /// Whoever needs the stack opens it if it is closed and nobody has taken it.
    fn reopen(&self) {
        self.change(|header| header.reopened(self.class));
    }

    /// The slot that a header's top names. That of stacks that are closed is as null as the first.
    fn slot(&self, top: u32) -> &ProtocolU64 {
        let nth = match top.checked_sub(bottom_of(self.class)) {
            Some(above) => 2 + above / 8,
            None if top < 16 => top / 8,
            None => 0,
        };
        self.slots.get(nth as usize).expect("a top is that of a slot of the stack")
    }

    fn at(&self, top: u32) -> *mut u8 {
        ptr::without_provenance_mut(self.slot(top).load(Ordering::Relaxed) as usize)
    }

    /// What the stack holds by this header.
    fn blocks(&self, header: Header) -> Vec<*mut u8> {
        let held = header.held(self.class) as u32;
        (0..held).map(|nth| self.at(header.top - 8 * nth)).collect()
    }

    /// `pop` of one who saw this header: what to store in its place, and the block.
    fn popped(&self, header: Header) -> (Option<Header>, *mut u8) {
        let block = self.at(header.top);
        ((!block.is_null()).then(|| Header { top: header.top - 8, ..header }), block)
    }

    /// `push` of one who saw this header, and then this limit.
    fn pushed(&self, header: Header, limit: u32, block: *mut u8) -> (Option<Header>, bool) {
        if header.top >= limit {
            return (None, false);
        }
        let top = header.top + 8;
        self.slot(top).store(block.addr() as u64, Ordering::Relaxed);
        (Some(Header { top, ..header }), true)
    }

    /// Empties the stack if it is closed still.
    fn empty_closed(&self, mistake: Mistake) -> Vec<*mut u8> {
        let is_ours = if mistake == Mistake::NotTaken {
            self.header(Ordering::Acquire).is_closed()
        } else {
            self.change(Header::taken)
        };
        if !is_ours {
            return Vec::new();
        }
        let taken = self.blocks(self.header(Ordering::Acquire).opened(self.class));
        self.set_header(Header::default());
        taken
    }
}

/// A cache of one stack, on which one thread works while another empties it.
pub trait Emptied {
    /// The newest block, if there is one.
    fn pop(&self) -> *mut u8;
    /// False where there is no room for the block.
    fn push(&self, block: *mut u8) -> bool;
    /// Sets the stack up, or gives it more room.
    fn grow(&self);
    /// Empties the cache: what it held, or nothing if it is in use.
    fn empty(&self) -> Vec<*mut u8>;
}

/// One stack in the cache of a virtual CPU: one thread works on it by what stands for the sequences of `rseq/`,
/// while another empties it.
pub struct CpuCache {
    stack: Stack,
    /// How often the kernel was told to restart sequences. One commits only if that is as it was at its beginning; the
    /// lock makes one step of that, and is the barrier that either passes.
    restarts: Lock<usize>,
    mistake: Mistake,
}

impl CpuCache {
    /// The cache, never used, of blocks of `size` bytes.
    pub fn new(size: usize, mistake: Mistake) -> Self {
        Self { stack: Stack::new(size), restarts: Lock::new(0), mistake }
    }

    fn closed(&self, header: Header) -> Header {
        let closed = header.closed(self.stack.class);
        let room = self.mistake == Mistake::RoomWhileClosed && header.is_new();
        Header { limit: closed.limit + room as u32, ..closed }
    }

    /// Runs the body until nothing has come in between that would restart it, and commits the header that it
    /// makes, if any.
    fn sequence<R>(&self, body: impl Fn() -> (Option<Header>, R)) -> R {
        loop {
            let begun = *self.restarts.lock();
            let (commit, result) = body();
            let Some(mut header) = commit else {
                return result;
            };
            let restarts = self.restarts.lock();
            if self.mistake == Mistake::HalfCommit && !self.header().is_new() {
                header.limit = self.header().limit;
            }
            if *restarts == begun {
                self.stack.set_header(header);
                return result;
            }
        }
    }

    fn header(&self) -> Header {
        self.stack.header(Ordering::Acquire)
    }
}

impl Emptied for CpuCache {
    /// `rseq::pop`.
    fn pop(&self) -> *mut u8 {
        self.sequence(|| self.stack.popped(self.header()))
    }

    /// `rseq::push`. The limit is read a moment after the header.
    fn push(&self, block: *mut u8) -> bool {
        self.sequence(|| self.stack.pushed(self.header(), self.header().limit, block))
    }

    /// By `rseq::replace_header`.
    fn grow(&self) {
        self.stack.reopen();
        let old = self.header();
        let new = old.grown(self.stack.class);
        self.sequence(|| ((self.header() == old && new != old).then_some(new), ()));
    }

    fn empty(&self) -> Vec<*mut u8> {
        self.stack.change(|header| Some(self.closed(header)));
        if self.mistake != Mistake::NoRestart {
            *self.restarts.lock() += 1;
        }
        self.stack.empty_closed(self.mistake)
    }
}

/// The states of a thread that count here, as in `front/thread.rs`.
const READY: u32 = 1;
const BUSY: u32 = 3;
const GONE: u32 = 4;

/// One stack in the cache of a thread, which works on it by what stands for the plain code of `front/thread.rs` and
/// `cache/mod.rs`, while another empties it.
pub struct ThreadCache {
    stack: Stack,
    state: AtomicU32,
    /// Of two who pass it, the second sees all that the first did before. The kernel sees to it that it is as if the
    /// thread did, where it only has the compiler keep things in order.
    barrier: ProtocolU64,
    /// Whether the cache may be emptied from outside. Its lock is that of the slabs.
    owned: Lock<bool>,
    mistake: Mistake,
}

impl ThreadCache {
    /// The cache, never used, of blocks of `size` bytes.
    pub fn new(size: usize, mistake: Mistake) -> Self {
        Self {
            stack: Stack::new(size),
            state: AtomicU32::new(READY),
            barrier: ProtocolU64::new(0),
            owned: Lock::new(true),
            mistake,
        }
    }

    /// `Engine::leave_thread`: what the cache still held.
    pub fn leave(&self) -> Vec<*mut u8> {
        self.state.store(GONE, Ordering::Release);
        if self.mistake != Mistake::LeavesUnseen {
            *self.owned.lock() = false;
        }
        if self.mistake != Mistake::LeavesClosed {
            self.stack.reopen();
        }
        let header = self.stack.header(Ordering::Relaxed);
        if header.is_closed() {
            return Vec::new();
        }
        let taken = self.stack.blocks(header);
        self.stack.set_header(Header::default());
        taken
    }

    /// `Ready::with`, but for the work: that makes a header from the one that it finds, if any.
    fn with<R>(&self, work: impl FnOnce(Header) -> (Option<Header>, R)) -> R {
        self.state.store(BUSY, Ordering::Relaxed);
        self.pass_barrier();
        let (header, result) = work(self.stack.header(Ordering::Relaxed));
        if self.mistake == Mistake::EndUnordered {
            // As the processor or the compiler may have it then. Loom keeps stores in order for whoever replaces what they stored.
            self.state.store(READY, Ordering::Relaxed);
        }
        if let Some(header) = header {
            self.stack.set_header(header);
        }
        self.state.store(READY, Ordering::Release);
        result
    }

    fn pass_barrier(&self) {
        self.barrier.fetch_add(1, Ordering::AcqRel);
    }
}

impl Emptied for ThreadCache {
    /// `OwnedStack::pop`.
    fn pop(&self) -> *mut u8 {
        self.with(|header| self.stack.popped(header))
    }

    /// `OwnedStack::push`.
    fn push(&self, block: *mut u8) -> bool {
        self.with(|header| self.stack.pushed(header, header.limit, block))
    }

    /// `OwnedStack::grow`, but in the full place at once.
    fn grow(&self) {
        self.stack.reopen();
        let grown = |header: Header| (!header.is_closed()).then(|| header.grown(self.stack.class));
        self.with(|header| (grown(header), ()));
    }

    /// In two rounds. The time between them, after which what was stored before is visible, is the barrier.
    fn empty(&self) -> Vec<*mut u8> {
        {
            let owned = self.owned.lock();
            if !*owned {
                return Vec::new();
            }
            self.stack.change(|header| Some(header.closed(self.stack.class)));
        }
        if self.mistake != Mistake::NoBarrier {
            self.pass_barrier();
        }
        let owned = self.owned.lock();
        if !*owned {
            return Vec::new();
        }
        let busy = self.state.load(Ordering::Acquire) == BUSY;
        if !busy || self.mistake == Mistake::BusyIgnored {
            return self.stack.empty_closed(self.mistake);
        }
        self.stack.reopen();
        Vec::new()
    }
}
