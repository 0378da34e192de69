//! Tests the length of spans: as long as waste allows, and shorter where that fills a gap.

use ebbmalloc::internals::Engine;
use ebbmalloc_testkit::FakeOs;

const UNIT: usize = 64 << 10;
/// Five blocks of this size have a span of three units; one block has a span of one unit.
const SIZE: usize = 36 << 10;

/// An engine with `count` free runs of `units` units, and used ones between.
fn with_gaps(count: usize, units: usize) -> Engine<FakeOs> {
    let engine = Engine::new(FakeOs::default().cpus(1).still());
    let blocks: Vec<_> = (0..count).map(|_| engine.alloc((2 + units) * UNIT)).collect();
    for block in blocks {
        assert!(!block.is_null());
        // SAFETY: a live block, which shrinks in place.
        assert_eq!(unsafe { engine.realloc(block, 2 * UNIT, 1) }, block);
    }
    assert_eq!(engine.stats().dirty_bytes as usize, count * units * UNIT);
    engine
}

fn fill(engine: &Engine<FakeOs>, count: usize) -> Vec<*mut u8> {
    let blocks: Vec<_> = (0..count).map(|_| engine.alloc(SIZE)).collect();
    for &block in &blocks {
        assert!(!block.is_null());
        // SAFETY: a live block of this size.
        unsafe { block.write_bytes(1, SIZE) };
    }
    engine.check();
    blocks
}

#[test]
fn gaps_that_no_large_block_fits_into_are_filled() {
    let engine = with_gaps(20, 1);
    let before = engine.stats();
    let blocks = fill(&engine, 20);
    let after = engine.stats();
    assert_eq!(after.committed_bytes, before.committed_bytes);
    assert_eq!((after.spans, after.dirty_bytes), (20, 0));
    // SAFETY: live blocks, each freed once.
    blocks.iter().for_each(|&block| unsafe { engine.free(block) });
    assert!(engine.trim());
    let freed = engine.stats();
    assert_eq!((freed.spans, freed.dirty_bytes, freed.large_bytes), (0, 0, before.large_bytes));
    engine.check();
}

#[test]
fn longer_ones_are_left_to_those_that_need_them() {
    for (units, spans) in [(2, 1), (3, 4), (9, 4)] {
        let engine = with_gaps(4, units);
        fill(&engine, spans * 5);
        assert_eq!(engine.stats().spans, spans as u64, "gaps of {units}");
    }
}

/// Returns the bytes purged when the first of `count` blocks is allocated, in a heap with enough
/// free resident memory. Then frees and trims everything.
fn go_at_first(engine: &Engine<FakeOs>, size: usize, count: usize) -> u64 {
    // SAFETY, below: live blocks, each freed once.
    unsafe { engine.free(engine.alloc(1 << 20)) };
    let before = engine.stats().dug_bytes;
    let blocks: Vec<_> = (0..count).map(|_| engine.alloc(size)).collect();
    let gone = engine.stats().dug_bytes - before;
    engine.check_with(&blocks);
    blocks.into_iter().for_each(|block| unsafe { engine.free(block) });
    engine.trim();
    assert_eq!(engine.stats().spans, 0);
    gone
}

const BUT_FOR_THE_FIRST: u64 = (64 - 16) << 10;

#[test]
fn a_class_of_small_blocks_begins_with_few_pages() {
    let engine = || Engine::new(FakeOs::default().cpus(1).still());
    for size in [16, 512, 2048] {
        assert_eq!(go_at_first(&engine(), size, 1), BUT_FOR_THE_FIRST, "{size} bytes");
    }
    // These blocks come from the pages that stay.
    let one = engine();
    let blocks: Vec<_> = (0..32).map(|_| one.alloc(512)).collect();
    let first = blocks.iter().min().unwrap().addr();
    assert!(blocks.iter().all(|block| block.addr() - first < 16 << 10));
    // A few larger blocks may need the whole span.
    assert_eq!(go_at_first(&engine(), 4096, 1), 0);
    // Where a page is as long as a span, there is nothing left to purge.
    let os = FakeOs::default().cpus(1).still().page(64 << 10);
    assert_eq!(go_at_first(&Engine::new(os), 512, 1), 0);
}

#[test]
fn a_class_that_has_filled_its_span_begins_with_a_whole_one_for_a_while() {
    let engine = Engine::new(FakeOs::default().cpus(1).still());
    for count in [1, 1, 64, 128] {
        assert_eq!(go_at_first(&engine, 512, count), BUT_FOR_THE_FIRST, "{count} blocks");
    }
    for turn in 0..128 {
        assert_eq!(go_at_first(&engine, 512, 1), 0, "turn {turn}");
    }
    assert_eq!(go_at_first(&engine, 512, 1), BUT_FOR_THE_FIRST);
}

#[test]
fn only_the_first_span_does_and_those_of_heaps_do_not() {
    let engine = Engine::new(FakeOs::default().cpus(1).still());
    assert_eq!(go_at_first(&engine, 512, 129), BUT_FOR_THE_FIRST);
    // SAFETY: a live block, freed once.
    unsafe { engine.free(engine.alloc(1 << 20)) };
    let heap = engine.new_heap(usize::MAX).expect("room for a heap");
    let purges = engine.os().purges();
    assert!(!engine.heap_alloc(heap, 512, 1, "a test").is_null());
    assert_eq!(engine.os().purges(), purges);
    engine.check();
}
