//! Tests medium blocks: those so short that whole units would waste much, and that share units.

use std::slice;

use ebbmalloc::internals::{Engine, OsThreads as _};
use ebbmalloc_testkit::FakeOs;

const UNIT: usize = 64 << 10;
const MIB: usize = 1 << 20;

fn engine() -> Engine<FakeOs> {
    Engine::new(FakeOs::default().cpus(1).still())
}

/// Fills the usable bytes of a block.
fn fill(engine: &Engine<FakeOs>, block: *mut u8, byte: u8) {
    assert!(!block.is_null());
    // SAFETY: a live block of this usable size.
    unsafe { block.write_bytes(byte, engine.usable_size(block)) }
}

fn filled(engine: &Engine<FakeOs>, size: usize, byte: u8) -> *mut u8 {
    let block = engine.alloc(size);
    fill(engine, block, byte);
    block
}

/// Whether the first bytes of a block are all `byte`.
fn is_filled(block: *mut u8, bytes: usize, byte: u8) -> bool {
    // SAFETY: the block has as many bytes.
    unsafe { slice::from_raw_parts(block, bytes) }.iter().all(|&found| found == byte)
}

fn free(engine: &Engine<FakeOs>, block: *mut u8) {
    // SAFETY: a live block, freed once.
    unsafe { engine.free(block) }
}

#[test]
fn they_take_as_much_address_space_as_they_need() {
    for size in [65_537, 66_000, 100_000, 140_000, 200_000, 300_000] {
        let engine = Engine::new(FakeOs::default().cpus(1).space(256 * MIB));
        let blocks: Vec<_> = (0..500).map(|_| engine.alloc(size)).collect();
        let committed = engine.stats().committed_bytes as usize;
        assert!(committed < 500 * size / 16 * 17 + 4 * MIB, "{committed} of {}", 500 * size);
        engine.check_with(&blocks);
        for block in blocks {
            free(&engine, block);
        }
        engine.check_with(&[]);
    }
}

/// Blocks of random sizes take each other's places, with OS pages of each length.
#[test]
fn they_keep_their_contents_while_others_come_and_go() {
    for page in [4096, 16 << 10, 64 << 10] {
        let engine = Engine::new(FakeOs::default().cpus(1).page(page).space(64 * MIB));
        let mut random = 88_172_645_463_325_252_u64;
        let mut next = |below: usize| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random as usize % below
        };
        let mut live: Vec<(*mut u8, usize, u8)> = Vec::new();
        for step in 0..3000 {
            let size = UNIT + 1 + next(if step % 3 == 0 { 9 * UNIT } else { UNIT });
            let (choice, byte) = (next(8), step as u8);
            if live.len() < 60 && choice < 5 {
                let block =
                    if choice == 0 { engine.alloc_zeroed(size) } else { engine.alloc(size) };
                assert!(choice > 0 || is_filled(block, size, 0), "step {step}");
                fill(&engine, block, byte);
                live.push((block, size, byte));
            } else if !live.is_empty() {
                let nth = next(live.len());
                let (block, old, byte) = live.swap_remove(nth);
                assert!(is_filled(block, old, byte), "step {step}");
                if choice < 6 {
                    free(&engine, block);
                    continue;
                }
                // SAFETY: a live block.
                let moved = unsafe { engine.realloc(block, size, 1) };
                assert!(is_filled(moved, old.min(size), byte), "step {step}");
                fill(&engine, moved, byte);
                live.push((moved, size, byte));
            }
            if step % 50 == 0 {
                engine.trim();
                engine.check_with(&live.iter().map(|&(block, ..)| block).collect::<Vec<_>>());
            }
        }
        live.iter().for_each(|&(block, ..)| free(&engine, block));
        engine.check_with(&[]);
    }
}

#[test]
fn a_freed_place_between_two_others_is_used_again() {
    let engine = engine();
    for size in [66_000, 70_000, 100_000, 131_072, 200_000] {
        let blocks: Vec<_> = (0..60).map(|_| filled(&engine, size, 1)).collect();
        let committed = engine.stats().committed_bytes;
        // Each place once, those that begin with a unit too.
        for &block in &blocks[1..59] {
            free(&engine, block);
            assert_eq!(engine.alloc(size), block);
        }
        assert_eq!(engine.stats().committed_bytes, committed);
        engine.check_with(&blocks);
        blocks.into_iter().for_each(|block| free(&engine, block));
    }
}

