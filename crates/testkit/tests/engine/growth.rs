//! Tests that caches release the spans of sizes that a program has stopped using when the heap
//! grows.

use ebbmalloc::internals::Engine;
use ebbmalloc_testkit::FakeOs;

const MIB: usize = 1 << 20;
const SIZE: usize = 512;
const SPAN: usize = 64 << 10;

/// An engine with a cache that holds blocks of many spans, and `live` bytes in use in blocks of
/// `size` bytes.
fn engine(live: usize, size: usize) -> Engine<FakeOs> {
    engine_that_keeps(0, live, size)
}

/// Like [`engine`], but `kept` blocks of each of those spans stay in use.
fn engine_that_keeps(kept: usize, live: usize, size: usize) -> Engine<FakeOs> {
    // How full a cache is left depends on where its last flush happened.
    let bytes = |extra| 6 * MIB + extra * MIB / 64;
    let mut engines = (0..16).map(|extra| left_behind(kept, live, size, bytes(extra)));
    engines.find(|engine| engine.stats().cached_bytes as usize > MIB / 16).unwrap()
}

fn left_behind(kept: usize, live: usize, size: usize, bytes: usize) -> Engine<FakeOs> {
    let engine = Engine::new(FakeOs::default().cpus(1).still().space(64 * MIB));
    let blocks = |bytes, size| {
        let blocks: Vec<_> = (0..bytes / size).map(|_| engine.alloc(size)).collect();
        assert!(blocks.iter().all(|block| !block.is_null()));
        blocks
    };
    let free = |blocks: &[*mut u8]| {
        // SAFETY: live blocks, each freed once.
        blocks.iter().for_each(|&block| unsafe { engine.free(block) })
    };
    // The cache gets capacity where the program changes direction.
    (0..8).for_each(|_| free(&blocks(MIB / 4, SIZE)));
    blocks(live, size);
    let mut freed = blocks(bytes, SIZE);
    // Frees one block of each span in turn, so that the last freed blocks, which stay in the cache,
    // come from all spans.
    freed.sort_by_key(|block| (block.addr() % SPAN, block.addr()));
    freed.retain(|block| block.addr() % SPAN / SIZE >= kept);
    free(&freed);
    engine
}

/// The number of blocks of this size in caches.
fn held(engine: &Engine<FakeOs>, size: usize) -> u64 {
    engine.stats().classes.iter().find(|class| class.block_bytes == size as u64).unwrap().cached
}

#[test]
fn a_large_block_takes_the_memory_of_spans_that_only_caches_held() {
    let engine = engine(0, SIZE);
    let before = engine.stats().committed_bytes;
    assert!(engine.stats().spans > 90);
    assert!(!engine.alloc(MIB).is_null());
    assert_eq!(engine.stats().committed_bytes, before);
    assert!(engine.stats().spans < 3);
    engine.check();
}

#[test]
fn small_blocks_of_another_size_take_it_too() {
    let engine = engine(0, SIZE);
    let before = engine.stats().committed_bytes;
    assert!((0..3 * MIB / 1024).all(|_| !engine.alloc(1024).is_null()));
    // The first span of the other size may come from fresh memory.
    let grown = engine.stats().committed_bytes - before;
    assert!(grown as usize <= 4 * SPAN, "{grown} bytes more");
    engine.check();
}

/// Most memory of the spans is in use, but of the abandoned size only what is in the cache.
#[test]
fn the_stack_of_a_size_that_was_left_behind_lets_go() {
    let engine = engine(8 * MIB, 2 * SIZE);
    let before = engine.stats();
    assert!(before.live_bytes > before.pinned_bytes + before.cached_bytes);
    assert!(!engine.alloc(MIB).is_null());
    let after = engine.stats();
    assert_eq!(after.committed_bytes, before.committed_bytes);
    assert!(after.spans + 80 < before.spans, "{} spans of {}", after.spans, before.spans);
    engine.check();
}

/// Stacks of other sizes stay as they are: their blocks are in use.
#[test]
fn the_stacks_of_other_sizes_keep_what_they_have() {
    // One block more than the number a refill ends with.
    let engine = engine(8 * MIB + 2 * SIZE, 2 * SIZE);
    let before = held(&engine, 2 * SIZE);
    assert!(before > 0 && held(&engine, SIZE) > 0);
    assert!(!engine.alloc(MIB).is_null());
    assert_eq!((held(&engine, SIZE), held(&engine, 2 * SIZE)), (0, before));
    engine.check();
}

