//! Keeps each stack of calls once, and counts the blocks in use that were allocated by it.

use core::{ptr, slice};

use crate::backend::arena::{Arena, Buckets, Chained, Ref, hash};
use crate::backend::chunks::Chunks;
use crate::platform::os::Os;

/// Header of a stack. The addresses of its calls follow.
#[repr(C)]
struct Head {
    chain: Ref,
    /// Calls in the stack.
    depth: u32,
    hash: u32,
    held: Held,
}

impl Chained for Head {
    fn hash(&self) -> u32 {
        self.hash
    }

    fn chain(&mut self) -> &mut Ref {
        &mut self.chain
    }
}

/// Blocks in use that one stack allocated, and their bytes, for the list at exit.
#[derive(Clone, Copy)]
pub(crate) struct Held {
    pub blocks: u64,
    pub bytes: u64,
}

/// All stacks seen so far.
pub(crate) struct Stacks {
    buckets: Buckets,
    /// Blocks whose stack is unknown.
    unknown: Held,
}

impl Stacks {
    pub const fn new() -> Self {
        Self { buckets: Buckets::new(), unknown: Held { blocks: 0, bytes: 0 } }
    }

    pub fn set_up(&mut self, os: &impl Os) -> bool {
        self.buckets.set_up(os)
    }

    pub fn chunks(&self) -> &Chunks {
        self.buckets.chunks()
    }

    /// Returns the stack with these calls, which is added if it is new. Returns [`Ref::NONE`] if
    /// there are no calls, or if memory is short.
    pub fn intern(&mut self, arena: &mut Arena, os: &impl Os, calls: &[usize]) -> Ref {
        if calls.is_empty() {
            return Ref::NONE;
        }
        let hash = hash(calls);
        // SAFETY: chains consist of stacks, and the arena is borrowed. A new stack gets memory for
        // its header and all its calls.
        unsafe {
            let mut next = *self.buckets.head(hash);
            while !next.is_none() {
                if Self::calls(arena, next) == calls {
                    return next;
                }
                next = (*arena.at::<Head>(next)).chain;
            }
            let Some(new) = arena.take(os, size_of::<Head>() + size_of_val(calls)) else {
                return Ref::NONE;
            };
            let head = self.buckets.head(hash);
            let (depth, held) = (calls.len() as u32, Held { blocks: 0, bytes: 0 });
            let at = arena.at::<Head>(new);
            at.write(Head { chain: *head, depth, hash, held });
            ptr::copy_nonoverlapping(calls.as_ptr(), at.add(1).cast(), calls.len());
            *head = new;
            self.buckets.count_in::<Head>(arena, os);
            new
        }
    }

    /// The calls of a stack, the innermost first.
    pub fn calls(arena: &Arena, stack: Ref) -> &[usize] {
        if stack.is_none() {
            return &[];
        }
        let head = arena.at::<Head>(stack);
        // SAFETY: a stack lies there, and `depth` addresses follow its header.
        unsafe { slice::from_raw_parts(head.add(1).cast(), (*head).depth as usize) }
    }

    /// Counts a block of `bytes` bytes that this stack allocated.
    pub fn hold(&mut self, arena: &Arena, stack: Ref, bytes: usize) {
        let held = match stack.is_none() {
            true => &mut self.unknown,
            // SAFETY: a stack lies there; only the holder of the table's lock uses it.
            false => unsafe { &mut (*arena.at::<Head>(stack)).held },
        };
        held.blocks += 1;
        held.bytes += bytes as u64;
    }

    /// Returns the stack that holds the most bytes, and resets its count. Returns `None` if no
    /// stack holds a block.
    pub fn take_largest(&mut self, arena: &Arena) -> Option<(Ref, Held)> {
        let mut max = (Ref::NONE, self.unknown);
        for bucket in 0..self.buckets.count() {
            let mut next = self.buckets.nth(bucket);
            while !next.is_none() {
                // SAFETY: chains consist of stacks; only the holder of the table's lock uses them.
                let head = unsafe { &*arena.at::<Head>(next) };
                if (head.held.bytes, head.held.blocks) > (max.1.bytes, max.1.blocks) {
                    max = (next, head.held);
                }
                next = head.chain;
            }
        }
        let none = Held { blocks: 0, bytes: 0 };
        match max.0.is_none() {
            true => self.unknown = none,
            // SAFETY: a stack lies there; only the holder of the table's lock uses it.
            false => unsafe { (*arena.at::<Head>(max.0)).held = none },
        }
        (max.1.blocks > 0).then_some(max)
    }
}
