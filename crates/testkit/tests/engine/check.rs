//! Tests check mode: it reports each kind of mistake, lets correct programs run, and reports no
//! mistake when memory runs out.

use crate::oom::each_call_is_refused;
use ebbmalloc::internals::{CLibrary, Engine};
use ebbmalloc_testkit::{FakeOs, Program, Worker};

fn fake() -> FakeOs {
    FakeOs::default().space(12 << 20).cpus(1).environment("EBB_CHECK", "1")
}

fn engine() -> Engine<FakeOs> {
    Engine::new(fake())
}

#[test]
#[should_panic(expected = "has 100 bytes, and byte 100 was written (0x01); seen by free")]
fn a_byte_past_the_end() {
    let engine = engine();
    let block = engine.alloc(100);
    // SAFETY: the memory is the fake's, and the test no longer uses the block; check mode must see
    // the write.
    unsafe {
        block.add(100).write(1);
        engine.free(block);
    }
}

#[test]
#[should_panic(expected = "had 100 bytes, and byte 99 was written (0x01); seen by malloc_trim")]
fn a_write_after_free() {
    let engine = engine();
    let block = engine.alloc(100);
    // SAFETY: the memory is the fake's; check mode must see the mistake.
    unsafe {
        engine.free(block);
        block.add(99).write(1);
    }
    engine.trim();
}

#[test]
#[should_panic(
    expected = "had 20000 bytes, and byte 5 was written (0x01); seen by a check of freed blocks"
)]
fn a_write_after_free_is_seen_when_the_block_leaves() {
    let engine = engine();
    let block = engine.alloc(20_000);
    // SAFETY: the memory is the fake's; check mode must see the mistake.
    unsafe {
        engine.free(block);
        block.add(5).write(1);
        for _ in 0..2000 {
            engine.free(engine.alloc(20_000));
        }
    }
}

#[test]
#[should_panic(expected = "as a block of 99 bytes; it has 100")]
fn a_size_wrong_by_one() {
    let engine = engine();
    // SAFETY: the test does not use the block; the engine must detect the wrong size.
    unsafe { engine.free_sized(engine.alloc(100), 99, 1) };
}

/// The report shows where the block was allocated, where it was freed first, and where it was freed
/// again.
#[test]
fn a_double_free_names_three_stacks() {
    let engine = engine();
    engine.os().set_calls(&[0x1111, 0x1112]);
    let block = engine.alloc(100);
    let free = |call| {
        engine.os().set_calls(&[call]);
        // SAFETY: the test does not use the block; the engine must detect the second free.
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| unsafe { engine.free(block) }))
    };
    assert!(free(0x2222).is_ok());
    assert!(free(0x3333).is_err());
    let printed = engine.os().printed();
    let positions =
        ["double free", "#0 0x3333", "#0 0x1111", "#1 0x1112", "first freed", "#0 0x2222"]
            .map(|text| printed.find(text).unwrap_or_else(|| panic!("no {text} in {printed}")));
    assert!(positions.is_sorted(), "{printed}");
}

#[test]
#[should_panic(expected = "16 bytes into the block at 0x")]
fn an_interior_pointer_names_its_block() {
    let engine = engine();
    // SAFETY: the test does not use the block; the engine must detect the wrong address.
    unsafe { engine.free(engine.alloc(100).wrapping_add(16)) };
}

#[test]
#[should_panic(expected = "passed to malloc_usable_size")]
fn the_size_of_a_freed_block() {
    let engine = engine();
    let block = engine.alloc(100);
    // SAFETY: the test no longer uses the block.
    unsafe { engine.free(block) };
    engine.usable_size(block);
}

#[test]
#[should_panic(expected = "double free")]
fn a_realloc_leaves_nothing_behind() {
    let engine = engine();
    let block = engine.alloc(100);
    // SAFETY: the memory is the fake's; the engine must detect the mistake.
    unsafe {
        assert_ne!(engine.realloc(block, 101, 1), block);
        engine.free(block);
    }
}

