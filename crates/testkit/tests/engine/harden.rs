//! Tests harden mode: a detected mistake stops the program, an undetected one does little harm,
//! correct programs run, and out of memory is not reported as a mistake.

use std::collections::BTreeSet;

use crate::oom::each_call_is_refused;
use ebbmalloc::internals::Engine;
use ebbmalloc_testkit::{FakeOs, Program, Worker};

fn fake() -> FakeOs {
    FakeOs::default().space(24 << 20).cpus(1).environment("EBB_HARDEN", "1")
}

fn engine() -> Engine<FakeOs> {
    Engine::new(fake())
}

const MIB: usize = 1 << 20;
/// Sizes of small and large blocks; some end at the end of a page, some elsewhere.
const SIZES: [usize; 8] = [0, 1, 24, 100, 1000, 20_000, 65_529, 200_000];

/// The message with which the engine stops `work`; empty if it does not stop it.
fn stopped_by(work: impl Fn(&Engine<FakeOs>, usize), size: usize) -> String {
    let engine = engine();
    let work = std::panic::AssertUnwindSafe(|| work(&engine, size));
    let stopped = std::panic::catch_unwind(work).is_err();
    let printed = engine.os().printed();
    assert_eq!(stopped, !printed.is_empty(), "{printed}");
    printed
}

#[track_caller]
fn stops(fault: &str, work: impl Fn(&Engine<FakeOs>, usize)) {
    for size in SIZES {
        let said = stopped_by(&work, size);
        assert!(said.starts_with(&format!("ebbmalloc: {fault}: ")), "{size} bytes: {said:?}");
    }
}

// SAFETY, of all tests below: the misuse stays within the fake's memory, and the engine must detect
// it.

#[test]
fn double_frees() {
    let free = |engine: &Engine<FakeOs>, block| unsafe { engine.free(block) };
    stops("double free", |engine, size| {
        let block = engine.alloc(size);
        free(engine, block);
        free(engine, block);
    });
    stops("double free", |engine, size| {
        let (block, other) = (engine.alloc(size), engine.alloc(size));
        free(engine, block);
        free(engine, other);
        free(engine, block);
    });
    stops("double free", |engine, size| {
        let block = engine.alloc(size);
        free(engine, block);
        unsafe { engine.realloc(block, 10, 1) };
    });
    stops("double free", |engine, size| {
        let block = engine.alloc(size);
        free(engine, block);
        engine.usable_size(block);
    });
    stops("double free", |engine, size| {
        let block = engine.alloc(size);
        let moved = unsafe { engine.realloc(block, size + 80_000, 1) };
        assert!(moved != block || size == 200_000);
        free(engine, block);
        free(engine, block);
    });
}

/// At a limit of the process. There is no other memory to copy the block to.
#[test]
fn a_block_whose_move_the_kernel_refused_too_late_is_as_it_was() {
    let engine = engine();
    let block = engine.alloc(MIB);
    unsafe { block.write_bytes(1, MIB) };
    engine.os().lose_next_target();
    let moved = unsafe { engine.realloc(block, 3 * MIB, 1) };
    assert!(moved.is_null() && engine.os().moves() == 0);
    assert!((0..MIB).all(|at| unsafe { block.add(at).read() } == 1));
    engine.check_with(&[block]);
    let moved = unsafe { engine.realloc(block, 3 * MIB, 1) };
    assert!(!moved.is_null() && engine.os().moves() == 1);
    unsafe { engine.free(moved) };
    engine.trim();
    engine.check();
}

#[test]
fn a_byte_behind_the_end() {
    // A block of zero bytes has nothing before its end to write.
    stops("overflow", |engine, size| unsafe {
        let block = engine.alloc(size.max(1));
        block.add(size.max(1)).write(1);
        engine.free(block);
    });
    stops("overflow", |engine, size| unsafe {
        let block = engine.alloc(size.max(1));
        block.add(size.max(1)).write(1);
        engine.realloc(block, size + 1, 1);
    });
}

#[test]
fn a_byte_before_the_start() {
    // Large blocks, and the first block of a span, have a guard there.
    for size in SIZES.into_iter().filter(|&size| (24..20_000).contains(&size)) {
        let work = |engine: &Engine<FakeOs>, size| unsafe {
            let blocks: Vec<_> = (0..40).map(|_| engine.alloc(size)).collect();
            let last = *blocks.iter().max().unwrap();
            last.sub(1).write(last.sub(1).read() ^ 1);
            engine.free(last);
        };
        assert!(stopped_by(work, size).starts_with("ebbmalloc: overflow: bytes before 0x"));
    }
}

