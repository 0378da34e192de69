//! Tests sizes and alignments around each value where arithmetic could wrap or truncate, for new
//! blocks and for resized blocks of every sort. The engine must refuse the impossible at no cost,
//! and leave everything as it was.

use ebbmalloc::internals::{Engine, HeapId};
use ebbmalloc_testkit::{Block, FakeOs, LinuxIn, TestOs, borders};

const UNIT: usize = 64 << 10;
const MIB: usize = 1 << 20;
/// Possible sizes above this are not tried: the tests would spend their time copying.
const TRIED_MOST: usize = 6 * UNIT;
/// No address is a multiple of more than this, and no region is as long.
const ALIGN_MOST: usize = 1 << 46;
/// The limit of the limited heap, in bytes.
const LIMIT: usize = 4 * MIB;

/// An engine, the heaps that blocks come from, and a size that exceeds its address space.
struct Tested<'a, O: TestOs> {
    engine: &'a Engine<O>,
    heaps: [HeapId; 2],
    space: usize,
    /// One of every `step` sizes is tried.
    step: usize,
}

/// The sorts of blocks to resize.
#[derive(Clone, Copy, Debug)]
enum Sort {
    /// A block with this size and alignment.
    Plain(usize, usize),
    /// A block that was resized until it moved.
    Moved,
    /// A block of the heap with this index, with this size.
    OfHeap(usize, usize),
}

const SORTS: [Sort; 17] = [
    Sort::Plain(0, 1),
    Sort::Plain(100, 1),
    Sort::Plain(4096, 1),
    Sort::Plain(40_000, 1),
    Sort::Plain(UNIT, 1),
    Sort::Plain(UNIT + 1, 1),
    Sort::Plain(2 * UNIT, 1),
    Sort::Plain(MIB, 1),
    Sort::Plain(100, 4096),
    Sort::Plain(100, 2 * UNIT),
    Sort::Plain(200_000, MIB),
    Sort::Moved,
    Sort::OfHeap(0, 100),
    Sort::OfHeap(0, 200_000),
    Sort::OfHeap(0, MIB),
    Sort::OfHeap(1, 100),
    Sort::OfHeap(1, MIB),
];

/// Ways to resize.
#[derive(Clone, Copy, Debug)]
enum Way {
    Realloc,
    HeapRealloc,
    Resize,
    Remap,
}

