//! A worker acts as a thread of a program: performs operations, and compares blocks with the shadow
//! model.

use std::ptr;

use ebbmalloc::internals::{Engine, HeapId, Os, OsThreads};

use crate::watch::{Watch, Wrote};
use crate::{Block, FakeOs, Faults, LinuxIn, Op, Shadow, borders};

/// An operating system that lets a test judge when the engine may be short of memory.
pub trait TestOs: Os {
    /// The calls that it refuses and has refused.
    fn faults(&self) -> &Faults;
    /// Bytes that the engine can still get in one range; 0 if an option of the engine limits it.
    fn room(&self) -> usize;
    /// Advances the clock by this many milliseconds, if it is a fake one.
    fn pass(&self, ms: u32);
    /// How often the engine reported out of memory; `None` if that is not counted.
    fn shortages(&self) -> Option<usize>;
    /// The watch over free memory, if there is one.
    fn watch(&self) -> Option<&Watch> {
        None
    }
}

impl TestOs for FakeOs {
    fn faults(&self) -> &Faults {
        FakeOs::faults(self)
    }

    fn room(&self) -> usize {
        if self.sets("EBB_LIMIT") || self.sets("EBB_CHECK") {
            0
        } else {
            self.longest_uncommitted()
        }
    }

    fn pass(&self, ms: u32) {
        self.sleep_ms(ms);
    }

    fn shortages(&self) -> Option<usize> {
        Some(FakeOs::shortages(self))
    }

    fn watch(&self) -> Option<&Watch> {
        FakeOs::watch(self)
    }
}

impl TestOs for LinuxIn {
    fn faults(&self) -> &Faults {
        LinuxIn::faults(self)
    }

    fn room(&self) -> usize {
        if self.is_bounded() { 0 } else { 1 << 39 }
    }

    fn pass(&self, _: u32) {}

    fn shortages(&self) -> Option<usize> {
        None
    }
}

/// Bytes that the engine may need beyond those of a block: its largest span, and tables.
const SLACK_BYTES: usize = 2 << 20;

/// The blocks of one thread, and the engine that they come from.
pub struct Worker<'a, O: TestOs> {
    engine: &'a Engine<O>,
    /// The heap of new blocks, and its limit; `None` for no heap.
    heap: Option<(HeapId, usize)>,
    shadow: Shadow,
    tag: u64,
    nulls: usize,
}

impl<'a, O: TestOs> Worker<'a, O> {
    /// Makes a worker. Its number distinguishes its blocks from those of others.
    pub fn new(engine: &'a Engine<O>, number: u32) -> Self {
        let tag = (number as u64 + 1) << 32;
        Self { engine, heap: None, shadow: Shadow::default(), tag, nulls: 0 }
    }

    /// Allocates from a heap with this limit from now on, or from none.
    pub fn move_to(&mut self, heap: Option<(HeapId, usize)>) {
        self.heap = heap;
    }

    /// Forgets a heap that is about to be deleted, and all blocks of it.
    pub fn forget(&mut self, heap: HeapId) {
        self.shadow.forget(heap);
        self.heap = self.heap.filter(|&(own, _)| own != heap);
    }

    /// Performs operations. Takes back itself the blocks that it hands over.
    pub fn run(&mut self, program: impl IntoIterator<Item = Op>) {
        for op in program {
            if let Some(block) = self.apply(op) {
                self.receive(block);
            }
        }
    }