/// An address where a block could begin but none ever did: the message still names the address.
#[test]
fn a_block_that_never_was() {
    let engine = engine();
    let never = engine.alloc(100).wrapping_add(5 * 128);
    // SAFETY: no block is at this address; the engine must detect that.
    let free = std::panic::AssertUnwindSafe(|| unsafe { engine.free(never) });
    assert!(std::panic::catch_unwind(free).is_err());
    assert!(engine.os().printed().contains(&format!("free: {:#x} passed to free", never.addr())));
}

#[test]
fn blocks_held_are_listed_by_who_allocated_them() {
    let engine = engine();
    for (call, size) in [(0x10, 100), (0x20, 1000), (0x10, 100), (0x30, 500)] {
        engine.os().set_calls(&[call]);
        assert!(!engine.alloc(size).is_null());
    }
    engine.finish();
    let printed = engine.os().printed();
    let expected = "ebbmalloc: still held at exit: 1700 bytes in 4 blocks\n\
        ebbmalloc:   1000 bytes in 1 blocks, allocated here:\nebbmalloc:     #0 0x20\n\
        ebbmalloc:   500 bytes in 1 blocks, allocated here:\nebbmalloc:     #0 0x30\n\
        ebbmalloc:   200 bytes in 2 blocks, allocated here:\nebbmalloc:     #0 0x10\n";
    assert_eq!(printed, expected);
}

#[test]
fn the_list_can_be_left_out() {
    let os = FakeOs::default().space(12 << 20).environment("EBB_CHECK", "noleaks");
    let engine = Engine::new(os);
    assert_eq!(engine.usable_size(engine.alloc(100)), 100);
    engine.finish();
    assert_eq!(engine.os().printed(), "");
}

#[test]
#[should_panic(expected = "byte 10 was written (0x01); seen by a test")]
fn a_heap_is_looked_at_when_it_goes() {
    let engine = engine();
    let heap = engine.new_heap(usize::MAX).unwrap();
    // SAFETY: the memory is the fake's; check mode must see the write.
    unsafe {
        engine.heap_alloc(heap, 10, 1, "a test").add(10).write(1);
        engine.delete_heap(heap, "a test");
    }
}

/// Writes to the last bytes of a large block's run, right before the next block.
#[test]
#[should_panic(expected = "was written (0x01); seen by free")]
fn a_write_in_front_of_a_large_block() {
    let engine = engine();
    let blocks = [(); 3].map(|()| engine.alloc(200_000));
    let (first, second) = (blocks[0].min(blocks[1]), blocks[0].max(blocks[1]));
    assert!(second.addr() - first.addr() < 300_000, "they are neighbours");
    // SAFETY: the write is inside the block's run, behind its end; the test does not use the
    // blocks.
    unsafe {
        second.sub(1).write(1);
        engine.free(first);
    }
}

/// The quarantine holds blocks that `realloc` moved away from, and yet no heap exceeds its limit.
#[test]
fn quarantine_keeps_to_the_limit_of_a_heap() {
    let engine = engine();
    let heap = engine.new_heap(4096).unwrap();
    let mut block = engine.heap_alloc(heap, 3000, 1, "a test");
    for size in [3001, 2000, 3050] {
        // SAFETY: a live block of this test, which is replaced by the result.
        block = unsafe { engine.realloc(block, size, 1) };
        assert!(!block.is_null());
        engine.check();
    }
}

/// Deleting a heap frees all of its blocks, also those in quarantine.
#[test]
fn heaps_come_and_go() {
    let engine = engine();
    for round in 0..50 {
        let heap = engine.new_heap(usize::MAX).unwrap();
        let blocks =
            [10, 100, 1000, 100_000].map(|size| engine.heap_alloc(heap, size, 1, "a test"));
        assert!(blocks.iter().all(|block| !block.is_null()), "{round}");
        // SAFETY: the test no longer uses them.
        unsafe {
            engine.free(blocks[1]);
            engine.heap_free(heap, blocks[3], "a test");
            engine.delete_heap(heap, "a test");
        }
        engine.check();
    }
    engine.trim();
    engine.finish();
    assert_eq!(engine.os().printed(), "");
}