impl<O: TestOs> Tested<'_, O> {
    fn new_block(&self, sort: Sort) -> Block {
        let engine = self.engine;
        let (start, size, align) = match sort {
            Sort::Plain(size, 1) => (engine.alloc(size), size, 1),
            Sort::Plain(size, align) => (engine.alloc_aligned(size, align), size, align),
            Sort::OfHeap(heap, size) => {
                (engine.heap_alloc(self.heaps[heap], size, 1, "a test"), size, 1)
            }
            Sort::Moved => {
                let first = engine.alloc(MIB);
                let (mut moved, mut size, mut in_the_way) = (first, MIB, Vec::new());
                while moved == first {
                    in_the_way.push(engine.alloc(UNIT + 1));
                    size += UNIT;
                    // SAFETY: a live block of this test.
                    moved = unsafe { engine.realloc(moved, size, 1) };
                }
                // SAFETY: live blocks, each freed once.
                in_the_way.into_iter().for_each(|block| unsafe { engine.free(block) });
                (moved, size, 1)
            }
        };
        assert!(!start.is_null(), "{sort:?}");
        let mut block = Block::new(start, size, align, engine.usable_size(start));
        if let Sort::OfHeap(heap, _) = sort {
            block.heap = Some(self.heaps[heap]);
        }
        block.fill(start.addr() as u64);
        block
    }

    /// Whether no new block could have this size, or `block` could not be resized to it.
    fn is_impossible(&self, size: usize, block: Option<&Block>) -> bool {
        let bound = block.is_some_and(|block| block.heap == Some(self.heaps[1]));
        size > if bound { LIMIT } else { self.space }
    }

    fn resize(&self, way: Way, block: &Block, size: usize, align: usize) -> *mut u8 {
        let (engine, start) = (self.engine, block.start);
        // SAFETY: a live block of this test, which nothing else uses.
        unsafe {
            match (way, block.heap) {
                (Way::HeapRealloc, Some(heap)) => {
                    engine.heap_realloc(heap, start, size, align, "a test")
                }
                (Way::Realloc | Way::HeapRealloc, _) => engine.realloc(start, size, align),
                (Way::Resize, _) if engine.resize(start, size, align) => start,
                (Way::Resize, _) => std::ptr::null_mut(),
                (Way::Remap, _) => engine.remap(start, size, align),
            }
        }
    }

    /// The statistics that change if the engine gives memory up or takes some.
    fn state(&self) -> [u64; 12] {
        let stats = self.engine.stats();
        [
            stats.live_bytes,
            stats.large_bytes,
            stats.large_blocks,
            stats.heap_bytes,
            stats.cached_bytes,
            stats.dirty_bytes,
            stats.held_bytes,
            stats.committed_bytes,
            stats.purges,
            stats.dug_bytes,
            stats.flushes,
            self.engine.os().faults().calls() as u64,
        ]
    }

    /// Checks that `ask` returns null, that the platform is told of the shortage `told` times, and
    /// that nothing has changed.
    fn refused(&self, told: usize, what: impl Fn() -> String, ask: impl FnOnce() -> *mut u8) {
        let os = self.engine.os();
        let (calls, shortages) = (os.faults().calls(), os.shortages());
        assert!(ask().is_null(), "{}", what());
        assert_eq!(os.faults().calls(), calls, "calls of the system for {}", what());
        let told = shortages.map(|before| before + told);
        assert_eq!(os.shortages(), told, "whether the platform was told of {}", what());
    }

    /// Checks the whole heap, in which the program holds these blocks.
    fn check_with(&self, live: &[*mut u8]) {
        // Quarantined blocks belong neither to the program nor to the free lists.
        match self.engine.os().environment("EBB_HARDEN", &mut [0; 1]) {
            None => self.engine.check_with(live),
            Some(_) => self.engine.check(),
        }
    }

    /// Resizes a block of every sort in each way.
    fn resized(&self) {
        for sort in SORTS {
            let mut block = self.new_block(sort);
            // Memory that the engine could give up, and neighbours.
            let kept = [self.engine.alloc(300_000), self.engine.alloc(300_000)];
            // SAFETY: a live block, freed once.
            unsafe { self.engine.free(kept[0]) };
            let before = self.state();
            for way in [Way::Realloc, Way::HeapRealloc, Way::Resize, Way::Remap] {
                if matches!(way, Way::HeapRealloc) && block.heap.is_none() {
                    continue;
                }
                let told = matches!(way, Way::Realloc | Way::HeapRealloc) as usize;
                let sizes = borders::sizes(block.start.addr()).step_by(self.step);
                for size in sizes.filter(|&size| self.is_impossible(size, Some(&block))) {
                    let what = || format!("{size:#x} bytes by {way:?}, of {sort:?}");
                    self.refused(told, what, || self.resize(way, &block, size, block.align));
                }
                // Alignments that no block can have, whatever its size.
                for align in borders::alignments().filter(|&align| align > ALIGN_MOST) {
                    for size in [0, block.size, block.size + 1, 2 * MIB, usize::MAX] {
                        let what = || format!("{size:#x} bytes at {align:#x} by {way:?}");
                        self.refused(told, what, || self.resize(way, &block, size, align));
                    }
                }
                block.check();
                assert_eq!(self.engine.usable_size(block.start), block.usable);
            }
            assert_eq!(self.state(), before, "{sort:?}");
            // Then possible alignments, with sizes as for any other request.
            for way in [Way::Realloc, Way::HeapRealloc, Way::Resize, Way::Remap] {
                let sizes = borders::powers().step_by(self.step);
                for size in sizes.filter(|&size| size <= TRIED_MOST) {
                    let start = self.resize(way, &block, size, block.align);
                    if start.is_null() {
                        block.check();
                        continue;
                    }
                    let usable = self.engine.usable_size(start);
                    let mut new = Block::new(start, size, block.align, usable);
                    new.check_kept(&block);
                    new.heap = block.heap;
                    new.fill(size as u64);
                    block = new;
                }
            }
            self.check_with(&[block.start, kept[1]]);
            // SAFETY: a live block, freed once.
            unsafe {
                self.engine.free(block.start);
                self.engine.free(kept[1]);
            }
        }
    }

    /// Allocates new blocks of all sizes at all alignments.
    fn new_blocks(&self) {
        let [heap, limited] = self.heaps;
        let engine = self.engine;
        let mut asked = Vec::new();
        let block = engine.alloc(1);
        for size in borders::sizes(block.addr()) {
            if self.is_impossible(size, None) {
                let what = || format!("{size:#x} bytes");
                self.refused(1, what, || engine.alloc(size));
                self.refused(1, what, || engine.alloc_zeroed(size));
                self.refused(1, what, || engine.heap_alloc(heap, size, 1, "a test"));
                self.refused(1, what, || engine.heap_alloc_zeroed(heap, size, 1, "a test"));
                self.refused(1, what, || engine.heap_alloc(limited, size, 1, "a test"));
            } else if size > LIMIT {
                let what = || format!("{size:#x} bytes of a heap of {LIMIT:#x}");
                self.refused(1, what, || engine.heap_alloc(limited, size, 1, "a test"));
            }
        }
        let before = self.state();
        for size in borders::powers() {
            for align in borders::alignments() {
                let what = || format!("{size:#x} bytes at a multiple of {align:#x}");
                if self.is_impossible(size, None) || align > ALIGN_MOST {
                    self.refused(1, what, || engine.alloc_aligned(size, align));
                    self.refused(1, what, || engine.heap_alloc(heap, size, align, "a test"));
                } else if size <= TRIED_MOST && align <= TRIED_MOST {
                    asked.push((size, align));
                }
            }
        }
        assert_eq!(self.state(), before);
        for (size, align) in asked {
            let block = engine.alloc_aligned(size, align);
            if !block.is_null() {
                let usable = engine.usable_size(block);
                Block::new(block, size, align, usable).fill(size as u64);
                // SAFETY: a live block, freed once.
                unsafe { engine.free_sized(block, size, align) };
            }
        }
        // SAFETY: a live block, freed once.
        unsafe { engine.free(block) };
        self.check_with(&[]);
    }
}