/// Only rounds reset these stacks, at intervals of time: a program may grow between any two misses.
#[test]
fn the_stacks_of_other_sizes_that_wait_for_room_go_on_waiting() {
    const LARGE: usize = 16 << 10;
    let engine = engine(8 * MIB, 2 * SIZE);
    let miss = |turns| {
        for _ in 0..turns {
            let block = engine.alloc(LARGE);
            // SAFETY: a live block, freed once.
            unsafe { engine.free(block) }
        }
    };
    // The 256th miss adds capacity; each turn misses twice.
    miss(110);
    assert!(held(&engine, LARGE) == 0 && held(&engine, SIZE) > 0);
    assert!(!engine.alloc(MIB).is_null());
    assert_eq!(held(&engine, SIZE), 0);
    miss(30);
    assert!(held(&engine, LARGE) > 0);
    engine.check();
}

/// Pages without a block in use are purged: only as many as become resident, and only once no block
/// of that size was requested since the last look.
#[test]
fn spans_of_a_size_that_was_left_behind_go_back_page_by_page() {
    let engine = engine_that_keeps(8, 8 * MIB, 2 * SIZE);
    let mut before = engine.stats().dug_bytes as usize;
    let grow = || {
        assert!(!engine.alloc(MIB).is_null());
        engine.check();
        engine.stats().dug_bytes as usize
    };
    for _ in 0..5 {
        let dug = grow();
        assert!((MIB..MIB + SPAN).contains(&(dug - before)), "{} bytes", dug - before);
        before = dug;
    }
    // All but a page of each of 96 spans is less than what is about to become resident.
    assert_eq!(grow(), before);
}

#[test]
fn spans_of_a_size_that_is_asked_for_stay_as_they_are() {
    let engine = engine_that_keeps(8, 8 * MIB, 2 * SIZE);
    let before = engine.stats().dug_bytes;
    for _ in 0..4 {
        // More blocks than the cache has.
        let blocks: Vec<_> = (0..1024).map(|_| engine.alloc(SIZE)).collect();
        // SAFETY: live blocks, each freed once.
        blocks.into_iter().for_each(|block| unsafe { engine.free(block) });
        assert!(!engine.alloc(MIB).is_null());
        assert_eq!(engine.stats().dug_bytes, before);
    }
    engine.check();
}

/// As where a program goes on with larger blocks, and a few of the old size among them.
#[test]
fn but_not_where_most_of_the_memory_of_spans_is_free() {
    let engine = engine_that_keeps(8, 0, SIZE);
    let mut before = engine.stats().dug_bytes as usize;
    for _ in 0..4 {
        // More blocks than the cache has.
        assert!((0..128).all(|_| !engine.alloc(SIZE).is_null()));
        assert!(!engine.alloc(MIB).is_null());
        let dug = engine.stats().dug_bytes as usize;
        assert!((MIB..MIB + SPAN).contains(&(dug - before)), "{} bytes", dug - before);
        before = dug;
    }
    engine.check();
}

/// Other blocks keep the spans in use, so emptying the stack would gain nothing.
#[test]
fn the_stack_of_a_size_that_is_in_use_keeps_what_it_has() {
    let engine = engine_that_keeps(8, 8 * MIB, 2 * SIZE);
    let before = engine.stats();
    assert!(before.pinned_bytes as usize > 5 * MIB);
    assert!(!engine.alloc(MIB).is_null());
    assert_eq!(engine.stats().cached_bytes, before.cached_bytes);
    engine.check();
}

/// A span of each size has much memory that was never touched: emptying caches would gain nothing.
#[test]
fn caches_stay_full_where_what_is_free_is_not_resident() {
    let engine = Engine::new(FakeOs::default().cpus(1).still().space(64 * MIB));
    for size in engine.stats().classes.iter().map(|class| class.block_bytes as usize) {
        if size <= 2048 {
            let block = engine.alloc(size);
            // SAFETY: a live block, freed once.
            unsafe { engine.free(block) }
        }
    }
    let before = engine.stats();
    assert!(before.spans as usize * SPAN > 2 * MIB && before.cached_bytes > 0);
    for _ in 0..16 {
        assert!(!engine.alloc(MIB).is_null());
        assert_eq!(engine.stats().cached_bytes, before.cached_bytes);
    }
    engine.check();
}

/// Most memory of the spans is in use: emptying caches would gain little, and each growth would pay
/// for it.
#[test]
fn caches_stay_full_where_spans_are() {
    let engine = engine(8 * MIB, SIZE);
    let before = engine.stats().cached_bytes;
    for _ in 0..3 {
        assert!(!engine.alloc(MIB).is_null());
    }
    assert_eq!(engine.stats().cached_bytes, before);
    engine.check();
}
