//! Models of a cache that is drained while a thread works on it, as `engine/caches/drain.rs` does:
//! one stack, and the steps of the thread and of the drainer.

use core::ptr;
use std::vec::Vec;

use crate::frontend::slab::{Header, bottom_of};
use crate::platform::sync::{AtomicU32, Lock, Ordering, ProtocolU64};
use crate::size_class::SizeClass;

/// The fault of a mutant.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mistake {
    None,
    /// The drainer does not wait until the sequences in progress end or restart.
    NoRestart,
    /// A stack that was never set up has a limit above its former top while it is closed.
    RoomWhileClosed,
    /// Sequences store the top alone.
    HalfCommit,
    /// A miss stores the header of a closed stack that it saw earlier.
    GrowsClosed,
    /// The drainer does not have the cache's thread pass a barrier.
    NoBarrier,
    /// The drainer does not check whether the cache's thread is busy.
    BusyIgnored,
    /// Others may see that a thread is done before they see what it stored.
    EndUnordered,
    /// A thread that leaves empties its cache while a drainer may still do so.
    LeavesUnseen,
    /// A thread that leaves does not reopen its stack, which may be closed.
    LeavesClosed,
    /// The drainer does not take the stack before it empties it.
    NotTaken,
    /// A look for a block loads the slot before the header.
    SlotFirst,
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

    /// Stores by a swap: loom does not see that a plain store comes after the swap whose value it
    /// replaces.
    fn set_header(&self, header: Header) {
        self.header.swap(header.to_bits(), Ordering::AcqRel);
    }

    /// Replaces the header by `to(header)`, atomically; false if that is `None`.
    fn change(&self, to: impl Fn(Header) -> Option<Header>) -> bool {
        let change = |bits| to(Header::from_bits(bits)).map(Header::to_bits);
        self.header.fetch_update(Ordering::AcqRel, Ordering::Acquire, change).is_ok()
    }

    /// Reopens the stack if it is closed and not taken.
    fn reopen(&self) {
        self.change(|header| header.reopened(self.class));
    }

    /// The slot that a header's top names. The tops of closed and taken stacks are null, as is the
    /// first slot, which stands for them.
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

    /// The blocks in the stack, according to this header.
    fn blocks(&self, header: Header) -> Vec<*mut u8> {
        let cached = header.len(self.class) as u32;
        (0..cached).map(|nth| self.at(header.top - 8 * nth)).collect()
    }

    /// `pop` by a thread that loaded this header. Returns the header to store, if any, and the
    /// block.
    fn popped(&self, header: Header) -> (Option<Header>, *mut u8) {
        let block = self.at(header.top);
        ((!block.is_null()).then(|| Header { top: header.top - 8, ..header }), block)
    }

    /// `push` by a thread that loaded this header, and then this limit. Returns the header to
    /// store, if any, and whether the stack had a free slot.
    fn pushed(&self, header: Header, limit: u32, block: *mut u8) -> (Option<Header>, bool) {
        if header.top >= limit {
            return (None, false);
        }
        let top = header.top + 8;
        self.slot(top).store(block.addr() as u64, Ordering::Relaxed);
        (Some(Header { top, ..header }), true)
    }

    /// Empties the stack if it is still closed.
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

/// A cache of one stack, on which one thread works while another drains it.
pub trait Emptied {
    /// Takes the newest block; null if the stack is empty.
    fn pop(&self) -> *mut u8;
    /// Puts a block on top; false if the stack is full.
    fn push(&self, block: *mut u8) -> bool;
    /// Sets the stack up, or raises its capacity.
    fn grow(&self);
    /// Drains the cache. Returns its blocks; none if the cache is in use.
    fn empty(&self) -> Vec<*mut u8>;
}

/// One stack in the cache of a virtual CPU. One thread works on it by models of the sequences in
/// `frontend/rseq/`, while another drains it.
pub struct CpuCache {
    stack: Stack,
    /// How often the kernel was told to restart sequences. A sequence commits only if the number is
    /// as it was when the sequence began. The lock makes check and commit one step, and is the
    /// barrier that drainer and thread pass.
    restarts: Lock<usize>,
    mistake: Mistake,
}