/// Runs all of these tests on one engine.
fn tested<O: TestOs>(engine: &Engine<O>, space: usize) {
    let heaps = [usize::MAX, LIMIT].map(|limit| engine.new_heap(limit).expect("room for a heap"));
    // Check mode reads some thousand bytes of a block in each call about it.
    let checking = engine.os().environment("EBB_CHECK", &mut [0; 1]).is_some();
    let step = if checking { 9 } else { 1 };
    let tested = Tested { engine, heaps, space, step };
    tested.new_blocks();
    tested.resized();
    tested.check_with(&[]);
}

const SPACE: usize = 24 * MIB;

fn on_fake(mode: &'static str, set: (&'static str, &'static str)) {
    let os = FakeOs::default().space(SPACE).cpus(1).still().mode(mode).environment(set.0, set.1);
    tested(&Engine::new(os), SPACE);
}

#[test]
fn slot_mode() {
    on_fake("slot", ("EBB_STATS", ""));
}

#[test]
fn thread_mode() {
    on_fake("thread", ("EBB_STATS", ""));
}

#[test]
fn under_a_limit() {
    let (limit, bytes) = ("16M", 16 * MIB);
    let os = FakeOs::default().space(SPACE).cpus(1).still().environment("EBB_LIMIT", limit);
    tested(&Engine::new(os), bytes);
}

#[test]
fn check_mode() {
    on_fake("slot", ("EBB_CHECK", "1"));
}

#[test]
fn harden_mode() {
    on_fake("slot", ("EBB_HARDEN", "1"));
}

/// Each small block is sampled, as long as there are slots.
#[test]
fn sampled() {
    on_fake("slot", ("EBB_SAMPLE", "1"));
}

#[test]
fn percpu_mode() {
    let space = 1 << 30;
    let engine = Engine::new(LinuxIn::new("percpu").space(space));
    let block = engine.alloc(1);
    if engine.stats().choice.mode == "percpu" {
        // SAFETY: a live block, freed once.
        unsafe { engine.free(block) };
        tested(&engine, space);
    } else {
        eprintln!("SKIPPED: not possible here: {}", engine.stats().choice);
    }
}

/// A region as long as that of a real process.
#[test]
fn the_largest_region() {
    for mode in ["slot", "thread"] {
        tested(&Engine::new(LinuxIn::new(mode)), 1 << 47);
    }
}
