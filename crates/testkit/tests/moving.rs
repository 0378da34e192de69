//! Tests that large blocks that cannot grow in place move with their pages.
#![cfg(not(any(miri, loom)))]

use std::slice;

use ebbmalloc::internals::Engine;
use ebbmalloc_testkit::{FakeOs, LinuxIn, TestOs};

const MIB: usize = 1 << 20;

/// The contents of a block; each `seed` gives others.
fn pattern(seed: usize) -> impl Iterator<Item = u8> {
    (0..).map(move |at: usize| (at / 7 * seed) as u8)
}

/// # Safety
/// `block` is live and has `length` bytes.
unsafe fn bytes<'a>(block: *mut u8, length: usize) -> &'a mut [u8] {
    assert!(!block.is_null());
    // SAFETY: the caller guarantees it.
    unsafe { slice::from_raw_parts_mut(block, length) }
}

/// Grows a block that cannot grow in place. Returns true if it moved with its contents and its old
/// memory is as good as new.
fn grow<O: TestOs>(engine: &Engine<O>, length: usize) -> bool {
    // SAFETY: live blocks of these lengths, each freed once.
    unsafe {
        let block = engine.alloc(length);
        bytes(block, length).iter_mut().zip(pattern(3)).for_each(|(byte, new)| *byte = new);
        let obstacle = engine.alloc(length);
        let grown = engine.realloc(block, 3 * length, 16);
        assert!(bytes(grown, length).iter().copied().eq(pattern(3).take(length)));
        bytes(grown, 3 * length)[length..].fill(1);

        let others: Vec<_> = (0..4).map(|_| engine.alloc_zeroed(length / 2)).collect();
        for &other in &others {
            assert!(bytes(other, length / 2).iter().all(|&byte| byte == 0));
            bytes(other, length / 2).fill(2);
        }
        assert!(bytes(grown, length).iter().copied().eq(pattern(3).take(length)));
        assert!(bytes(grown, 3 * length)[length..].iter().all(|&byte| byte == 1));
        for block in others.into_iter().chain([obstacle, grown]) {
            engine.free(block);
        }
        engine.check();
        grown != block
    }
}

#[test]
fn pages_move_from_half_a_mebibyte_on() {
    let engine = Engine::new(FakeOs::default().cpus(1));
    assert!(grow(&engine, MIB / 4) && engine.os().moves() == 0);
    assert!(grow(&engine, MIB / 2) && engine.os().moves() == 1);
    assert!(grow(&engine, MIB) && engine.os().moves() == 2);
    assert_eq!(engine.stats().live_bytes, 0);
}

#[test]
fn what_cannot_move_is_copied() {
    for refused in 0..40 {
        let os = FakeOs::default().cpus(1).refusing(refused..refused + 2);
        let engine = Engine::new(os);
        // The first calls set the engine up.
        if !engine.start() && !engine.start() {
            engine.start();
        }
        let block = engine.alloc(MIB);
        let obstacle = engine.alloc(MIB);
        if block.is_null() || obstacle.is_null() {
            continue;
        }
        // SAFETY: live blocks of these lengths.
        unsafe {
            bytes(block, MIB).iter_mut().zip(pattern(5)).for_each(|(byte, new)| *byte = new);
            let grown = engine.realloc(block, 2 * MIB, 16);
            let kept = if grown.is_null() { block } else { grown };
            assert!(bytes(kept, MIB).iter().copied().eq(pattern(5).take(MIB)), "{refused}");
        }
        engine.check();
    }
}

/// Grows blocks by turns, so that they move, grow in place behind the old memory, and move again;
/// then frees all. The fake kernel moves pages of one mapping at a time, and may refuse some.
/// Returns the length in bytes that they grew to.
fn grow_by_turns<O: TestOs>(engine: &Engine<O>) -> usize {
    const VECTORS: usize = 5;
    const STEP: usize = 4093;
    let mark = |at: usize, nth: usize| (at / STEP * 7 + nth) as u8;
    // SAFETY: live blocks of these lengths, each freed once.
    unsafe {
        let mut lengths = [0; VECTORS];
        let mut blocks = [(); VECTORS].map(|()| engine.alloc(MIB / 2));
        for turn in 0..30 {
            let nth = turn * turn % VECTORS;
            let old = lengths[nth];
            let more = old.max(MIB / 2) + [MIB / 16, MIB / 4, old / 2][turn % 3];
            let grown = engine.realloc(blocks[nth], more, 16);
            if !grown.is_null() {
                (blocks[nth], lengths[nth]) = (grown, more);
            }
            let all = bytes(blocks[nth], lengths[nth]);
            let marked = |&at: &usize| all[at] == mark(at, nth);
            assert!((0..old).step_by(STEP).all(|at| marked(&at)), "turn {turn}");
            let new = (old.next_multiple_of(STEP)..all.len()).step_by(STEP);
            new.for_each(|at| all[at] = mark(at, nth));
        }
        engine.check();
        blocks.into_iter().for_each(|block| engine.free(block));
        lengths.iter().sum()
    }
}

