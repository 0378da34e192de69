//! The record of a sampled block: its state, its sizes, and the stacks that allocated and freed
//! it.

use crate::platform::os::Os;
use crate::safety::tuning::STACK_CALLS_MAX;

/// No slot.
pub(super) const NONE: u16 = u16::MAX;

/// State of a sampled block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SlotState {
    Live,
    Freed,
}

/// A thread, and its stack of calls.
#[derive(Clone, Copy)]
pub(crate) struct Trace {
    pub thread: u32,
    /// Calls in `calls`: the first ones.
    depth: u32,
    calls: [usize; STACK_CALLS_MAX],
}

impl Trace {
    pub const NONE: Self = Self { thread: 0, depth: 0, calls: [0; STACK_CALLS_MAX] };

    /// Takes the stack of the calling thread.
    #[inline(always)]
    pub fn take(os: &impl Os) -> Self {
        let mut calls = [0; STACK_CALLS_MAX];
        let depth = os.calls(&mut calls) as u32;
        Self { thread: os.thread_id(), depth, calls }
    }

    /// The calls, the innermost first.
    pub fn calls(&self) -> &[usize] {
        &self.calls[..self.depth as usize]
    }

    /// In a signal handler: the calls from the interrupted instruction on, without the handler's.
    pub fn calls_from(&mut self, instruction: usize) -> &[usize] {
        // For a call, the trace has its return address less one. The interrupted instruction is no
        // call, so the trace may have its address or the byte before.
        let depth = self.depth as usize;
        let within = |&call: &usize| call == instruction.wrapping_sub(1) || call == instruction;
        let first = self.calls[..depth].iter().position(within).unwrap_or(depth.max(1) - 1);
        self.calls[first] = instruction;
        &self.calls[first..depth.max(1)]
    }
}

/// The record of a slot's block.
#[derive(Clone, Copy)]
pub(crate) struct SlotRecord {
    pub state: SlotState,
    /// The slot that was freed after this one.
    pub(super) next: u16,
    /// The block's address.
    pub block: usize,
    /// Bytes requested.
    pub size: usize,
    /// Bytes that statistics count.
    pub counted: usize,
    pub allocated: Trace,
    pub freed: Trace,
}

/// A mistake of the program with an address among the slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SlotFault {
    /// No block was ever here.
    Unknown,
    /// The address lies in a block's page, but is not the block's start.
    Interior,
    /// The block is freed already: a double free.
    Twice,
    /// The block was freed with this size, which is wrong.
    Size(usize),
    /// A byte outside of the block was written: its offset from the block's start, and its value.
    Written(isize, u8),
}
