//! Switches the heap profile on and off while other threads allocate and free.
//!
//! Two words tell threads what to do. While the *gate* is not 0, an allocation counts its bytes
//! down. While the *watch* is not 0, a free that trusts its size looks at the address first: the
//! block may be sampled, and then lies in a span of the profile's own heap.
//!
//! Protocol (model-checked in `crates/testkit/tests/loom.rs`): all words are stored under the lock
//! of the session. A thread samples a block only if it has seen the gate open, and then finds,
//! under that lock, that the session is still the one that it saw. So each thread that gets such a
//! block, in any way, finds the watch set. It is cleared under the same lock, when the session is
//! over and no block of the profile's heap lives.
//!
//! Another process may store [`REQUEST`] in the gate at any time. The value is a hint only: the
//! truth is in the [`Session`]. So a store that meets the engine's own loses nothing but the hint.

use crate::platform::sync::{AtomicU32, Ordering};

/// Value of the gate that asks the engine to look for a request of another process.
pub(crate) const REQUEST: u32 = 1;
/// Bit of an open gate: the per-CPU caches may be used by restartable sequences at once.
pub(crate) const FAST: u32 = 2;
/// The lowest bit of the session's number in the gate.
const NUMBER_SHIFT: u32 = 2;

/// The words that threads read without a lock.
#[repr(C)]
pub(crate) struct Gate {
    /// 0 while the profile is off, [`REQUEST`], or the number of the session and [`FAST`].
    gate: AtomicU32,
    watch: AtomicU32,
}

/// The truth about the profile, under the lock of its table.
pub(crate) struct Session {
    /// The value of the gate in this session, or of the last one.
    gate: u32,
    is_on: bool,
    /// Blocks in the profile's heap that were handed out.
    blocks: usize,
}

impl Session {
    pub const fn new() -> Self {
        Self { gate: 0, is_on: false, blocks: 0 }
    }

    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// Whether the gate had this value since the session began.
    pub fn is(&self, gate: u32) -> bool {
        self.gate == gate
    }

    /// The number of the session, or of the last one; 0 before the first.
    pub fn number(&self) -> u32 {
        self.gate >> NUMBER_SHIFT
    }
}

/// The hot paths of allocations, and of frees that trust their size: whether each may be open.
pub(crate) type HotPaths = (bool, bool);

impl Gate {
    crate::platform::sync::const_fn! {
        pub fn new() -> Self {
            Self { gate: AtomicU32::new(0), watch: AtomicU32::new(0) }
        }
    }

    /// The gate: not 0 if an allocation has to count.
    #[inline(always)]
    pub fn load(&self) -> u32 {
        self.gate.load(Ordering::Acquire)
    }

    /// Whether a free must look at the address.
    #[inline(always)]
    pub fn is_watching(&self) -> bool {
        // The thread has the block, so it sees what was stored before the block was handed out.
        self.watch.load(Ordering::Relaxed) != 0
    }

    /// Makes the next allocation look for a request.
    pub fn remind(&self) {
        self.gate.store(REQUEST, Ordering::Release);
    }

    /// Begins a session. `hot` opens and closes the hot paths.
    pub fn open(&self, session: &mut Session, is_fast: bool, hot: impl Fn(HotPaths)) {
        let mut number = (session.number() + 1) & (u32::MAX >> NUMBER_SHIFT);
        if number << NUMBER_SHIFT & 0xffff == 0 {
            // Threads remember the last 16 bits of the gate, and 0 is for none.
            number += 1;
        }
        let fast = if is_fast { FAST } else { 0 };
        session.gate = number << NUMBER_SHIFT | fast;
        session.is_on = true;
        self.restore(session, hot);
    }

    /// Ends the session.
    pub fn close(&self, session: &mut Session, hot: impl Fn(HotPaths)) {
        session.is_on = false;
        self.restore(session, hot);
    }

    /// Stores what follows from the session in both words and in the hot paths.
    pub fn restore(&self, session: &Session, hot: impl Fn(HotPaths)) {
        let is_watching = session.is_on || session.blocks > 0;
        self.watch.store(is_watching as u32, Ordering::Release);
        hot((!session.is_on, !is_watching));
        let gate = if session.is_on { session.gate } else { 0 };
        self.gate.store(gate, Ordering::Release);
    }

    /// A mistake that the model must detect: hot paths open although blocks live.
    #[cfg(loom)]
    pub fn close_too_far(&self, session: &mut Session, hot: impl Fn(HotPaths)) {
        session.is_on = false;
        self.gate.store(0, Ordering::Release);
        self.watch.store(0, Ordering::Release);
        hot((true, true));
    }

    /// Counts a block of the profile's heap that is about to be handed out, by a thread that saw
    /// this gate. False if the session is another one by now: the block must not be handed out.
    pub fn enter(&self, session: &mut Session, gate: u32) -> bool {
        let may_enter = session.is_on && session.is(gate);
        session.blocks += may_enter as usize;
        may_enter
    }

    /// Counts a block of the profile's heap that the program has freed.
    pub fn leave(&self, session: &mut Session, hot: impl Fn(HotPaths)) {
        session.blocks = session.blocks.saturating_sub(1);
        if session.blocks == 0 && !session.is_on {
            self.restore(session, hot);
        }
    }
}
