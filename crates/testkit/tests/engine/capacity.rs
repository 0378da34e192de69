//! Tests the capacity of caches: it is bounded in total, and goes to the classes that need it.

use ebbmalloc::internals::{Engine, OsThreads};
use ebbmalloc_testkit::FakeOs;

const MIB: usize = 1 << 20;

/// Sizes that together use every class.
fn sizes() -> impl Iterator<Item = usize> {
    (0..14)
        .flat_map(|double| (1..=8).map(move |step| (16 << double) / 8 * step))
        .filter(|&size| (16..=64 * 1024).contains(&size))
}

/// Allocates `bytes` bytes in blocks of this size and frees them again.
fn burst(engine: &Engine<FakeOs>, size: usize, bytes: usize) {
    let blocks: Vec<_> = (0..bytes.div_ceil(size)).map(|_| engine.alloc(size)).collect();
    assert!(blocks.iter().all(|block| !block.is_null()));
    // SAFETY: live blocks, each freed once.
    blocks.into_iter().for_each(|block| unsafe { engine.free(block) });
}

fn engine() -> Engine<FakeOs> {
    Engine::new(FakeOs::default().cpus(1))
}

fn cached(engine: &Engine<FakeOs>) -> usize {
    engine.stats().cached_bytes as usize
}

#[test]
fn one_class_may_have_a_quarter_mebibyte() {
    let engine = engine();
    for size in [1024, 16 * 1024, 64 * 1024] {
        for _ in 0..10 {
            burst(&engine, size, 8 * MIB);
        }
    }
    let stats = engine.stats();
    for row in stats.classes.iter().filter(|row| row.spans > 0) {
        let bytes = (row.cached * row.block_bytes) as usize;
        assert!((MIB / 8..=MIB / 4).contains(&bytes), "{} bytes cached: {row:?}", bytes);
    }
}

#[test]
fn all_classes_together_are_bounded() {
    let engine = Engine::new(FakeOs::default().cpus(1).still());
    // Blocks in use, so that spans are not mostly free: otherwise the engine empties caches when
    // the heap grows.
    let _in_use = (0..4 * MIB / 512).map(|_| engine.alloc(512)).collect::<Vec<_>>();
    for _ in 0..20 {
        sizes().for_each(|size| burst(&engine, size, MIB / 2));
    }
    // A burst ends in a streak of frees, which may leave a stack anywhere between empty and full.
    let after = |size| {
        burst(&engine, size, MIB / 2);
        cached(&engine)
    };
    let most = sizes().map(after).max().unwrap();
    // Each stack's first capacity (1.9 MiB in all), and a quarter of the memory in use.
    let bound = 2 * MIB + engine.stats().held_bytes as usize / 4;
    assert!(bound < 5 * MIB && most < bound, "{most} bytes cached, {bound} at most");
    // Without the bound it would be 256 KiB a class.
    assert!(most > MIB, "{most} bytes cached");
}

#[test]
fn caches_that_nobody_uses_have_no_share() {
    // One thread uses one cache, however many CPUs there are. 640 KiB are less than a quarter of
    // the memory in use.
    let engine = Engine::new(FakeOs::default().cpus(16));
    let _in_use = (0..6).map(|_| engine.alloc(MIB)).collect::<Vec<_>>();
    let bursts =
        || [512, 768, 1024, 1280, 1536].iter().for_each(|&size| burst(&engine, size, MIB / 8));
    (0..2000).for_each(|_| bursts());
    let before = engine.stats().refills;
    (0..10).for_each(|_| bursts());
    let refills = engine.stats().refills - before;
    assert!(refills < 100, "{refills} refills");
}

#[test]
fn room_moves_to_the_class_that_misses() {
    let engine = engine();
    sizes().for_each(|size| (0..10).for_each(|_| burst(&engine, size, MIB)));
    let refills = || engine.stats().refills;
    // Half of one class's maximum: once the class has that capacity, it no longer misses.
    let burst = || (0..100).for_each(|_| burst(&engine, 4096, MIB / 8));
    (0..40).for_each(|_| burst());
    let before = refills();
    burst();
    assert!(refills() - before <= 1, "{} refills", refills() - before);
}

/// Each refill and flush takes a lock, and cache lines, that another CPU may need: long flows must
/// cause few of them.
#[test]
fn blocks_that_flow_for_long_come_a_span_at_a_time() {
    const SIZE: usize = 1024;
    let engine = Engine::new(FakeOs::default().space(256 << 20).cpus(1));
    let allocate = |mib: usize| {
        let before = engine.stats().refills;
        assert!((0..mib * MIB / SIZE).all(|_| !engine.alloc(SIZE).is_null()));
        engine.stats().refills - before
    };
    allocate(64);
    let refills = allocate(8);
    // A span has 64 blocks. With stacks of 16 KiB it would take 512 refills.
    assert!(refills <= 8 * 16, "{refills} refills");
}

#[test]
fn large_blocks_in_rare_use_leave_no_span_behind() {
    let engine = Engine::new(FakeOs::default().cpus(1).still());
    let large = || sizes().filter(|&size| size > 8 * 1024);
    // In total, ten times as many misses as it takes to add capacity, but never that many between
    // two rounds.
    for _ in 0..50 {
        for _ in 0..25 {
            large().for_each(|size| burst(&engine, size, 1));
        }
        let stats = engine.stats();
        let used: Vec<_> = stats.classes.into_iter().filter(|row| row.refills > 0).collect();
        assert!(used.len() >= 12 && used.iter().all(|row| row.spans == 0), "{used:?}");
        engine.os().sleep_ms(200);
        engine.idle();
    }
}

/// Between two rounds the stack changed, although it holds as many blocks as before.
#[test]
fn a_stack_in_use_is_not_emptied() {
    const SIZE: usize = 64;
    let engine = Engine::new(FakeOs::default().cpus(1).still());
    // SAFETY, below: live blocks, each freed once.
    let free = |block| unsafe { engine.free(block) };
    let blocks: Vec<_> = (0..20).map(|_| engine.alloc(SIZE)).collect();
    blocks.into_iter().for_each(free);
    let refills = engine.stats().refills;
    for _ in 0..20 {
        let (first, second) = (engine.alloc(SIZE), engine.alloc(SIZE));
        free(first);
        free(second);
        engine.os().sleep_ms(200);
        engine.idle();
    }
    assert_eq!(engine.stats().refills, refills);
    for _ in 0..2 {
        engine.os().sleep_ms(200);
        engine.idle();
    }
    assert_eq!(engine.stats().cached_bytes, 0);
}

#[test]
fn large_blocks_in_frequent_use_come_from_caches() {
    let engine = Engine::new(FakeOs::default().cpus(1).still());
    let refills = || engine.stats().refills;
    sizes().filter(|&size| size > 8 * 1024).for_each(|size| {
        (0..200).for_each(|_| burst(&engine, size, 2 * size));
        let before = refills();
        (0..100).for_each(|_| burst(&engine, size, 2 * size));
        assert!(refills() - before <= 2, "{} refills for {size}", refills() - before);
    });
}
