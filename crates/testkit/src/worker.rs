//! A thread of a program: performs operations and compares with the shadow model.

use std::ptr;

use ebbmalloc::internals::{Engine, HeapId, Os, OsThreads};

use crate::watch::{Watch, Wrote};
use crate::{Block, FakeOs, Faults, LinuxIn, Op, Shadow, borders};

/// An operating system of which a test knows when the engine may be short of memory.
pub trait TestOs: Os {
    /// Which calls it refuses, and has refused.
    fn faults(&self) -> &Faults;
    /// How many bytes it has left to give; 0 where an option of the engine forbids to have all of them.
    fn room(&self) -> usize;
    /// Lets time pass, in milliseconds, where it is no real time.
    fn pass(&self, ms: u32);
    /// How often the engine said that it is out of memory, where that is counted.
    fn shortages(&self) -> Option<usize>;
    /// Who sees to it that free memory is left alone, if somebody does.
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

/// What the engine may leave unused of a room too small: its largest span, and tables.
const SLACK: usize = 2 << 20;

/// One thread's blocks, and the engine that they come from.
pub struct Worker<'a, O: TestOs> {
    engine: &'a Engine<O>,
    /// Where new blocks come from, and its limit; none for the process's.
    heap: Option<(HeapId, usize)>,
    shadow: Shadow,
    tag: u64,
    nulls: usize,
}

impl<'a, O: TestOs> Worker<'a, O> {
    /// A worker; its number tells its blocks from those of others.
    pub fn new(engine: &'a Engine<O>, number: u32) -> Self {
        let tag = (number as u64 + 1) << 32;
        Self { engine, heap: None, shadow: Shadow::default(), tag, nulls: 0 }
    }

    /// From now on allocates from a heap with this limit, or from none.
    pub fn move_to(&mut self, heap: Option<(HeapId, usize)>) {
        self.heap = heap;
    }

    /// Goes on without a heap, which is about to be deleted, and without any block of it.
    pub fn forget(&mut self, heap: HeapId) {
        self.shadow.forget(heap);
        self.heap = self.heap.filter(|&(own, _)| own != heap);
    }

    /// Performs operations, and receives itself what it gives away.
    pub fn run(&mut self, program: impl IntoIterator<Item = Op>) {
        for op in program {
            if let Some(block) = self.apply(op) {
                self.receive(block);
            }
        }
    }

    /// Performs one operation. Returns the block that it gave away, if it did.
    pub fn apply(&mut self, op: Op) -> Option<Block> {
        match op {
            Op::Alloc { size, align } => self.alloc(size, align, false),
            Op::AllocZeroed { size } => self.alloc(size, 1, true),
            Op::Free { nth } => {
                if let Some(block) = self.shadow.take(nth) {
                    block.check();
                    // SAFETY: out of the shadow, so nobody's.
                    unsafe {
                        self.watch(|watch| watch.free(block.start, block.usable));
                        self.engine.free(block.start)
                    };
                }
            }
            Op::FreeSized { nth } => {
                if let Some(block) = self.shadow.take(nth) {
                    block.check();
                    // SAFETY: as above.
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
            // SAFETY: checked and out of the shadow, so nobody's; the alignment is the one it was made with.
            Op::Resize { nth, size } => self.without_copying(nth, size, |engine, old| unsafe {
                if engine.resize(old.start, size, old.align) { old.start } else { ptr::null_mut() }
            }),
            // SAFETY: as above.
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

    /// Takes over a block that another worker gave away.
    pub fn receive(&mut self, block: Block) {
        block.check();
        self.shadow.insert(block);
    }

    /// The blocks held.
    pub fn shadow(&self) -> &Shadow {
        &self.shadow
    }

    /// How often the engine had no memory.
    pub fn nulls(&self) -> usize {
        self.nulls
    }

    /// Checks and frees all blocks held.
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
        // SAFETY: a new block.
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
        // SAFETY: ours still.
        self.watch(|watch| unsafe { watch.may_free(old.start, old.usable) });
        let refusals = self.engine.os().faults().refusals();
        // SAFETY: out of the shadow, so nobody's; the alignment is the one it was made with.
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

    /// What no process can have is refused, whatever is asked and of which block, which stays as it
    /// was.
    fn absurd(&mut self, nth: usize, pick: usize) {
        let block = self.shadow.take(nth);
        let (start, align) =
            block.as_ref().map_or((ptr::null_mut(), 1), |block| (block.start, block.align));
        let (way, pick) = (pick % 8, pick / 8);
        let size = borders::absurd(start.addr(), pick);
        // As absurd as the size.
        let wide = 1 << (47 + pick % 17);
        let engine = self.engine;
        let of_block = block.as_ref().and_then(|block| block.heap);
        let (told, granted) = match (way, self.heap) {
            (0, None) => (true, engine.alloc_zeroed(size)),
            (1, None) => (true, engine.alloc_aligned(size, 1 << (pick % 64))),
            (2, None) => (true, engine.alloc_aligned(pick % 100_000, wide)),
            (0, Some((heap, _))) => (true, engine.heap_alloc_zeroed(heap, size, 1, "a test")),
            (1, Some((heap, _))) => {
                (true, engine.heap_alloc(heap, size, 1 << (pick % 64), "a test"))
            }
            (2, Some((heap, _))) => (true, engine.heap_alloc(heap, pick % 100_000, wide, "a test")),
            _ if start.is_null() => (true, engine.alloc(size)),
            // SAFETY: out of the shadow, so nobody's; it stays as it was.
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
        self.nulls += told as usize;
        if let Some(block) = block {
            block.check();
            assert_eq!(engine.usable_size(block.start), block.usable);
            self.shadow.insert(block);
        }
    }

    /// Any block may be refused, whatever memory there is.
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
        // SAFETY: ours still.
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
        // SAFETY: a block as good as new.
        self.watch(|watch| unsafe { watch.receive(new.start, new.usable, kept) });
        new.check_kept(old);
        new.fill(self.next_tag());
        self.shadow.insert(new);
    }

    fn note_null(
        &mut self,
        heap: Option<HeapId>,
        size: usize,
        align: usize,
        refusals_before: usize,
    ) {
        let os = self.engine.os();
        let needed = size.saturating_add(align).saturating_add(SLACK);
        // Of a heap that is another's the limit is not known here.
        let forbidden = heap.is_some_and(|heap| match self.heap {
            Some((own, limit)) if own == heap => {
                let rounded = size.saturating_add(size / 8).max(align).saturating_add(1 << 16);
                // More than the limit while another thread moves a block of the heap's.
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

    fn watch(&self, look: impl FnOnce(&Watch)) {
        self.engine.os().watch().inspect(|watch| look(watch));
    }

    fn next_tag(&mut self) -> u64 {
        self.tag += 1;
        self.tag
    }
}