#[test]
fn a_write_after_free() {
    let write = |engine: &Engine<FakeOs>, size: usize| unsafe {
        let block = engine.alloc(size);
        engine.free(block);
        block.add(size / 2).write(1);
        block
    };
    for size in SIZES.into_iter().filter(|&size| (1..65_000).contains(&size)) {
        let seen_at_exit = |engine: &Engine<FakeOs>, size| {
            write(engine, size);
            engine.finish();
        };
        let said = stopped_by(seen_at_exit, size);
        assert!(said.contains("write after free: byte ") && said.contains("exit"), "{said:?}");
        let seen_by_others = |engine: &Engine<FakeOs>, size| {
            write(engine, size);
            (0..3000).for_each(|_| unsafe { engine.free(engine.alloc(size)) });
        };
        let said = stopped_by(seen_by_others, size);
        assert!(said.contains("write after free: byte "), "{said:?}");
    }
}

#[test]
fn wrong_sizes() {
    stops("wrong size", |engine, size| unsafe {
        engine.free_sized(engine.alloc(size), size + 1, 1);
    });
    stops("wrong size", |engine, size| unsafe {
        engine.free_sized(engine.alloc(size), 300_000 - size, 1);
    });
}

#[test]
fn addresses_inside_of_blocks() {
    for at in [1, 8, 16, 4096, 65_536] {
        for size in SIZES.into_iter().filter(|&size| size > at) {
            let work = |engine: &Engine<FakeOs>, size| unsafe {
                engine.free(engine.alloc(size).add(at));
            };
            let said = stopped_by(work, size);
            assert!(said.starts_with("ebbmalloc: interior pointer: "), "{at} of {size}: {said:?}");
        }
    }
}

/// A freed block reads as zero until it is handed out again, which is not soon.
#[test]
fn freed_blocks_are_zero_and_come_back_late() {
    for size in [1, 24, 100, 1000, 20_000] {
        let engine = engine();
        let block = engine.alloc(size);
        unsafe {
            block.write_bytes(0xff, size);
            engine.free(block);
            for nth in 0..3 {
                let other = engine.alloc(size);
                assert_ne!(other, block, "{size} bytes came back after {nth}");
                engine.free(other);
            }
            let bytes = std::slice::from_raw_parts(block, size);
            assert!(bytes.iter().all(|&byte| byte == 0));
        }
    }
}

#[test]
fn blocks_lie_in_random_order() {
    let engine = engine();
    let blocks: Vec<_> = (0..200).map(|_| engine.alloc(40).addr()).collect();
    let steps: BTreeSet<_> = blocks.windows(2).map(|two| two[1].wrapping_sub(two[0])).collect();
    assert!(steps.len() > 50, "{} steps", steps.len());
    engine.check();
}

/// A free through a stale pointer to a block that was allocated again cannot be detected. The block
/// is still not handed out twice soon.
#[test]
#[cfg(not(miri))]
fn a_free_of_anothers_block_gives_it_to_nobody_soon() {
    let engine = engine();
    let stale = engine.alloc(100);
    unsafe { engine.free(stale) };
    let mut others = Vec::new();
    loop {
        let block = engine.alloc(100);
        if block == stale {
            break;
        }
        others.push(block);
        if others.len() > 10_000 {
            return;
        }
        if others.len() > 100 {
            unsafe { engine.free(others.swap_remove(0)) };
        }
    }
    unsafe { engine.free(stale) };
    assert!((0..100).all(|_| engine.alloc(100) != stale));
}

#[test]
fn heaps_come_and_go() {
    let engine = engine();
    for round in 0..50 {
        let heap = engine.new_heap(1 << 20).unwrap();
        let blocks =
            [10, 100, 1000, 100_000].map(|size| engine.heap_alloc(heap, size, 1, "a test"));
        assert!(blocks.iter().all(|block| !block.is_null()), "{round}");
        engine.check();
        unsafe {
            engine.free(blocks[1]);
            engine.heap_free(heap, blocks[3], "a test");
            // The limit counts quarantined blocks, and releases them when it is reached.
            for _ in 0..2000 {
                let block = engine.heap_alloc(heap, 10_000, 1, "a test");
                assert!(!block.is_null());
                engine.free(block);
            }
            engine.check();
            engine.delete_heap(heap, "a test");
        }
        engine.check();
    }
    engine.trim();
    engine.finish();
    assert_eq!(engine.os().printed(), "");
}

