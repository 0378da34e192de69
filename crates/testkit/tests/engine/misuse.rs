//! Tests that each `free` of an invalid address ends the program with one line that gives the
//! reason.

use ebbmalloc::internals::Engine;
use ebbmalloc_testkit::FakeOs;

fn engine() -> Engine<FakeOs> {
    Engine::new(FakeOs::default().space(8 << 20).cpus(1))
}

/// Calls `free` at this offset into a block, after the block was freed `times` times.
fn free(size: usize, times: usize, offset: usize) {
    let engine = engine();
    let block = engine.alloc(size);
    let others = [engine.alloc(size), engine.alloc(size)];
    assert!(others.iter().all(|other| !other.is_null()));
    for _ in 0..times {
        // SAFETY: the test does not use the block; the engine must detect the mistake.
        unsafe { engine.free(block) };
    }
    // SAFETY: the memory is the fake's; the engine must detect the mistake.
    unsafe { engine.free(block.wrapping_add(offset)) };
}

#[test]
#[should_panic(expected = "ebbmalloc: double free: 0x")]
fn small_block_twice() {
    free(100, 1, 0);
}

#[test]
#[should_panic(expected = "ebbmalloc: double free: 0x")]
fn small_block_twice_and_others_between() {
    let engine = engine();
    let blocks: Vec<_> = (1..60).map(|nth| engine.alloc(nth * 16)).collect();
    // SAFETY: the memory is the fake's; the engine must detect the mistake.
    unsafe {
        blocks.iter().for_each(|&block| engine.free(block));
        engine.free(blocks[3]);
    }
}

/// A cache that never served this size puts other blocks above the first block freed into it
/// (decisions/0022).
#[test]
fn small_block_twice_in_a_cache_that_is_new() {
    for mode in ["slot", "thread"] {
        let twice = || {
            let engine = Engine::new(FakeOs::default().space(8 << 20).cpus(1).mode(mode));
            let block = engine.alloc(40);
            engine.trim();
            // SAFETY: the memory is the fake's; the engine must detect the mistake.
            unsafe {
                engine.free(block);
                engine.free(block);
            }
        };
        let panic = std::panic::catch_unwind(twice).expect_err(mode);
        let message = panic.downcast::<String>().expect("what the engine says");
        assert!(message.starts_with("ebbmalloc: double free: 0x"), "mode {mode}: {message}");
    }
}

#[test]
#[should_panic(expected = "ebbmalloc: double free: 0x")]
fn large_block_twice() {
    free(100_000, 1, 0);
}

#[test]
#[should_panic(expected = "ebbmalloc: double free: 0x")]
fn small_block_resized_where_it_was() {
    let engine = engine();
    let block = engine.alloc(100);
    // SAFETY: the memory is the fake's; the engine must detect the mistake.
    unsafe {
        engine.free(block);
        engine.realloc(block, 101, 1);
    }
}

#[test]
#[should_panic(expected = "ebbmalloc: interior pointer: 0x")]
fn inside_a_small_block() {
    free(100, 0, 16);
}

#[test]
#[should_panic(expected = "ebbmalloc: interior pointer: 0x")]
fn inside_the_first_unit_of_a_large_block() {
    free(200_000, 0, 16);
}

#[test]
#[should_panic(expected = "ebbmalloc: interior pointer: 0x")]
fn at_the_second_unit_of_a_large_block() {
    free(200_000, 0, 1 << 16);
}

/// A block of 24 KiB that begins in the second unit of its span, and all other blocks of that span.
/// The page map's keys cover only the first unit of such a span.
fn of_a_later_unit(engine: &Engine<FakeOs>) -> (*mut u8, Vec<*mut u8>) {
    const SIZE: usize = 24 << 10;
    let mut blocks: Vec<_> = (0..5).map(|_| engine.alloc(SIZE)).collect();
    blocks.sort_unstable();
    let starts: Vec<_> = blocks.iter().map(|block| block.addr() - blocks[0].addr()).collect();
    assert_eq!(starts, [0, SIZE, 2 * SIZE, 3 * SIZE, 4 * SIZE]);
    const { assert!(3 * SIZE > 1 << 16) };
    (blocks.remove(3), blocks)
}

#[test]
fn a_block_of_a_later_unit_is_one_like_others() {
    let engine = engine();
    let (block, others) = of_a_later_unit(&engine);
    assert_eq!(engine.usable_size(block), 24 << 10);
    // SAFETY: each block is freed once, and not used afterwards.
    unsafe {
        assert_eq!(engine.realloc(block, 23 << 10, 1), block);
        engine.free(block);
        assert_eq!(engine.alloc(24 << 10), block, "it was cached");
        engine.free_sized(block, 24 << 10, 1);
        others.iter().for_each(|&other| engine.free(other));
    }
    engine.check();
}

#[test]
#[should_panic(expected = "ebbmalloc: double free: 0x")]
fn a_block_of_a_later_unit_twice() {
    let engine = engine();
    let (block, others) = of_a_later_unit(&engine);
    // SAFETY: the memory is the fake's; the engine must detect the mistake.
    unsafe {
        engine.free(block);
        engine.free(others[0]);
        engine.free(block);
    }
}

