//! Where a program goes on with blocks of other sizes, caches let go of the spans that it has left.

use ebbmalloc::Engine;
use ebbmalloc_testkit::FakeOs;

const MIB: usize = 1 << 20;
const SIZE: usize = 512;
const SPAN: usize = 64 << 10;

/// An engine with a cache that holds blocks of many spans, and `live` bytes in use beside.
fn engine(live: usize) -> Engine<FakeOs> {
    // How full a cache is left depends on where the last of its flushes was.
    let mut engines = (0..16).map(|extra| left_behind(live, 6 * MIB + extra * MIB / 64));
    engines.find(|engine| engine.stats().cached_bytes as usize > MIB / 16).unwrap()
}

fn left_behind(live: usize, bytes: usize) -> Engine<FakeOs> {
    let engine = Engine::new(FakeOs::default().cpus(1).still());
    let blocks = |bytes| {
        let blocks: Vec<_> = (0..bytes / SIZE).map(|_| engine.alloc(SIZE)).collect();
        assert!(blocks.iter().all(|block| !block.is_null()));
        blocks
    };
    let free = |blocks: &[*mut u8]| {
        // SAFETY: live blocks, each freed once.
        blocks.iter().for_each(|&block| unsafe { engine.free(block) })
    };
    // The cache gets room where the program turns.
    (0..8).for_each(|_| free(&blocks(MIB / 4)));
    blocks(live);
    let mut freed = blocks(bytes);
    // One of each span after the other, so that those freed last, which stay in the cache, are of all.
    freed.sort_by_key(|block| (block.addr() % SPAN, block.addr()));
    free(&freed);
    engine
}

#[test]
fn a_large_block_takes_the_memory_of_spans_that_only_caches_held() {
    let engine = engine(0);
    let before = engine.stats().committed_bytes;
    assert!(engine.stats().spans > 90);
    assert!(!engine.alloc(MIB).is_null());
    assert_eq!(engine.stats().committed_bytes, before);
    assert!(engine.stats().spans < 3);
    engine.check();
}

#[test]
fn small_blocks_of_another_size_take_it_too() {
    let engine = engine(0);
    let before = engine.stats().committed_bytes;
    assert!((0..3 * MIB / 1024).all(|_| !engine.alloc(1024).is_null()));
    // The first span of the other size may come from fresh memory.
    let grown = engine.stats().committed_bytes - before;
    assert!(grown as usize <= 4 * SPAN, "{grown} bytes more");
    engine.check();
}

/// Most of what spans have is in use: to empty caches would gain little, and each growth would cost it.
#[test]
fn caches_stay_full_where_spans_are() {
    let engine = engine(8 * MIB);
    let before = engine.stats().cached_bytes;
    for _ in 0..3 {
        assert!(!engine.alloc(MIB).is_null());
    }
    assert_eq!(engine.stats().cached_bytes, before);
    engine.check();
}