impl CpuCache {
    /// An unused cache of blocks of `size` bytes.
    pub fn new(size: usize, mistake: Mistake) -> Self {
        Self { stack: Stack::new(size), restarts: Lock::new(0), mistake }
    }

    fn closed(&self, header: Header) -> Header {
        let closed = header.closed(self.stack.class);
        let raised = self.mistake == Mistake::RoomWhileClosed && header.is_new();
        Header { limit: closed.limit + raised as u32, ..closed }
    }

    /// Runs the body until no restart has come in between, and commits the header that it returns,
    /// if any.
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

    /// `Slab::holds`, by any thread, where the block's mark names the slot above the bottom.
    pub fn holds(&self, block: *mut u8) -> bool {
        let bottom = bottom_of(self.stack.class);
        let early = (self.mistake == Mistake::SlotFirst).then(|| self.stack.at(bottom + 8));
        let slot = self.header().top.min(bottom + 8);
        slot > bottom && early.unwrap_or_else(|| self.stack.at(slot)) == block
    }
}

impl Emptied for CpuCache {
    /// `rseq::pop`.
    fn pop(&self) -> *mut u8 {
        self.sequence(|| self.stack.popped(self.header()))
    }

    /// `rseq::push`. Loads the limit a moment after the header.
    fn push(&self, block: *mut u8) -> bool {
        self.sequence(|| self.stack.pushed(self.header(), self.header().limit, block))
    }

    /// By `rseq::replace_header`.
    fn grow(&self) {
        self.stack.reopen();
        let old = self.header();
        if old.is_closed() && self.mistake != Mistake::GrowsClosed {
            return;
        }
        let new = old.grown(self.stack.class);
        self.sequence(|| ((self.header() == old).then_some(new), ()));
    }

    fn empty(&self) -> Vec<*mut u8> {
        self.stack.change(|header| Some(self.closed(header)));
        if self.mistake != Mistake::NoRestart {
            *self.restarts.lock() += 1;
        }
        self.stack.empty_closed(self.mistake)
    }
}

/// The states of a thread that matter here, as in `frontend/per_thread.rs`.
const READY: u32 = 1;
const BUSY: u32 = 3;
const GONE: u32 = 4;

/// One stack in the cache of a thread. The thread works on it by models of the plain code in
/// `frontend/per_thread.rs` and `frontend/owned_stack.rs`, while another drains it.
pub struct ThreadCache {
    stack: Stack,
    state: AtomicU32,
    /// The second thread that passes it sees all that the first did before. In the real code the
    /// owner has a fence for the compiler only; the kernel makes that as strong as passing this.
    barrier: ProtocolU64,
    /// True while a drainer may drain the cache. The lock stands for that of the slabs.
    owned: Lock<bool>,
    mistake: Mistake,
}

impl ThreadCache {
    /// An unused cache of blocks of `size` bytes.
    pub fn new(size: usize, mistake: Mistake) -> Self {
        Self {
            stack: Stack::new(size),
            state: AtomicU32::new(READY),
            barrier: ProtocolU64::new(0),
            owned: Lock::new(true),
            mistake,
        }
    }

    /// `Engine::leave_thread`. Returns the blocks that were still in the cache.
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

    /// `Ready::with`, but `work` returns the header to store, if any, from the one that it gets.
    fn with<R>(&self, work: impl FnOnce(Header) -> (Option<Header>, R)) -> R {
        self.state.store(BUSY, Ordering::Relaxed);
        self.pass_barrier();
        let (header, result) = work(self.stack.header(Ordering::Relaxed));
        if self.mistake == Mistake::EndUnordered {
            // The model stores early, as processor or compiler may do without a release. Loom
            // itself keeps these stores in order for a thread that replaces the values.
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

    /// `OwnedStack::grow`, but in the full extent at once.
    fn grow(&self) {
        self.stack.reopen();
        let grown = |header: Header| (!header.is_closed()).then(|| header.grown(self.stack.class));
        self.with(|header| (grown(header), ()));
    }

    /// Drains in two rounds. The barrier stands for the time between them, after which earlier
    /// stores are visible.
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
