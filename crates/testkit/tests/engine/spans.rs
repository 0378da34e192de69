//! Spans are as long as is worth it, and shorter where that fills a gap.

use ebbmalloc::Engine;
use ebbmalloc_testkit::FakeOs;

const UNIT: usize = 64 << 10;
/// Five of these have a span of three units; one has one of a single unit.
const SIZE: usize = 36 << 10;

/// An engine with so many free runs of `units` units, and used ones between.
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
