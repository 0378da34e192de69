//! Audits the whole heap at rest, for tests: panics at the first inconsistency. No other thread may
//! use the engine meanwhile.
//!
//! It checks these invariants:
//!
//! - runs tile the units up to the frontier, and the trees hold the free ones
//!   (`page_heap/alloc.rs`);
//! - the page map and the run's record agree on the use of each unit;
//! - a span's counts agree with its bitmap, and no block in use lies in a hole;
//! - the lists of a class hold the spans with free blocks;
//! - every block is in use, or in exactly one cache, or a set bit in its span;
//! - counters equal the sums over the heap.

use core::ptr;

use crate::backend::page_map::MapEntry;
use crate::backend::region::{Region, UnitIndex};
use crate::backend::run::{Run, RunState};
use crate::backend::span::Span;
use crate::backend::units::Units;
use crate::central::CentralCounts;
use crate::central::heap_record::HeapRecord;
use crate::engine::Engine;
use crate::frontend::owned_stack::OwnedStack;
use crate::frontend::slab::Slab;
use crate::platform::os::Os;
use crate::safety::check_table::BlockState;
use crate::size_class::{CLASSES, SizeClass, UNIT};

/// Sums over the heap.
struct Found {
    /// By class, spans and blocks claimed from them, without those of heaps.
    classes: [CentralCounts; CLASSES],
    /// Units of spans, without those of heaps.
    span_units: usize,
    /// Units of heaps' records and spans.
    heap_units: usize,
    /// Large blocks that are not medium.
    large_blocks: usize,
    large_units: usize,
    /// Bytes that they count as.
    large_bytes: usize,
}

impl<O: Os> Engine<O> {
    /// Runs `work` while the lock of the class for blocks of `size` bytes is taken, as if by
    /// another thread. No round of the scavenger begins meanwhile, since it reads all spans.
    pub fn while_at_spans<R>(&self, size: usize, work: impl FnOnce() -> R) -> R {
        let class = SizeClass::of(size).expect("a small size");
        let _rounds = self.rounds.try_lock();
        let _spans = self.centrals[class.index()].spans().lock();
        work()
    }

    /// Audits the heap. Blocks that are neither in a cache nor free count as the program's.
    pub fn check(&self) {
        let found = self.check_runs();
        for class in SizeClass::all() {
            let spans = self.centrals[class.index()].spans().lock();
            let (counts, seen) = (spans.counts, found.classes[class.index()]);
            let (listed, _) = spans.check(&self.region, class);
            drop(spans);
            assert_eq!(listed, counts.free(), "free blocks of {class:?}");
            assert_eq!((counts.spans, counts.claimed), (seen.spans, seen.claimed), "of {class:?}");
            assert_eq!(counts.holes, seen.holes, "bytes in holes of {class:?}");
            assert!(
                self.cached_blocks(class) <= counts.claimed,
                "caches hold more than was claimed"
            );
        }
        assert_eq!(self.check_heaps(), found.heap_units, "units of heaps");
        let counters = self.counters.read();
        let pages = self.pages();
        let in_use = pages.check();
        let (paged_units, medium_blocks, medium_bytes) = pages.check_paged();
        drop(pages);
        let large = (found.large_blocks + medium_blocks, found.large_bytes + medium_bytes);
        let counted = (counters.large_blocks, counters.large_bytes);
        assert_eq!(large, counted, "large blocks and their bytes");
        let all = found.span_units + found.heap_units + found.large_units + paged_units;
        assert_eq!(all, in_use, "units in use");
        self.thread_slabs.check();
        self.check_near();
        self.each_cached(|block, class| self.mark(block, Some(class)));
        self.each_cached(|block, _| self.unmark(block));
    }

    /// Audits the heap of a program that holds the blocks in `live`, and no others.
    pub fn check_with(&self, live: &[*mut u8]) {
        self.check();
        let large = live.iter().filter(|&&block| self.mark(block, None)).count()
            + self.sum_quarantined(|block| self.mark(block, None));
        assert_eq!(
            large,
            self.counters.read().large_blocks,
            "the program holds as many large blocks as are counted"
        );
        self.each_cached(|block, class| self.mark(block, Some(class)));
        for (first, run) in self.pages().runs() {
            if run.state == RunState::InUse && self.region.entry(first as usize).class().is_some() {
                // SAFETY: a span begins at this unit, and no other thread uses the engine.
                let idle = unsafe { &*self.region.span(first) }.is_idle();
                assert!(idle, "the program holds each block of the span at {first} that is in use");
            }
        }
        self.each_cached(|block, _| self.unmark(block));
        live.iter().for_each(|&block| self.unmark(block));
        self.sum_quarantined(|block| {
            self.unmark(block);
            false
        });
    }

