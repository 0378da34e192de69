//! Tests that a program which moves its blocks as the engine advises packs them into few spans.

use ebbmalloc::internals::{Detail, Engine};
use ebbmalloc_testkit::FakeOs;

/// Frees all but every `nth` of the blocks, and then moves blocks until none would move. Returns
/// spans before and after, and moves.
fn pack(engine: &Engine<FakeOs>, size: usize, count: usize, nth: usize) -> (u64, u64, usize) {
    let all: Vec<*mut u8> = (0..count).map(|_| engine.alloc(size)).collect();
    // The last blocks all go, so that one span is emptier than the others.
    let (kept, gone): (Vec<_>, Vec<_>) = all
        .into_iter()
        .enumerate()
        .partition(|(index, _)| index % nth == 0 && (nth == 1 || *index < count * 15 / 16));
    // SAFETY, below: live blocks, each freed once.
    gone.into_iter().for_each(|(_, block)| unsafe { engine.free(block) });
    let mut kept: Vec<*mut u8> = kept.into_iter().map(|(_, block)| block).collect();
    engine.flush_cache();
    let (before, mut moves) = (engine.stats().spans, 0);
    loop {
        let moved = moves;
        for block in &mut kept {
            if engine.would_pack(*block) {
                let new = engine.alloc_packed(size, 1);
                assert_ne!(new, *block);
                unsafe { engine.free_packed(*block) };
                (*block, moves) = (new, moves + 1);
                assert!(moves <= count, "moves do not come to an end");
            }
        }
        if moves == moved {
            break;
        }
    }
    engine.check_with(&kept);
    let after = engine.stats().spans;
    kept.into_iter().for_each(|block| unsafe { engine.free(block) });
    engine.trim();
    assert_eq!(engine.stats().spans, 0);
    (before, after, moves)
}

#[test]
fn blocks_move_to_as_few_spans_as_hold_them() {
    for mode in ["slot", "thread"] {
        for size in [16, 64, 1000, 20_000] {
            let engine = Engine::new(FakeOs::default().space(64 << 20).cpus(1).mode(mode));
            let per_span = (64 << 10) / size.min(64 << 10);
            let count = 16 * per_span.max(16);
            let (before, after, moves) = pack(&engine, size, count, 5);
            let needed = count.div_ceil(5).div_ceil(per_span.max(1)) as u64;
            assert!(after <= needed + 1, "{size} bytes: {before} spans, {after} of {needed}");
            assert!(moves > 0 && before > 2 * after, "{size} bytes: {before} to {after}");
            // What is packed already does not move.
            assert_eq!(pack(&engine, size, per_span.max(2), 1).2, 0);
        }
    }
}

#[test]
fn other_blocks_do_not_move() {
    let engine = Engine::new(FakeOs::default().space(16 << 20).cpus(1));
    assert!(!engine.would_pack(std::ptr::null_mut()));
    let small = engine.alloc_packed(100, 1);
    let large = engine.alloc_packed(100_000, 1);
    let aligned = engine.alloc_packed(100_000, 1 << 20);
    assert_eq!(aligned.addr() % (1 << 20), 0);
    let heap = engine.new_heap(usize::MAX).expect("room for a heap");
    let in_heap = engine.heap_alloc(heap, 100, 1, "a test");
    for block in [small, large, aligned, in_heap, small.wrapping_add(16), large.wrapping_add(1)] {
        assert!(!engine.would_pack(block));
    }
    // SAFETY, below: live blocks, each freed once.
    for block in [small, large, aligned, in_heap, std::ptr::null_mut()] {
        unsafe { engine.free_packed(block) };
    }
    assert_eq!(engine.stats().live_bytes, 0);
    engine.check();
}

#[test]
fn statistics_at_once_are_those_of_each_span() {
    let engine = Engine::new(FakeOs::default().space(64 << 20).cpus(1));
    let blocks: Vec<*mut u8> = (0..5000).map(|_| engine.alloc(500)).collect();
    let (kept, gone) = blocks.split_at(700);
    // SAFETY: live blocks, each freed once.
    gone.iter().for_each(|&block| unsafe { engine.free(block) });
    engine.trim();
    let [slow, fast] =
        [Detail::Heap, Detail::AtOnce].map(|detail| engine.with_stats(detail, |stats| *stats));
    assert!(slow.hole_bytes > 0);
    assert_eq!(slow.live_bytes, fast.live_bytes);
    assert_eq!(slow.pinned_bytes + slow.hole_bytes, fast.pinned_bytes + fast.hole_bytes);
    assert!(slow.hole_bytes.abs_diff(fast.hole_bytes) <= 4096 * slow.spans, "{slow:?} {fast:?}");
    engine.check_with(kept);
}