    /// Performs one operation. Returns the block that it handed over, if any.
    pub fn apply(&mut self, op: Op) -> Option<Block> {
        match op {
            Op::Alloc { size, align } => self.alloc(size, align, false),
            Op::AllocZeroed { size } => self.alloc(size, 1, true),
            Op::Free { nth } => {
                if let Some(block) = self.shadow.take(nth) {
                    block.check();
                    // SAFETY: the worker owned the block, and its shadow no longer has it.
                    unsafe {
                        self.watch(|watch| watch.free(block.start, block.usable));
                        self.engine.free(block.start)
                    };
                }
            }
            Op::FreeSized { nth } => {
                if let Some(block) = self.shadow.take(nth) {
                    block.check();
                    // SAFETY: as for `Free`, and size and alignment are the block's.
                    unsafe {
                        self.watch(|watch| watch.free(block.start, block.usable));
                        match block.heap {
                            Some(heap) => self.engine.heap_free(heap, block.start, "a test"),
                            None => self.engine.free_sized(block.start, block.size, block.align),
                        }
                    };
                }
            }
            Op::Realloc { nth, size } => self.realloc(nth, size),
            // SAFETY: the worker owns the block, and passes its alignment.
            Op::Resize { nth, size } => self.without_copying(nth, size, |engine, old| unsafe {
                if engine.resize(old.start, size, old.align) { old.start } else { ptr::null_mut() }
            }),
            // SAFETY: as for `Resize`; if the block moves, the old address is not used again.
            Op::Remap { nth, size } => self.without_copying(nth, size, |engine, old| unsafe {
                engine.remap(old.start, size, old.align)
            }),
            Op::UsableSize { nth } => {
                if let Some(block) = self.shadow.take(nth) {
                    assert_eq!(self.engine.usable_size(block.start), block.usable);
                    self.shadow.insert(block);
                }
            }
            Op::Absurd { nth, pick } => self.absurd(nth, pick),
            Op::Trim => {
                self.engine.trim();
                self.shadow.check();
            }
            Op::HandOver { nth } => return self.shadow.take(nth),
        }
        None
    }

    /// Takes over a block that another worker handed over.
    pub fn receive(&mut self, block: Block) {
        block.check();
        self.shadow.insert(block);
    }

    /// The blocks that it holds.
    pub fn shadow(&self) -> &Shadow {
        &self.shadow
    }

    /// How often the engine returned null for want of memory.
    pub fn nulls(&self) -> usize {
        self.nulls
    }

    /// Checks and frees all of its blocks.
    pub fn free_all(&mut self) {
        while !self.shadow.blocks().is_empty() {
            self.apply(Op::Free { nth: 0 });
        }
    }

    fn alloc(&mut self, size: usize, align: usize, zeroed: bool) {
        let refusals = self.engine.os().faults().refusals();
        let engine = self.engine;
        let heap = self.heap.map(|(heap, _)| heap);
        let start = match (heap, zeroed, align) {
            (Some(heap), true, _) => engine.heap_alloc_zeroed(heap, size, align, "a test"),
            (Some(heap), false, _) => engine.heap_alloc(heap, size, align, "a test"),
            (None, true, _) => engine.alloc_zeroed(size),
            (None, false, 1) => engine.alloc(size),
            (None, false, _) => engine.alloc_aligned(size, align),
        };
        if start.is_null() {
            return self.note_null(heap, size, align, refusals);
        }
        let mut block = Block::new(start, size, align, self.engine.usable_size(start));
        block.heap = heap;
        let wrote = if zeroed { Wrote::Zeros } else { Wrote::First(0) };
        // SAFETY: the worker owns the block, which is new.
        self.watch(|watch| unsafe { watch.receive(start, block.usable, wrote) });
        if zeroed {
            block.check_zero();
        }
        block.fill(self.next_tag());
        self.shadow.insert(block);
    }

    fn realloc(&mut self, nth: usize, size: usize) {
        let Some(old) = self.shadow.take(nth) else {
            return;
        };
        old.check();
        // SAFETY: the worker still owns the block.
        self.watch(|watch| unsafe { watch.may_free(old.start, old.usable) });
        let refusals = self.engine.os().faults().refusals();
        // SAFETY: the worker owns the block, passes its alignment, and forgets its old address.
        let start = unsafe {
            match old.heap.filter(|_| nth.is_multiple_of(2)) {
                Some(heap) => self.engine.heap_realloc(heap, old.start, size, old.align, "a test"),
                None => self.engine.realloc(old.start, size, old.align),
            }
        };
        if start.is_null() {
            self.note_null(old.heap, size, old.align, refusals);
            old.check();
            return self.shadow.insert(old);
        }
        let new = Block::new(start, size, old.align, self.engine.usable_size(start));
        self.resized(&old, new);
    }

