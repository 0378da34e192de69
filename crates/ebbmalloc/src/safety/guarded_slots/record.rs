//! What is known of a sampled block.

use crate::platform::os::Os;
use crate::safety::tuning::STACK_CALLS_MAX;

/// No slot.
pub(super) const NONE: u16 = u16::MAX;

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
    calls: [usize; STACK_CALLS_MAX],
}

impl Trace {
    pub const NONE: Self = Self { thread: 0, known: 0, calls: [0; STACK_CALLS_MAX] };

    /// This thread, here.
    #[inline(always)]
    pub fn take(os: &impl Os) -> Self {
        let mut calls = [0; STACK_CALLS_MAX];
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
    pub(super) next: u16,
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
