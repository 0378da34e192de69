//! Spans are as long as what is free allows.

use ebbmalloc::Engine;
use ebbmalloc_testkit::FakeOs;

const UNIT: usize = 64 << 10;
/// Five of these have a span of three units; three have one of two.
const SIZE: usize = 36 << 10;

/// An engine with so many free runs of `units` units, and used ones between.
fn with_gaps(count: usize, units: usize) -> Engine<FakeOs> {
    let engine = Engine::new(FakeOs::default().cpus(1).still(), None);
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
fn shorter_where_the_heap_would_grow_otherwise() {
    let engine = with_gaps(20, 2);
    let before = engine.stats();
    let blocks = fill(&engine, 20 * 3);
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
fn as_usual_where_there_is_room() {
    for (units, spans) in [(3, 4), (9, 2)] {
        let engine = with_gaps(4, units);
        let before = engine.stats().committed_bytes;
        fill(&engine, spans * 5);
        let after = engine.stats();
        assert_eq!((after.committed_bytes, after.spans), (before, spans as u64));
    }
}

/// One block in a unit would leave nearly half of it unused.
#[test]
fn not_where_much_would_be_lost() {
    let engine = with_gaps(20, 1);
    fill(&engine, 5);
    assert_eq!(engine.stats().spans, 1);
}