fn run(engine: &Engine<FakeOs>, seed: u64, steps: usize) {
    let mut worker = Worker::new(engine, 0);
    worker.run(Program::new(seed).take(steps));
    worker.shadow().check();
    worker.free_all();
    engine.check();
    engine.finish();
}

#[test]
fn correct_programs_run_through() {
    for mode in ["slot", "thread"] {
        let (steps, space) = (3000, 128 << 20);
        let engine = Engine::new(fake().space(space).mode(mode));
        run(&engine, 1, steps);
        let printed = engine.os().printed();
        assert!(!printed.contains("0x") && !printed.contains("held"), "{printed}");
    }
}

#[test]
fn a_fork_finds_the_table_whole() {
    let engine = engine();
    let block = engine.alloc(100);
    engine.before_fork();
    engine.after_fork_in_child();
    // SAFETY: the test no longer uses the block.
    unsafe { engine.free(block) };
    engine.finish();
    assert_eq!(engine.os().printed(), "");
}

#[test]
fn memory_runs_short() {
    each_call_is_refused(fake, 300, 10, |_| ());
}

/// Allocates more blocks than the table first has chains for: it grows, and still finds each block.
#[test]
fn many_blocks_are_known() {
    let engine = Engine::new(fake().space(64 << 20));
    let blocks: Vec<_> = (0..40_000).map(|nth| engine.alloc(nth % 7)).collect();
    for (nth, &block) in blocks.iter().enumerate() {
        assert_eq!(engine.usable_size(block), nth % 7);
    }
    for &block in blocks.iter().step_by(2) {
        // SAFETY: the test no longer uses the block.
        unsafe { engine.free(block) };
    }
    engine.finish();
    let printed = engine.os().printed();
    let bytes: usize = (0..40_000).skip(1).step_by(2).map(|nth| nth % 7).sum();
    let expected = format!("ebbmalloc: still held at exit: {bytes} bytes in 20000 blocks");
    assert!(printed.starts_with(&expected), "{printed}");
}

/// Check mode allocates its tables as it needs them. When memory is short, it refuses blocks; after
/// they are freed, the program gets as many as before.
#[test]
fn as_many_blocks_after_memory_was_short_as_before() {
    for size in [100, 1000, 100_000] {
        let engine = Engine::new(fake().space(64 << 20).data(6 << 20));
        let round = || {
            let some = |_| Some(engine.alloc(size)).filter(|block| !block.is_null());
            let blocks: Vec<_> = (0..).map_while(some).collect();
            // SAFETY: the test no longer uses them.
            blocks.iter().for_each(|&block| unsafe { engine.free(block) });
            engine.check();
            blocks.len()
        };
        let first = round();
        let later = [(); 3].map(|()| round());
        assert!(first > 20 && later.iter().all(|&count| count >= first - first / 16));
    }
}

/// A program that asked for checks never runs without them because memory is short: its first calls
/// return null, later ones blocks.
#[test]
fn checking_starts_when_there_is_memory() {
    let mut seen = false;
    for call in 0..60 {
        let engine = Engine::new(fake().refusing(call..call + 2));
        let first = engine.alloc(100);
        engine.os().heal();
        let block = engine.alloc(100);
        assert!(!block.is_null(), "call {call}");
        assert_eq!(engine.usable_size(block), 100, "call {call}");
        seen |= first.is_null();
    }
    assert!(seen);
}

/// A request that can never succeed takes no block out of the quarantine. Statistics count
/// quarantined blocks as in use.
#[test]
fn nothing_is_given_up_for_an_impossible_size() {
    for variable in ["EBB_CHECK", "EBB_HARDEN"] {
        let os = FakeOs::default().space(24 << 20).cpus(1).environment(variable, "1");
        let engine = Engine::new(os);
        let heap = engine.new_heap(1000).unwrap();
        // SAFETY: the test does not use the block.
        unsafe { engine.free(engine.alloc(100)) };
        // SAFETY: the test does not use the block.
        unsafe { engine.free(engine.heap_alloc(heap, 100, 1, "a test")) };
        let held = engine.stats().live_bytes;
        assert!(held >= 200);
        for size in [1 << 30, 1 << 47, isize::MAX as usize, usize::MAX - 20, usize::MAX] {
            assert!(engine.alloc(size).is_null());
            assert!(engine.alloc_aligned(100, 1 << 40).is_null());
            assert!(engine.heap_alloc(heap, size, 1, "a test").is_null());
            assert_eq!(engine.stats().live_bytes, held, "{variable}, {size:#x}");
        }
        assert!(engine.heap_alloc(heap, 1001, 1, "a test").is_null());
        assert_eq!(engine.stats().live_bytes, held);
    }
}

