//! Refuses each call of the operating system in turn, once or from then on: the engine must return
//! null, go on, and harm no live block.

use std::ops::Range;

use crate::fuzz::variable;
use ebbmalloc::internals::Engine;
use ebbmalloc_testkit::{FakeOs, Op, Program, Worker};

/// Allocates more and more blocks of all kinds, resizes some, and frees most in the end.
fn program(seed: u64) -> impl Iterator<Item = Op> {
    let mixed = Program::new(seed).take(250);
    // A few blocks that need runs of their own, grow in place, and leave holes to be purged.
    let large = (1..6usize).flat_map(|n| {
        [
            Op::Alloc { size: n * 300_000, align: 1 << (10 + n) },
            Op::AllocZeroed { size: n * 70_000 },
            Op::Realloc { nth: 3 * n, size: n * 150_000 },
            Op::Realloc { nth: 5 * n, size: 40_000 },
            Op::Trim,
        ]
    });
    mixed.chain(large).chain(Program::new(seed + 1).take(250))
}

/// Runs the program while these calls are refused, then continues without refusals. Returns the
/// number of calls made before the refusals ended.
fn run_refusing(mode: &'static str, calls: Range<usize>, seed: u64) -> usize {
    let os = FakeOs::default().cpus(1).mode(mode).refusing(calls.clone()).watched();
    let engine = Engine::new(os);
    let mut worker = Worker::new(&engine, 0);
    worker.run(program(seed));
    worker.shadow().check();
    engine.check();
    let os = engine.os();
    assert_eq!(
        os.shortages(),
        worker.nulls(),
        "nulls that the platform was not told of, {calls:?}"
    );
    let made = os.calls();

    os.heal();
    // Null now means that the region is full; the worker checks that it is.
    worker.run(program(seed).take(100));
    worker.shadow().check();
    worker.free_all();
    engine.check();
    assert_eq!(engine.stats().live_bytes, 0);
    engine.trim();
    for size in [10, 1000, 30_000, 100_000, 1 << 20] {
        assert!(
            !engine.alloc(size).is_null(),
            "null for {size} bytes of an empty region, {calls:?}"
        );
    }
    made
}

/// The distance from one refused call to the next: 1, or `EBB_TEST_STEP`, which CI sets higher.
pub fn step() -> usize {
    variable("EBB_TEST_STEP").unwrap_or(1)
}

/// Refuses every call in turn, until the program makes no more.
fn refuse_each(seed: u64, range: impl Fn(usize) -> Range<usize>) {
    for mode in ["slot", "thread"] {
        let all = run_refusing(mode, 0..0, seed);
        assert!(all > 40, "the program makes only {all} calls");
        let mut call = 0;
        while run_refusing(mode, range(call), seed) > call {
            call += step();
        }
        assert!(call >= all, "stopped at call {call} of {all}");
    }
}

#[test]
fn each_call_is_refused_once() {
    refuse_each(1, |call| call..call + 1);
}

#[test]
fn all_calls_from_each_on_are_refused() {
    refuse_each(2, |call| call..usize::MAX);
}

#[test]
fn some_calls_in_a_row_are_refused() {
    refuse_each(3, |call| call..call + 5);
}

#[test]
fn a_region_that_cannot_be_reserved_is_told_once() {
    let engine = Engine::new(FakeOs::default().refusing(0..usize::MAX));
    for size in [1, 100, 100_000] {
        assert!(engine.alloc(size).is_null());
    }
    assert!(!engine.trim());
    // Operations that may come in between: a fork, statistics, a test's check of the heap.
    engine.before_fork();
    engine.after_fork();
    assert_eq!(engine.stats().committed_bytes, 0);
    engine.check();
    let printed = engine.os().printed();
    assert_eq!(printed.matches("cannot map memory").count(), 1, "{printed}");
    engine.os().heal();
    assert!(!engine.alloc(1).is_null());
    engine.check();
}

#[test]
fn a_full_region_serves_again_after_frees() {
    let engine = Engine::new(FakeOs::default().space(8 << 20).cpus(1).watched());
    for size in [16, 5000, 32_768, 100_000, 1 << 20] {
        let mut worker = Worker::new(&engine, 0);
        while worker.nulls() == 0 {
            worker.apply(Op::Alloc { size, align: 1 });
        }
        worker.shadow().check();
        let usable: usize = worker.shadow().blocks().iter().map(|block| block.usable).sum();
        assert!(usable > 4 << 20, "only {usable} bytes in blocks of {size}");
        worker.free_all();
        engine.trim();
        engine.check();
    }
}