#[test]
fn mappings_are_back_when_what_moved_is_freed() {
    let engine = Engine::new(FakeOs::default().cpus(1).space(256 * MIB));
    assert!(grow_by_turns(&engine) > 12 * MIB);
    assert!(engine.os().moves() > 12, "{} moves", engine.os().moves());
    assert!(engine.os().moved_mappings() > 0);
    engine.trim();
    assert_eq!(engine.os().moved_mappings(), 0);
    engine.check();
}

#[test]
fn what_has_moved_in_part_when_the_kernel_refuses_is_copied() {
    for refused in (20..90).step_by(5) {
        let os = FakeOs::default().cpus(1).refusing(refused..refused + 1 + refused % 2);
        let engine = Engine::new(os);
        if engine.start() || engine.start() {
            grow_by_turns(&engine);
            engine.trim();
            engine.check();
        }
    }
}

/// On the real system, page by page.
#[test]
fn moves_do_not_use_up_mappings() {
    let engine = || Engine::new(LinuxIn::new("slot"));
    for length in [MIB, 3 * MIB, MIB / 2 + 4096] {
        // In a heap that had other blocks, time decides which of their memory was purged, and so
        // whether the obstacle comes to lie behind the block.
        assert!(grow(&engine(), length));
    }
    let engine = engine();
    engine.trim();
    let mappings = || std::fs::read_to_string("/proc/self/maps").unwrap().lines().count();
    let (before, mut most) = (mappings(), 0);
    let mut blocks = Vec::new();
    // A turn may copy half a mebibyte, which takes translated kernels some 15 ms.
    for turn in 0..3000 {
        // SAFETY: live blocks, each freed or resized once.
        unsafe {
            let (block, obstacle) = (engine.alloc(MIB / 2), engine.alloc(64 << 10));
            *block = turn as u8;
            let grown = engine.realloc(block, MIB, 16);
            assert_eq!(*grown, turn as u8);
            engine.free(obstacle);
            blocks.push(grown);
            if blocks.len() > 500 {
                engine.free(blocks.swap_remove(turn % 500));
            }
        }
        if turn % 100 == 0 {
            most = most.max(mappings());
        }
    }
    assert!(most < before + 4 * 500, "{most} mappings, {before} before");
    grow_by_turns(&engine);
    // SAFETY: live blocks.
    blocks.into_iter().for_each(|block| unsafe { engine.free(block) });
    engine.trim();
    // Other tests run beside this.
    assert!(mappings() < before + 100, "{} mappings, {before} before", mappings());
    engine.check();
}

/// An engine that may map 12 MiB.
fn limited() -> Engine<FakeOs> {
    Engine::new(FakeOs::default().cpus(1).still().space(64 * MIB).data(12 * MIB))
}

#[test]
fn free_memory_makes_room_for_a_block_that_can_grow_in_place() {
    let engine = limited();
    let [other, _, block] = [4 * MIB, MIB, 4 * MIB].map(|size| engine.alloc(size));
    // SAFETY: live blocks of these lengths, each freed once.
    unsafe {
        bytes(other, 4 * MIB).fill(1);
        engine.free(other);
        bytes(block, 4 * MIB).fill(2);
        assert_eq!(engine.realloc(block, 8 * MIB, 16), block);
        assert!(bytes(block, 4 * MIB).iter().all(|&byte| byte == 2));
    }
    engine.check();
}

#[test]
fn free_memory_makes_room_for_a_block_that_can_move() {
    let engine = limited();
    let [other, _, block, _] = [4 * MIB, MIB / 8, 3 * MIB, MIB / 8].map(|size| engine.alloc(size));
    // SAFETY: live blocks of these lengths, each freed once.
    unsafe {
        bytes(other, 4 * MIB).fill(1);
        engine.free(other);
        bytes(block, 3 * MIB).fill(2);
        let moved = engine.realloc(block, 6 * MIB, 16);
        assert!(bytes(moved, 3 * MIB).iter().all(|&byte| byte == 2));
    }
    assert_eq!(engine.os().moves(), 1);
    engine.check();
}