#[test]
fn check_mode_goes_first() {
    let engine = Engine::new(fake().environment("EBB_CHECK", "1"));
    assert!(!engine.alloc(1).is_null());
    let said = "ebbmalloc: EBB_HARDEN is ignored because EBB_CHECK is set; unset one\n";
    assert_eq!(engine.os().printed(), said);
}

fn run(engine: &Engine<FakeOs>, seed: u64, steps: usize) {
    let mut worker = Worker::new(engine, 0);
    worker.run(Program::new(seed).take(steps));
    worker.shadow().check();
    engine.check();
    worker.free_all();
    engine.check();
    engine.finish();
}

/// As long as guards are available, a block of zero bytes cannot be read or written. Otherwise it
/// behaves like any block.
#[test]
fn nothing_is_out_of_reach() {
    let engine = engine();
    let blocks: [*mut u8; 8] = std::array::from_fn(|_| engine.alloc(0));
    for block in blocks {
        assert!(!block.is_null());
        assert_eq!(engine.usable_size(block), 0);
        assert!(!engine.os().is_committed(block));
        engine.check();
    }
    // SAFETY: each block is freed once.
    unsafe {
        let grown = engine.realloc(blocks[0], 100, 1);
        grown.write_bytes(1, 100);
        engine.free(grown);
        blocks[1..].iter().for_each(|&block| engine.free(block));
    }
    engine.trim();
    engine.check();
}

#[test]
fn correct_programs_run_through() {
    for (seed, mode, page) in [(1, "slot", 4096), (2, "thread", 4096), (3, "slot", 65_536)] {
        let (steps, space) = (5000, 256 << 20);
        let engine = Engine::new(fake().cpus(3).page(page).space(space).mode(mode));
        run(&engine, seed, steps);
        assert_eq!(engine.os().complaints(), "");
    }
}

#[test]
fn a_fork_finds_all_whole() {
    let engine = engine();
    let block = engine.alloc(100);
    engine.before_fork();
    engine.after_fork_in_child();
    unsafe { engine.free(block) };
    engine.finish();
    assert_eq!(engine.os().printed(), "");
}

/// A process at its limit of writable memory (RLIMIT_DATA) cannot make a guard accessible again.
/// The addresses behind that guard still come back: each round gets as many blocks as the first.
#[test]
fn as_many_blocks_after_memory_was_short_as_before() {
    for size in [100, 5000, 40_000, 65_529, 200_000, 700_000] {
        let engine = Engine::new(fake().data(12 << 20));
        let round = || {
            let some = |_: &_| Some(engine.alloc(size)).filter(|block| !block.is_null());
            let blocks: Vec<_> = (0..).map_while(|nth| some(&nth)).collect();
            engine.check();
            for &block in &blocks {
                unsafe { engine.free(block) };
            }
            engine.check();
            blocks.len()
        };
        let first = round();
        let bytes = first * size;
        assert!(bytes > 5 << 20, "{bytes} bytes in blocks of {size}");
        // One guard less at the end, or one hole more, changes the count by a block or two.
        let rounds = [(); 5].map(|()| round());
        let least = first - first / 16;
        assert!(rounds.iter().all(|&count| count >= least), "{size}: {first}, {rounds:?}");
    }
}

/// What lies behind a guard that stayed is unmapped, so another mapping may come to lie there.
#[test]
fn a_mapping_that_came_where_a_guard_stayed_stays_alone() {
    let (size, engine) = (40_000, Engine::new(fake().data(12 << 20)));
    let round = || {
        let some = |_| Some(engine.alloc(size)).filter(|block| !block.is_null());
        let blocks: Vec<_> = (0..).map_while(some).collect();
        // SAFETY: freed once.
        blocks.iter().for_each(|&block| unsafe { engine.free(block) });
        engine.check();
        blocks
    };
    let first = round();
    let taken = first.iter().rev().find(|&&block| !engine.os().is_committed(block)).unwrap();
    let from = engine.os().region_offset(*taken);
    engine.os().occupy(from..from + 4096);
    for _ in 0..3 {
        let blocks = round();
        assert!(blocks.len() > first.len() / 2);
        for block in blocks {
            let at = engine.os().region_offset(block);
            assert!(at >= from + 4096 || at + size <= from, "{at:#x}, {from:#x}");
        }
    }
    assert_eq!(engine.os().complaints(), "");
}

#[test]
fn memory_runs_short() {
    each_call_is_refused(fake, 300, 10, |_| ());
}