#[test]
#[should_panic(expected = "ebbmalloc: interior pointer: 0x")]
fn inside_a_block_of_a_later_unit() {
    let engine = engine();
    // SAFETY: the memory is the fake's; the engine must detect the mistake.
    unsafe { engine.free(of_a_later_unit(&engine).0.wrapping_add(16)) };
}

#[test]
#[should_panic(expected = "ebbmalloc: interior pointer: 0x")]
fn at_a_later_unit_where_no_block_begins() {
    let engine = engine();
    // SAFETY: the memory is the fake's; the engine must detect the mistake.
    unsafe { engine.free(of_a_later_unit(&engine).1[0].wrapping_add(1 << 16)) };
}

/// The unused bytes behind the last block of a span look like the start of another block. The
/// engine detects it when the address leaves the cache.
#[test]
#[should_panic(expected = "ebbmalloc: invalid free: 0x")]
fn behind_the_last_block_of_a_span() {
    // Blocks of 176 bytes: 372 of them in 64 KiB, and 64 bytes left.
    let engine = engine();
    let block = engine.alloc(176);
    let start = block.wrapping_sub(block.addr() % (1 << 16));
    // SAFETY: the memory is the fake's; the engine must detect the mistake.
    unsafe { engine.free(start.wrapping_add(372 * 176)) };
    engine.trim();
}

#[test]
#[should_panic(expected = "ebbmalloc: invalid free: 0x")]
fn below_everything() {
    free(100, 0, (1usize << 20).wrapping_neg());
}

#[test]
#[should_panic(expected = "ebbmalloc: invalid free: 0x")]
fn above_everything() {
    free(100, 0, 1 << 30);
}

#[test]
#[should_panic(expected = "ebbmalloc: invalid free: 0x10 passed to free")]
fn before_anything_was_allocated() {
    // SAFETY: the engine has no blocks yet; it must detect that.
    unsafe { engine().free(std::ptr::without_provenance_mut(0x10)) };
}

/// Calls a sized free with a wrong size. No class is hot on this system, so the engine checks every
/// size.
fn free_with(size: usize, given: usize) {
    let engine = engine();
    // SAFETY: the test does not use the block; the engine must detect the mistake.
    unsafe { engine.free_sized(engine.alloc(size), given, 1) };
}

#[test]
#[should_panic(expected = "passed to free as a block of 1024 bytes; it has 64")]
fn small_block_freed_as_a_larger_one() {
    free_with(64, 1000);
}

#[test]
#[should_panic(expected = "passed to free as a block of 64 bytes; it has 102400")]
fn large_block_freed_as_a_small_one() {
    free_with(100_000, 64);
}

#[test]
#[should_panic(expected = "passed to free as a block of 102400 bytes; it has 64")]
fn small_block_freed_as_a_large_one() {
    free_with(64, 100_000);
}

#[test]
#[should_panic(expected = "passed to free as a block of 143360 bytes; it has 102400")]
fn large_block_freed_as_a_larger_one() {
    free_with(100_000, 140_000);
}

#[test]
#[should_panic(expected = "ebbmalloc: wrong size: 0x")]
fn a_size_beyond_all_is_wrong() {
    free_with(64, usize::MAX);
}

#[test]
#[should_panic(expected = "ebbmalloc: interior pointer: 0x")]
fn inside_a_block_with_a_size() {
    let engine = engine();
    // SAFETY: the test does not use the block; the engine must detect the mistake.
    unsafe { engine.free_sized(engine.alloc(1000).wrapping_add(16), 1000, 1) };
}

#[test]
#[should_panic(expected = "passed to resize")]
fn resize_of_a_freed_block() {
    let engine = engine();
    let block = engine.alloc(100_000);
    // SAFETY: the memory is the fake's; the engine must detect the mistake.
    unsafe {
        engine.free(block);
        engine.resize(block, 70_000, 1);
    }
}

#[test]
#[should_panic(expected = "passed to realloc")]
fn realloc_of_a_freed_block() {
    let engine = engine();
    let block = engine.alloc(100_000);
    // SAFETY: the memory is the fake's; the engine must detect the mistake.
    unsafe {
        engine.free(block);
        engine.realloc(block, 10, 1);
    }
}

#[test]
#[should_panic(expected = "ebbmalloc: interior pointer: 0x")]
fn usable_size_of_an_interior_pointer() {
    let engine = engine();
    engine.usable_size(engine.alloc(100).wrapping_add(8));
}

#[test]
fn null_is_freed_in_peace() {
    let engine = engine();
    // SAFETY: freeing null is allowed.
    unsafe { engine.free(std::ptr::null_mut()) };
    assert_eq!(engine.os().printed(), "");
}

#[test]
fn a_variable_that_makes_no_sense_is_named() {
    let engine = Engine::new(FakeOs::default().environment("EBB_MODE", "perthread"));
    assert!(!engine.alloc(1).is_null());
    let printed = engine.os().printed();
    assert!(printed.contains("EBB_MODE=perthread is not understood"), "{printed}");
    assert!(printed.contains("auto|percpu|thread|slot"), "{printed}");
}