#[test]
fn zeroed_blocks_are_clear_after_others() {
    let engine = engine();
    let blocks: Vec<_> = (0..40).map(|_| filled(&engine, 70_000, 7)).collect();
    // Each other one. Only places behind another medium block are found.
    let freed = || blocks.iter().skip(1).step_by(2);
    for trims in [false, true] {
        freed().for_each(|&block| free(&engine, block));
        if trims {
            engine.trim();
        }
        for _ in freed() {
            let block = engine.alloc_zeroed(70_000);
            assert!(blocks.contains(&block), "none of the freed places");
            assert!(is_filled(block, 70_000, 0));
            fill(&engine, block, 7);
        }
    }
    engine.check_with(&blocks);
}

/// Never touched by the program, so not by us.
#[test]
fn zeroed_blocks_in_new_memory_stay_untouched() {
    let engine = engine();
    filled(&engine, 16, 1);
    let before = engine.os().touched();
    for _ in 0..200 {
        engine.alloc_zeroed(100_000);
    }
    assert!(engine.os().touched() < before + 64 * 4096);
}

/// Pages that the kernel does not purge still hold old bytes.
#[test]
fn locked_pages_are_not_taken_for_zeros() {
    let engine = engine();
    let blocks: Vec<_> = (0..3).map(|_| filled(&engine, 70_000, 7)).collect();
    engine.os().lock_memory(blocks[1].addr()..blocks[2].addr());
    free(&engine, blocks[1]);
    engine.trim();
    let again = engine.alloc_zeroed(70_000);
    assert_eq!(again, blocks[1]);
    assert!(is_filled(again, 70_000, 0));
}

#[test]
fn free_pages_between_them_go_back() {
    let engine = engine();
    let blocks: Vec<_> = (0..160).map(|_| filled(&engine, 70_000, 7)).collect();
    let (freed, kept) = blocks.split_at(1);
    free(&engine, freed[0]);
    for &block in kept.iter().step_by(3) {
        free(&engine, block);
    }
    let touched = engine.os().touched();
    engine.trim();
    let gone = (touched - engine.os().touched()) / 4096;
    // 54 blocks of 18 pages.
    assert!(gone >= 50 * 18, "{gone} pages");
    for (nth, &block) in kept.iter().enumerate() {
        assert!(nth % 3 == 0 || is_filled(block, 70_000, 7));
    }
}

#[test]
fn they_grow_in_place_and_become_long_blocks() {
    let engine = engine();
    let block = filled(&engine, 100_000, 7);
    for size in [150_000, 400_000, 2 * MIB, 3 * MIB] {
        // SAFETY: a live block.
        assert!(unsafe { engine.resize(block, size, 1) }, "to {size}");
        assert!(is_filled(block, 100_000, 7));
        engine.check_with(&[block]);
    }
    free(&engine, block);
    // Not where a unit has pages of another.
    let blocks = [(); 2].map(|()| filled(&engine, 70_000, 7));
    for (block, size) in [(blocks[0], 72_000), (blocks[0], 2 * MIB), (blocks[1], 2 * MIB)] {
        // SAFETY: a live block.
        assert!(!unsafe { engine.resize(block, size + 4096, 1) }, "to {size}");
    }
    // SAFETY: a live block.
    assert!(unsafe { engine.resize(blocks[1], 200_000, 1) });
    engine.check_with(&blocks);
}

/// The word that a misuse of a block among others is reported with.
fn fault(misuse: impl Fn(&Engine<FakeOs>, *mut u8)) -> String {
    let run = || {
        let engine = engine();
        let blocks: Vec<_> = (0..5).map(|_| engine.alloc(70_000)).collect();
        misuse(&engine, blocks[2]);
    };
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).expect_err("no fault");
    panic.downcast::<String>().map(|text| text.to_string()).unwrap_or_default()
}

#[test]
fn wrong_frees_are_told_from_each_other() {
    let twice = |engine: &Engine<FakeOs>, block: *mut u8| {
        free(engine, block);
        free(engine, block);
    };
    assert!(fault(twice).contains("double free"));
    for inside in [1, 16, 4096, 60_000, 69_999] {
        let inner =
            |engine: &Engine<FakeOs>, block: *mut u8| free(engine, block.wrapping_add(inside));
        assert!(fault(inner).contains("interior pointer"), "{inside} bytes inside");
    }
    let freed_inside = |engine: &Engine<FakeOs>, block: *mut u8| {
        free(engine, block);
        free(engine, block.wrapping_add(16));
    };
    assert!(fault(freed_inside).contains("invalid free"));
}