    /// Compares runs with the page map and with their spans.
    fn check_runs(&self) -> Found {
        let region = &self.region;
        let mut found = Found {
            classes: [CentralCounts::default(); CLASSES],
            span_units: 0,
            heap_units: 0,
            large_blocks: 0,
            large_units: 0,
            large_bytes: 0,
        };
        let pages = self.pages();
        for (first, run) in pages.runs() {
            let entry = region.entry(first as usize);
            let rest = first + 1..first + run.units;
            if run.state != RunState::InUse {
                let units = first as usize..rest.end as usize;
                let walked = region.units_in(units.clone()).count();
                if run.state == RunState::Foreign && entry != MapEntry::LARGE_FREED {
                    assert_eq!((entry, walked), (MapEntry::OTHERS, 1), "others' at {first}");
                    continue;
                }
                assert_eq!(walked, units.len(), "units of the run at {first}");
                units.for_each(|unit| check_unused(region, unit as UnitIndex));
                continue;
            }
            if entry.is_paged() {
                continue;
            }
            let quarantined = self.hardening() && entry == MapEntry::LARGE_FREED;
            if !quarantined {
                check_owner(region, first, run, entry);
            }
            if let Some(class) = entry.class() {
                let expected = MapEntry::small(class, first);
                for unit in first..rest.end {
                    assert_eq!(region.entry(unit as usize).of_anyone(), expected, "unit {unit}");
                }
                // SAFETY: a span begins at this unit, and no other thread uses the engine.
                let span = unsafe { &*region.span(first) };
                let lengths = [class.span_units(), class.random_span_units()];
                assert!(lengths.contains(&run.units), "{} units of {class:?}", run.units);
                assert_eq!(run.units, span.units as u32, "units of a span of {class:?}");
                span.check(class);
                if entry.is_of_heap() {
                    found.heap_units += run.units as usize;
                } else {
                    let counts = &mut found.classes[class.index()];
                    counts.spans += 1;
                    found.span_units += run.units as usize;
                    counts.claimed += (span.blocks - span.free) as usize;
                    counts.holes += span.holes();
                }
                continue;
            }
            // One run holds the records of several heaps that were made together.
            let records = entry == MapEntry::HEAP;
            let nth_record =
                |unit: UnitIndex| records && (unit - first).is_multiple_of(self.heap_units());
            for unit in rest {
                match nth_record(unit) {
                    true => assert_eq!(region.entry(unit as usize), MapEntry::HEAP, "at {unit}"),
                    false => check_unused(region, unit),
                }
            }
            match entry.of_anyone() {
                MapEntry::HEAP => found.heap_units += run.units as usize,
                MapEntry::LARGE => {
                    let guard = if self.hardening() { self.os.page_size() } else { 0 };
                    let expected = Units::for_bytes(run.asked() + guard).map(Units::get);
                    assert_eq!(expected, Some(run.units), "large block at {first}");
                    found.large_blocks += 1;
                    found.large_units += run.units as usize;
                    found.large_bytes += self.noted_bytes(first);
                }
                entry if entry.is_cached() => found.large_units += run.units as usize,
                MapEntry::LARGE_FREED if quarantined => {
                    found.large_blocks += 1;
                    found.large_units += run.units as usize;
                    found.large_bytes += self.noted_bytes(first);
                }
                _ => panic!("unit {first} is in use for nothing: {entry:?}"),
            }
        }
        found
    }

    /// Checks that the blocks in near caches are those of which the map says so.
    fn check_near(&self) {
        let mut listed = 0;
        for cache in self.near_caches() {
            let mut bytes = 0;
            for block in cache.contents().lock().list() {
                let offset = self.region.offset(ptr::without_provenance(block.address));
                let entry = self.region.entry(offset / UNIT);
                assert!(entry.is_cached(), "{block:?} is not cached");
                let found = self.large_block_of(offset, entry.with_cached(false));
                let size = found.map(|found| self.large_size(&found));
                assert_eq!(size, Some(block.bytes), "{block:?}");
                (listed, bytes) = (listed + 1, bytes + block.bytes);
            }
            assert_eq!(cache.bytes(), bytes, "bytes of a near cache");
        }
        let units = self.region.units_in(0..self.region.committed() / UNIT);
        let cached = units.filter(|&unit| self.region.entry(unit).is_cached()).count();
        assert_eq!(cached, listed, "blocks in near caches");
    }

    /// Checks the heaps. Returns the units of their records and spans.
    fn check_heaps(&self) -> usize {
        let heaps = self.heaps.lock();
        assert_eq!(heaps.each(&self.region).count(), heaps.count, "heaps");
        let record = self.heap_units() as usize;
        heaps.each(&self.region).map(|heap| record + self.check_heap_record(heap)).sum()
    }

