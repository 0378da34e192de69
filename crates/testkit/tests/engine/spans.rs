//! Tests how much of a class's first span is resident at first.

use ebbmalloc::internals::Engine;
use ebbmalloc_testkit::FakeOs;

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
