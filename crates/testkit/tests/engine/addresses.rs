//! Tests that the engine takes address space as it needs it and gives it back, and that it works
//! around other mappings in the range it chose.

use std::ops::Range;

use ebbmalloc::internals::Engine;
use ebbmalloc_testkit::FakeOs;

const MIB: usize = 1 << 20;

fn engine() -> Engine<FakeOs> {
    Engine::new(FakeOs::default().cpus(1).still().space(256 * MIB))
}

fn committed(engine: &Engine<FakeOs>) -> usize {
    engine.stats().committed_bytes as usize
}

/// Allocates `count` blocks of `size` bytes, checks that they read as zero, and writes to them.
fn fill(engine: &Engine<FakeOs>, count: usize, size: usize) -> Vec<*mut u8> {
    (0..count)
        .map(|nth| {
            let block = engine.alloc_zeroed(size);
            assert!(!block.is_null(), "block {nth} of {size} bytes");
            // SAFETY: the block has `size` bytes, and only this test uses it.
            let bytes = unsafe { std::slice::from_raw_parts_mut(block, size) };
            assert!(bytes.iter().all(|&byte| byte == 0), "block {nth} of {size} bytes");
            bytes.fill(mark(nth));
            block
        })
        .collect()
}

/// The byte that fills the block with this number; never zero.
fn mark(nth: usize) -> u8 {
    (nth % 255) as u8 + 1
}

/// Checks that the blocks still hold the bytes that [`fill`] wrote, and frees them.
fn empty(engine: &Engine<FakeOs>, blocks: Vec<*mut u8>, size: usize) {
    for (nth, block) in blocks.into_iter().enumerate() {
        // SAFETY: the block has `size` bytes and is freed once.
        unsafe {
            let bytes = std::slice::from_raw_parts(block, size);
            assert!(bytes.iter().all(|&byte| byte == mark(nth)), "block {nth}");
            engine.free(block);
        }
    }
}

fn assert_apart(engine: &Engine<FakeOs>, blocks: &[*mut u8], size: usize, taken: &Range<usize>) {
    for &block in blocks {
        let at = engine.os().region_offset(block);
        assert!(at + size <= taken.start || at >= taken.end, "{at:#x} in {taken:#x?}");
    }
}

#[test]
fn what_is_free_gives_its_addresses_back_and_is_used_again() {
    let engine = engine();
    let before = committed(&engine);
    let mut most = 0;
    for size in [16 * MIB, MIB, 3 * MIB, 128 << 10] {
        let count = 128 * MIB / size;
        let blocks = fill(&engine, count, size);
        most = most.max(committed(&engine));
        engine.check();
        empty(&engine, blocks, size);
        engine.trim();
        engine.check();
        assert!(committed(&engine) <= before + 17 * MIB, "{} of {size}", committed(&engine));
    }
    // The engine uses the same addresses again, and no others.
    assert!(most < 150 * MIB, "{most}");
}

/// Allocates a block as long as two that were unmapped, and grows a block into unmapped memory.
#[test]
fn blocks_lie_across_what_is_clean_and_what_is_unmapped() {
    let engine = engine();
    let small = fill(&engine, 1, 10 << 10);
    let blocks = fill(&engine, 6, 20 * MIB);
    empty(&engine, blocks, 20 * MIB);
    engine.trim();
    let whole = fill(&engine, 1, 110 * MIB);
    empty(&engine, whole, 110 * MIB);
    engine.trim();
    let block = engine.alloc(2 * MIB);
    for size in [3 * MIB, 30 * MIB, 100 * MIB, 5 * MIB, 60 * MIB] {
        // SAFETY: a block in use.
        assert!(unsafe { engine.resize(block, size, 1) }, "{size}");
        engine.check();
    }
    // SAFETY: freed once.
    unsafe { engine.free(block) };
    empty(&engine, small, 10 << 10);
    engine.check_with(&[]);
}

#[test]
fn a_mapping_in_the_way_is_passed_by() {
    for (from, bytes) in [(3, 1), (20, 8), (17, 64), (5, 100)] {
        let engine = engine();
        let first = fill(&engine, 1, 100 << 10);
        let taken = from * MIB..(from + bytes) * MIB;
        engine.os().occupy(taken.clone());
        let size = MIB + 1;
        let blocks = fill(&engine, 60, size);
        assert_apart(&engine, &blocks, size, &taken);
        engine.check();
        // Nor does a block grow over a foreign mapping.
        for &block in &blocks {
            // SAFETY: a block in use.
            if unsafe { engine.resize(block, 2 * MIB, 1) } {
                assert_apart(&engine, &[block], 2 * MIB, &taken);
                // SAFETY: a block in use.
                assert!(unsafe { engine.resize(block, size, 1) });
            }
        }
        empty(&engine, blocks, size);
        empty(&engine, first, 100 << 10);
        engine.trim();
        engine.check_with(&[]);
    }
}

#[test]
#[should_panic(expected = "invalid free")]
fn the_memory_of_a_neighbour_is_no_block() {
    let engine = engine();
    engine.os().occupy(3 * MIB..4 * MIB);
    let blocks = fill(&engine, 10, MIB);
    let neighbour = engine.os().region_address(3 * MIB);
    assert!(engine.os().region_offset(blocks[9]) > 4 * MIB);
    // SAFETY: the engine must detect the mistake and stop the program.
    unsafe { engine.free(neighbour) };
}

#[test]
fn a_mapping_that_came_where_nothing_was_mapped_stays_alone() {
    let engine = engine();
    let blocks = fill(&engine, 6, 20 * MIB);
    empty(&engine, blocks, 20 * MIB);
    engine.trim();
    assert!(committed(&engine) < 20 * MIB);
    let taken = 40 * MIB..41 * MIB;
    engine.os().occupy(taken.clone());
    for size in [MIB, 5 * MIB, 30 * MIB] {
        let blocks = fill(&engine, 90 * MIB / size, size);
        assert_apart(&engine, &blocks, size, &taken);
        engine.check();
        empty(&engine, blocks, size);
        engine.trim();
        engine.check_with(&[]);
    }
}

#[test]
fn a_region_begins_elsewhere_where_a_mapping_lies_at_its_beginning() {
    let engine = engine();
    engine.os().occupy_first(2);
    let blocks = fill(&engine, 10, MIB);
    empty(&engine, blocks, MIB);
    engine.check_with(&[]);
}

/// Refuses each system call in turn, while much memory is unmapped and mapped again.
#[test]
fn memory_runs_short_at_each_call() {
    let mut call = 0;
    loop {
        let engine = Engine::new(FakeOs::default().cpus(1).still().space(96 * MIB));
        engine.os().faults().refuse(call..call + 1);
        for size in [20 * MIB, 3 * MIB] {
            let blocks: Vec<_> = (0..40 * MIB / size).map(|_| engine.alloc(size)).collect();
            engine.check();
            // SAFETY: freed once; null is no block.
            blocks.into_iter().for_each(|block| unsafe { engine.free(block) });
            engine.trim();
            engine.check();
        }
        if engine.os().refusals() == 0 {
            break;
        }
        call += crate::oom::step();
    }
    assert!(call > 20, "only {call} calls");
}