/// A few free blocks in the cache, each of another span, must not keep large blocks out of the
/// region.
#[test]
fn cached_blocks_do_not_stand_in_the_way() {
    let engine = Engine::new(FakeOs::default().space(8 << 20).cpus(1));
    let fill = |size| {
        let blocks = std::iter::repeat_with(|| engine.alloc(size));
        blocks.take_while(|block| !block.is_null()).collect::<Vec<_>>()
    };
    let free = |block: &*mut u8| {
        // SAFETY: each block is freed once and no longer used.
        unsafe { engine.free(*block) }
    };
    let large = fill(1 << 20);
    large.iter().for_each(free);
    let small = fill(200);
    // The cache keeps the blocks freed last: about one of each span.
    let (last, first): (Vec<_>, Vec<_>) =
        small.iter().enumerate().partition(|(nth, _)| nth % 300 == 0);
    first.iter().chain(&last).for_each(|(_, block)| free(block));
    // One fewer, because the first fill may have found a gap between two such spans.
    assert!(fill(1 << 20).len() + 1 >= large.len());
}

/// Runs operations while each call of the operating system in turn is refused, once or from then
/// on. Checks the engine after all blocks are freed, and that there were more than `least` calls.
pub fn each_call_is_refused(
    fake: impl Fn() -> FakeOs,
    operations: usize,
    least: usize,
    look: impl Fn(&Engine<FakeOs>),
) {
    for forever in [false, true] {
        let mut call = 0;
        loop {
            let refused = call..if forever { usize::MAX } else { call + 1 };
            let engine = Engine::new(fake().refusing(refused));
            let mut worker = Worker::new(&engine, 0);
            let large = Op::Alloc { size: 500_000, align: 4096 };
            worker.run(Program::new(2).take(operations).chain([large]));
            worker.shadow().check();
            let made = engine.os().calls();
            engine.os().heal();
            worker.free_all();
            engine.check();
            look(&engine);
            assert!(!engine.alloc(1000).is_null(), "refused {call}");
            assert!(!engine.os().printed().contains("0x"), "{}", engine.os().printed());
            call += step();
            if call > made {
                break;
            }
        }
        assert!(call > least, "only {call} calls");
    }
}

/// A limit may allow the units of a block, but not their table entries. Then the units must go
/// back: they count against the limit, and serve no block.
#[test]
fn a_refused_block_takes_nothing() {
    const DATA: usize = 16 << 20;
    const SIZE: usize = 64 << 10;
    let os = FakeOs::default().cpus(1).still().space(8 * DATA).data(DATA);
    let engine = Engine::new(os);
    let largest =
        |_| (0..DATA / SIZE).map(|n| engine.alloc(DATA - n * SIZE)).find(|b| !b.is_null());
    let fill =
        || std::iter::repeat_with(|| engine.alloc(SIZE)).take_while(|b| !b.is_null()).count();
    for turn in 0..3 {
        let block = largest(turn).expect("a block");
        // SAFETY: a live block.
        unsafe { engine.free(block) };
        engine.trim();
        engine.check();
    }
    let filled = fill() * SIZE;
    assert!(filled > DATA / 8 * 7, "{filled} bytes of {DATA}");
    engine.check();
}

/// A kernel that refuses to unmap may leave anything behind.
#[test]
fn what_was_not_unmapped_reads_as_zero_when_zeros_are_asked_for() {
    const BYTES: usize = 2 << 20;
    let mut refusals = 0;
    for call in 0..40 {
        let engine = Engine::new(FakeOs::default().cpus(1).still());
        let allocate = || {
            let block = engine.alloc_zeroed(BYTES);
            if !block.is_null() {
                // SAFETY: a live block of `BYTES` bytes.
                let bytes = unsafe { std::slice::from_raw_parts_mut(block, BYTES) };
                assert!(bytes.iter().all(|&byte| byte == 0), "refused: call {call}");
                bytes.fill(7);
            }
            Some(block).filter(|block| !block.is_null())
        };
        let blocks: Vec<_> = std::iter::from_fn(allocate).collect();
        // SAFETY: live blocks, each freed once.
        blocks.iter().step_by(2).for_each(|&block| unsafe { engine.free(block) });
        let next = engine.os().calls() + call;
        engine.os().faults().refuse(next..usize::MAX);
        // No run is long enough, so all free ones are purged and unmapped.
        assert!(engine.alloc(2 * BYTES).is_null());
        refusals += engine.os().refusals();
        engine.os().heal();
        let again = std::iter::from_fn(allocate).count();
        assert!(again >= blocks.len() / 2 - 1, "{again} of {}", blocks.len());
        engine.check();
    }
    assert!(refusals > 2);
}