/// The leak report omits blocks that the C library's data point to, and blocks that those point to,
/// at any byte.
#[test]
fn what_the_c_library_can_reach_is_not_listed() {
    let engine = engine();
    let [first, second, third, fourth] = [100, 200, 50_000, 300].map(|size| engine.alloc(size));
    // SAFETY: live blocks of this test.
    unsafe {
        first.add(48).cast::<usize>().write(second.addr() + 100);
        second.cast::<usize>().write(third.addr());
        third.cast::<usize>().write(first.addr());
        fourth.cast::<usize>().write(fourth.addr());
    }
    let data = [0, first.addr(), 1];
    let part = (data.as_ptr().expose_provenance(), size_of_val(&data));
    engine.os().set_c_library(CLibrary::of(part));
    engine.finish();
    let printed = engine.os().printed();
    assert!(printed.starts_with("ebbmalloc: still held at exit: 300 bytes in 1 blocks\n"));
}

/// The report skips the engine's own first calls, even with generic functions of other crates
/// between them.
#[test]
fn own_calls_are_not_shown_and_names_are_readable() {
    let engine = engine();
    engine.os().set_names(&[
        (1, "_ZN9ebbmalloc5check5event17h0123456789abcdefE"),
        (2, "_ZN4core6option15Option$LT$T$GT$7or_else17h0123456789abcdefE"),
        (3, "_RNvNtCs1_9ebbmalloc6blocks5alloc"),
        (4, "malloc"),
        (5, "_RNvCs1_7program4keep"),
        (6, "_ZN7program4main17h0123456789abcdefE"),
        (7, "malloc"),
    ]);
    engine.os().set_calls(&[1, 2, 3, 4, 5, 6, 9, 9, 9, 7]);
    assert!(!engine.alloc(100).is_null());
    engine.finish();
    let printed = engine.os().printed();
    assert!(printed.contains("    #0 0x5 a file+0x5 (program::keep+0x0)\n"), "{printed}");
    assert!(printed.contains("    #1 0x6 a file+0x6 (program::main+0x0)\n"), "{printed}");
    assert!(printed.contains("    #5 0x7 a file+0x7 (malloc+0x0)\n"), "{printed}");
}

#[test]
fn statistics_say_what_is_done_with_blocks() {
    for (variable, expected) in
        [("EBB_CHECK", "check"), ("EBB_HARDEN", "harden"), ("EBB_SAMPLE", "sample"), ("X", "")]
    {
        let engine = Engine::new(FakeOs::default().cpus(1).environment(variable, "1"));
        assert!(!engine.alloc(1).is_null());
        assert_eq!(engine.stats().choice.care, expected);
    }
}

/// Records of gone blocks are kept up to a number, also behind one of a block in quarantine.
#[test]
fn heaps_that_come_and_go_leave_a_bounded_table() {
    let engine = Engine::new(fake().space(64 << 20));
    // SAFETY: freed once.
    unsafe { engine.free(engine.alloc(64)) };
    let touched = |heaps: usize| {
        for _ in 0..heaps {
            let heap = engine.new_heap(usize::MAX).expect("memory for a heap");
            for _ in 0..100 {
                assert!(!engine.heap_alloc(heap, 64, 1, "a test").is_null());
            }
            // SAFETY: its blocks are used no more.
            unsafe { engine.delete_heap(heap, "a test") };
        }
        engine.os().touched()
    };
    let full = touched(800);
    let later = touched(800);
    assert!(later < full + (1 << 20), "{full} {later}");
    engine.check();
}