    /// Requests a size that no process can have, for a new block or for one that it holds. Panics
    /// unless the engine refuses, and leaves the block as it was.
    fn absurd(&mut self, nth: usize, pick: usize) {
        let block = self.shadow.take(nth);
        let (start, align) =
            block.as_ref().map_or((ptr::null_mut(), 1), |block| (block.start, block.align));
        let (way, pick) = (pick % 8, pick / 8);
        let size = borders::absurd(start.addr(), pick);
        // An absurd alignment.
        let wide = 1 << (47 + pick % 17);
        let engine = self.engine;
        let of_block = block.as_ref().and_then(|block| block.heap);
        // `reported`: whether the engine reports out of memory for this call.
        let (reported, granted) = match (way, self.heap) {
            (0, None) => (true, engine.alloc_zeroed(size)),
            (1, None) => (true, engine.alloc_aligned(size, 1 << (pick % 64))),
            (2, None) => (true, engine.alloc_aligned(pick % 100_000, wide)),
            (0, Some((heap, _))) => (true, engine.heap_alloc_zeroed(heap, size, 1, "a test")),
            (1, Some((heap, _))) => {
                (true, engine.heap_alloc(heap, size, 1 << (pick % 64), "a test"))
            }
            (2, Some((heap, _))) => (true, engine.heap_alloc(heap, pick % 100_000, wide, "a test")),
            _ if start.is_null() => (true, engine.alloc(size)),
            // SAFETY: the worker owns the block. Refused calls leave it as it was.
            _ => unsafe {
                match (way, of_block) {
                    (3, _) if engine.resize(start, size, align) => (false, start),
                    (3, _) => (false, ptr::null_mut()),
                    (4, _) => (false, engine.remap(start, size, align)),
                    (5, Some(heap)) => {
                        (true, engine.heap_realloc(heap, start, size, align, "a test"))
                    }
                    (6, _) => (true, engine.realloc(start, pick % 100_000, wide)),
                    _ => (true, engine.realloc(start, size, align)),
                }
            },
        };
        assert!(granted.is_null(), "{size:#x} bytes by way {way}, of {block:?}");
        self.nulls += reported as usize;
        if let Some(block) = block {
            block.check();
            assert_eq!(engine.usable_size(block.start), block.usable);
            self.shadow.insert(block);
        }
    }

    /// Resizes a block by `resize`, which may refuse even if there is memory.
    fn without_copying(
        &mut self,
        nth: usize,
        size: usize,
        resize: impl FnOnce(&Engine<O>, &Block) -> *mut u8,
    ) {
        let Some(old) = self.shadow.take(nth) else {
            return;
        };
        old.check();
        // SAFETY: the worker still owns the block.
        self.watch(|watch| unsafe { watch.may_free(old.start, old.usable) });
        let start = resize(self.engine, &old);
        if start.is_null() {
            old.check();
            return self.shadow.insert(old);
        }
        self.resized(&old, Block::new(start, size, old.align, self.engine.usable_size(start)));
    }

    fn resized(&mut self, old: &Block, mut new: Block) {
        new.heap = old.heap;
        let kept = Wrote::First(old.usable.min(new.size));
        // SAFETY: the worker owns the resized block.
        self.watch(|watch| unsafe { watch.receive(new.start, new.usable, kept) });
        new.check_kept(old);
        new.fill(self.next_tag());
        self.shadow.insert(new);
    }

    /// Counts a null. Panics if the engine had memory for the block.
    fn note_null(
        &mut self,
        heap: Option<HeapId>,
        size: usize,
        align: usize,
        refusals_before: usize,
    ) {
        let os = self.engine.os();
        let needed = size.saturating_add(align).saturating_add(SLACK_BYTES);
        // The worker knows the limit of its own heap only.
        let forbidden = heap.is_some_and(|heap| match self.heap {
            Some((own, limit)) if own == heap => {
                let rounded = size.saturating_add(size / 8).max(align).saturating_add(1 << 16);
                // The use may exceed the limit while another thread moves a block of the heap.
                rounded > limit.saturating_sub(self.engine.heap_used(heap, "a test"))
            }
            _ => true,
        });
        assert!(
            forbidden || os.faults().refusals() > refusals_before || os.room() < needed,
            "null for {size} bytes aligned to {align} though {} bytes are left",
            os.room()
        );
        self.nulls += 1;
    }

    fn watch(&self, work: impl FnOnce(&Watch)) {
        self.engine.os().watch().inspect(|watch| work(watch));
    }

    fn next_tag(&mut self) -> u64 {
        self.tag += 1;
        self.tag
    }
}