#[test]
fn a_block_among_others_keeps_its_place_in_any_size_that_fits() {
    let engine = engine();
    let others = [filled(&engine, 70_000, 1), filled(&engine, 500_000, 2)];
    let block = filled(&engine, 500_000, 3);
    let last = filled(&engine, 70_000, 4);
    assert_ne!(block.addr() % UNIT, 0);
    for size in [500_000, 499_999, 470_000, 100_000, 480_000, 501_760] {
        // SAFETY: a live block.
        assert!(unsafe { engine.resize(block, size, 1) }, "{size}");
        assert!(is_filled(block, 100_000, 3));
        engine.check_with(&[others[0], others[1], block, last]);
    }
    assert!(is_filled(last, 70_000, 4));
}

/// The shortest gap needs memory that the limit forbids; a longer one does not.
#[test]
fn at_the_limit_resident_gaps_are_used() {
    let engine = Engine::new(FakeOs::default().cpus(1).still().environment("EBB_LIMIT", "2M"));
    let mut blocks = Vec::new();
    while let block = engine.alloc(70_000)
        && !block.is_null()
    {
        fill(&engine, block, 5);
        blocks.push(block);
    }
    engine.check_with(&blocks);
    for nth in 0..blocks.len() {
        free(&engine, blocks[nth]);
        blocks[nth] = engine.alloc(70_000);
        assert!(!blocks[nth].is_null(), "{nth} of {blocks:?} {:?}", engine.stats());
        fill(&engine, blocks[nth], 6);
    }
    engine.check_with(&blocks);
}

/// A span begins right behind a block, and is freed: the pages between belong to a gap again.
#[test]
fn a_gap_grows_when_what_follows_it_is_freed() {
    for size in [1000, 3 << 20] {
        let engine = engine();
        let first = filled(&engine, 70_000, 1);
        // 17 units behind it. What the block leaves of its last unit is too short for a block.
        let long = engine.alloc(1 << 20);
        let others: Vec<_> = (0..70).map(|_| engine.alloc(size)).collect();
        let last = filled(&engine, 70_000, 2);
        free(&engine, long);
        engine.check();
        others.into_iter().filter(|block| !block.is_null()).for_each(|block| free(&engine, block));
        engine.trim();
        engine.check();
        let next = filled(&engine, 70_000, 3);
        assert_eq!(next.addr(), first.addr() + 18 * 4096, "right behind the first block");
        assert!(is_filled(first, 70_000, 1) && is_filled(last, 70_000, 2));
        engine.check_with(&[first, last, next]);
    }
}

/// A gap whose pages were purged stays so while resident memory holds a new block.
#[test]
fn resident_memory_comes_before_a_purged_gap() {
    let engine = engine();
    let [first, middle, last] = [70_000, 200_000, 70_000].map(|size| filled(&engine, size, 1));
    let [before, run, behind] = [(); 3].map(|()| filled(&engine, MIB, 2));
    free(&engine, middle);
    for _ in 0..20 {
        engine.os().sleep_ms(1000);
        engine.idle();
    }
    free(&engine, run);
    let dirty = |engine: &Engine<FakeOs>| engine.stats().dirty_bytes;
    assert_eq!(dirty(&engine), MIB as u64);
    let block = filled(&engine, 100_000, 3);
    assert_eq!(dirty(&engine) as usize, MIB - 2 * UNIT);
    assert!(is_filled(first, 70_000, 1) && is_filled(last, 70_000, 1));
    engine.check_with(&[first, last, before, behind, block]);
}

/// The first of two freed blocks lies behind another kind of block, where no gap is listed.
#[test]
fn at_the_limit_as_many_blocks_fit_as_were_freed() {
    let engine = Engine::new(FakeOs::default().cpus(1).still().environment("EBB_LIMIT", "2M"));
    let mut blocks = vec![engine.alloc(1000)];
    while let block = engine.alloc(70_000)
        && !block.is_null()
    {
        fill(&engine, block, 5);
        blocks.push(block);
    }
    let all = 1..blocks.len();
    let pairs = all.clone().flat_map(|first| all.clone().map(move |second| (first, second)));
    for (first, second) in pairs.filter(|(first, second)| first != second) {
        free(&engine, blocks[first]);
        free(&engine, blocks[second]);
        for nth in [first, second] {
            blocks[nth] = engine.alloc(70_000);
            assert!(!blocks[nth].is_null(), "{nth} of {first} and {second}");
            fill(&engine, blocks[nth], 6);
        }
        engine.check_with(&blocks);
    }
}