    /// Checks one heap. Returns the units of its spans.
    fn check_heap_record(&self, heap: &HeapRecord) -> usize {
        let contents = heap.contents().lock();
        let (mut units, mut used) = (0, 0);
        for class in SizeClass::all() {
            let spans = &contents.spans[class.index()];
            let counts = spans.counts;
            let (free, listed) = spans.check(&self.region, class);
            assert_eq!(free, counts.free(), "free blocks of {class:?}, in a heap");
            // A heap's lists hold all of its spans, so `listed` counts all of their units.
            units += listed;
            used += counts.claimed * class.size();
        }
        for first in contents.each_large(&self.region) {
            let entry = self.region.entry(first as usize);
            assert_eq!(entry, MapEntry::LARGE.of_heap(), "large block of a heap");
            // SAFETY: a large block of this heap begins at the unit, and the heap is locked.
            used += unsafe { (*self.region.run(first)).units } as usize * UNIT;
        }
        assert_eq!(used, contents.used, "bytes that a heap uses");
        assert!(used <= contents.limit, "a heap beyond its limit");
        units
    }

    /// Calls `work` with each block in a cache, and the class of its stack.
    fn each_cached<R>(&self, mut work: impl FnMut(*mut u8, SizeClass) -> R) {
        let mut in_slab = |slab: Slab| {
            for class in SizeClass::all() {
                // SAFETY: a slab of this engine, and no other thread uses the engine.
                let stack = unsafe { OwnedStack::new(slab, class) };
                let mut header = stack.header();
                // Some stay closed for a while: see `caches/drain.rs`.
                assert!(!header.is_taken(), "a stack of {class:?} is taken");
                header = if header.is_closed() { header.opened(class) } else { header };
                let mut block = [ptr::null_mut()];
                while stack.take(&mut header, &mut block) > 0 {
                    work(block[0], class);
                }
            }
        };
        self.slabs().for_each(&mut in_slab);
        self.thread_slabs.for_each(in_slab);
    }

    /// The number of blocks in check mode's quarantine for which `work` returns true.
    fn sum_quarantined(&self, mut work: impl FnMut(*mut u8) -> bool) -> usize {
        let mut sum = 0;
        if self.checking() {
            self.check_table.lock().find_map(|record| {
                sum += (record.state == BlockState::Quarantined && work(record.block)) as usize;
                None::<()>
            });
        }
        sum
    }

    /// Marks a small block as free in its span's bitmap. Panics if it was marked already: it is in
    /// two places, or free. `cached` is the class of the cache that holds it. True for a large
    /// block.
    fn mark(&self, block: *mut u8, cached: Option<SizeClass>) -> bool {
        let Some((span, number, entry)) = self.small(block) else {
            return true;
        };
        let code = cached.map_or(entry.code(), SizeClass::index);
        assert_eq!(entry.code(), code, "{block:p} is in the wrong cache");
        assert!(span.release(number), "{block:p} is in two places");
        false
    }

    /// Undoes [`Engine::mark`].
    fn unmark(&self, block: *mut u8) {
        if let Some((span, number, _)) = self.small(block) {
            span.take(number);
        }
    }

    /// The span of a block, its number there, and its entry in the map; `None` for a large block.
    #[allow(clippy::mut_from_ref)]
    fn small(&self, block: *mut u8) -> Option<(&mut Span, usize, MapEntry)> {
        let region = &self.region;
        let offset = region.offset(block);
        assert!(offset < region.committed(), "{block:p} is no block");
        let entry = region.entry(offset / UNIT);
        let Some(class) = entry.class() else {
            let begin = entry.begin(self.os.page_size());
            assert!(entry.is_large() && offset % UNIT == begin, "{block:p} is no block: {entry:?}");
            return None;
        };
        let within = entry.within_span(offset);
        assert!(class.begins_at(within), "{block:p} is inside of a block of {class:?}");
        let first = (offset - within) / UNIT;
        // SAFETY: a span begins at this unit, and no other thread uses the engine.
        Some((unsafe { &mut *region.span(first as UnitIndex) }, class.block_at(within), entry))
    }
}

/// Panics if a block begins at this unit, according to the map.
fn check_unused(region: &Region, unit: UnitIndex) {
    let entry = region.entry(unit as usize);
    let is_unused = entry == MapEntry::NONE || entry.is_large_freed() && !entry.is_paged();
    assert!(is_unused, "nothing begins at unit {unit}: {entry:?}");
}

/// Panics unless a run in use and the map agree on whether a heap owns it, and on which.
fn check_owner(region: &Region, first: UnitIndex, run: Run, entry: MapEntry) {
    let owner = run.heap() as usize;
    assert_eq!(entry.is_of_heap(), owner != 0, "whether the run at {first} is a heap's: {owner}");
    let is_heap = owner == 0 || region.entry(owner) == MapEntry::HEAP;
    assert!(is_heap, "the run at {first} is of {owner}, which is no heap");
}
