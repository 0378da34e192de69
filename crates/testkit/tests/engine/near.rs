//! Tests near caches: which large blocks they keep, who gets them, and when they give them back.

use std::panic::{AssertUnwindSafe, catch_unwind};

use ebbmalloc::internals::{Engine, OsThreads};
use ebbmalloc_testkit::FakeOs;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
/// What one cache holds.
const CAPACITY: usize = 2 * MIB;

fn os() -> FakeOs {
    FakeOs::default().cpus(2).mode("slot").still().space(256 * MIB)
}

/// An engine whose near caches may hold all that they ever may, and the block because of which.
fn engine(os: FakeOs) -> (Engine<FakeOs>, *mut u8) {
    let engine = Engine::new(os);
    let block = engine.alloc(64 * MIB);
    (engine, block)
}

/// Allocates a block and frees it. Returns its address.
fn freed(engine: &Engine<FakeOs>, size: usize) -> *mut u8 {
    let block = engine.alloc(size);
    assert!(!block.is_null());
    // SAFETY: a live block, freed once.
    unsafe { engine.free(block) };
    block
}

fn cached(engine: &Engine<FakeOs>) -> usize {
    engine.check();
    engine.stats().cached_bytes as usize
}

#[test]
fn blocks_of_the_same_pages_come_back_newest_first() {
    let (engine, long) = engine(os());
    for size in [70_000, 200_000, 600_000, MIB] {
        let blocks = [(); 2].map(|()| engine.alloc(size));
        // SAFETY: live blocks, each freed once.
        blocks.iter().for_each(|&block| unsafe { engine.free(block) });
        let stats = engine.stats();
        assert_eq!((stats.large_blocks, stats.live_bytes as usize), (1, 64 * MIB));
        assert!(cached(&engine) >= 2 * size);
        // A page more would not fit; a byte less takes as many pages.
        let other = engine.alloc(size + 4096);
        assert!(!blocks.contains(&other));
        assert_eq!([(); 2].map(|()| engine.alloc(size - 1)), [blocks[1], blocks[0]]);
        let live = [other, blocks[0], blocks[1]];
        engine.check_with(&[other, blocks[0], blocks[1], long]);
        // SAFETY: live blocks, each freed once.
        live.into_iter().for_each(|block| unsafe { engine.free(block) });
        engine.trim();
        assert_eq!(cached(&engine), 0);
    }
}

#[test]
fn they_hold_a_little_the_newest() {
    let (engine, long) = engine(os());
    let blocks: Vec<_> = (0..40).map(|_| engine.alloc(200 * KIB)).collect();
    // SAFETY: live blocks, each freed once.
    blocks.iter().for_each(|&block| unsafe { engine.free(block) });
    assert_eq!(cached(&engine), CAPACITY / (200 * KIB) * (200 * KIB));
    assert_eq!(engine.alloc(200 * KIB), blocks[39]);
    // Less beside fewer large blocks.
    // SAFETY: live blocks, each freed once.
    unsafe { engine.free(long) };
    freed(&engine, 200 * KIB);
    freed(&engine, 100 * KIB);
    assert_eq!(cached(&engine), 100 * KIB);
}

#[test]
fn some_blocks_are_not_for_them() {
    let (engine, _) = engine(os());
    freed(&engine, MIB + 1);
    // SAFETY: a live block, freed once.
    unsafe { engine.free(engine.alloc_aligned(20_000, 128 * KIB)) };
    assert_eq!(cached(&engine), 0);
    // The alignment counts.
    let near = freed(&engine, 100_000);
    let aligned = engine.alloc_aligned(100_000, 64 * KIB);
    assert_eq!(aligned == near, near.addr().is_multiple_of(64 * KIB));
    // SAFETY: a live block, freed once.
    unsafe { engine.free(aligned) };
    assert_eq!(engine.alloc_aligned(100_000, 64 * KIB), aligned);
    // At once, so says the program, also later.
    freed(&engine, 300_000);
    assert!(cached(&engine) > 0 && engine.set("purge_delay", "0").is_ok());
    freed(&engine, 100_000);
    assert_eq!(cached(&engine), 0);
    assert!(engine.set("purge_delay", "100").is_ok());
    freed(&engine, 100_000);
    assert!(cached(&engine) > 0);
    let engine = Engine::new(os().environment("EBB_PURGE_DELAY", "0"));
    freed(&engine, 100_000);
    assert_eq!(cached(&engine), 0);
    // With one CPU the page heap is as near.
    let engine = Engine::new(os().cpus(1));
    freed(&engine, 100_000);
    assert_eq!(cached(&engine), 0);
}

#[test]
fn zeroed_blocks_are_clear() {
    let engine = Engine::new(os());
    engine.alloc(64 * MIB);
    for size in [100_000, 700_000] {
        let block = freed(&engine, size);
        // SAFETY: memory of the fake, which no other block has now.
        unsafe { block.write_bytes(7, size) };
        assert_eq!(engine.alloc_zeroed(size), block);
        // SAFETY: a live block of that size.
        let bytes = unsafe { std::slice::from_raw_parts(block, size) };
        assert!(bytes.iter().all(|&byte| byte == 0));
    }
}

#[test]
fn they_make_room_at_the_limit() {
    let engine = Engine::new(os().environment("EBB_LIMIT", "12M"));
    let most = (1..).map(|nth| nth * 64 * KIB).take_while(|&size| {
        let block = engine.alloc(size);
        // SAFETY: a live block, freed once.
        unsafe { engine.free(block) };
        !block.is_null()
    });
    let most = most.last().unwrap();
    for size in [200_000, 250_000] {
        freed(&engine, size);
        assert!(cached(&engine) > 0);
        freed(&engine, most);
        assert_eq!(cached(&engine), 0);
    }
    // A lower limit.
    freed(&engine, 200_000);
    assert!(cached(&engine) > 0 && engine.set("limit", "4M").is_ok());
    assert_eq!(cached(&engine), 0);
    // Also for a block that grows in place.
    let engine = Engine::new(os().environment("EBB_LIMIT", "32M"));
    let near = engine.alloc(900_000);
    let block = engine.alloc(24 * MIB);
    // SAFETY: a live block, freed once.
    unsafe { engine.free(near) };
    assert!(cached(&engine) > 0);
    // SAFETY: a live block.
    let grown = unsafe { engine.realloc(block, 31 * MIB + MIB / 2, 1) };
    assert_eq!((grown, cached(&engine)), (block, 0));
}

#[test]
fn what_stays_unused_goes_in_rounds() {
    let (engine, _) = engine(os());
    freed(&engine, 100_000);
    let mut held = Vec::new();
    while cached(&engine) > 0 {
        assert!(held.len() < 10, "{held:?}");
        engine.os().sleep_ms(1000);
        engine.idle();
        held.push(engine.stats().held_bytes);
    }
}

#[test]
fn a_second_free_is_noticed() {
    for size in [100_000, 700_000] {
        let (engine, _) = engine(os());
        let block = freed(&engine, size);
        for resizes in [false, true] {
            // SAFETY: none: the engine must detect the mistake.
            let twice = || unsafe {
                match resizes {
                    true => _ = engine.realloc(block, 2 * size, 1),
                    false => engine.free(block),
                }
            };
            let panic = catch_unwind(AssertUnwindSafe(twice)).expect_err("no fault");
            let message = panic.downcast::<String>().expect("what the engine says");
            assert!(message.starts_with("ebbmalloc: double free: 0x"), "{size}: {message}");
        }
    }
}
