//! Tests heaps: against the shadow model, several at once, from several threads, at their limits,
//! when memory is short, and when misused.

use crate::oom::step;
use std::array::from_fn;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;

use ebbmalloc::internals::{Engine, HeapId};
use ebbmalloc_testkit::{Block, FakeOs, Program, Worker};

const UNIT: usize = 64 << 10;

fn engine() -> Engine<FakeOs> {
    Engine::new(FakeOs::default().space(16 << 20).cpus(1))
}

fn heap(engine: &Engine<FakeOs>, limit: usize) -> HeapId {
    engine.new_heap(limit).expect("room for a heap")
}

fn alloc(engine: &Engine<FakeOs>, heap: HeapId, size: usize) -> *mut u8 {
    engine.heap_alloc(heap, size, 1, "a test")
}

fn delete(engine: &Engine<FakeOs>, heap: HeapId) {
    // SAFETY: the callers no longer use the heap's blocks.
    unsafe { engine.delete_heap(heap, "a test") }
}

/// Panics if any heap or block is left.
fn check_empty(engine: &Engine<FakeOs>) {
    engine.check();
    let stats = engine.stats();
    assert_eq!((stats.live_bytes, stats.large_blocks, stats.heaps, stats.heap_bytes), (0, 0, 0, 0));
    engine.trim();
    engine.check();
    assert_eq!(engine.stats().held_bytes, 0, "memory without a use");
}

/// Three workers, two of them with a heap, hand blocks to each other. Then the heaps are deleted,
/// one of them with blocks in it.
fn run(engine: &Engine<FakeOs>, seed: u64, length: usize) {
    const LIMIT: usize = 2 << 20;
    let heaps = [heap(engine, usize::MAX), heap(engine, LIMIT)];
    let mut workers = [Worker::new(engine, 0), Worker::new(engine, 1), Worker::new(engine, 2)];
    workers[1].move_to(Some((heaps[0], usize::MAX)));
    workers[2].move_to(Some((heaps[1], LIMIT)));
    for (nth, op) in Program::new(seed).take(length).enumerate() {
        if let Some(block) = workers[nth % 3].apply(op) {
            workers[(nth + 1) % 3].receive(block);
        }
    }
    engine.check();
    let of_heaps = |worker: &Worker<FakeOs>| {
        let blocks = worker.shadow().blocks().iter().filter(|block| block.heap.is_some());
        blocks.map(|block| block.usable).sum::<usize>()
    };
    let used: usize = workers.iter().map(of_heaps).sum();
    assert_eq!(engine.stats().heap_bytes, used as u64);
    workers.iter_mut().for_each(|worker| worker.forget(heaps[0]));
    delete(engine, heaps[0]);
    engine.check();
    workers.iter().for_each(|worker| worker.shadow().check());
    workers.iter_mut().for_each(Worker::free_all);
    assert_eq!(engine.heap_used(heaps[1], "a test"), 0);
    delete(engine, heaps[1]);
}

#[test]
fn heaps_against_the_shadow_model() {
    let (seeds, length) = (25, 1500);
    for mode in ["slot", "thread"] {
        for seed in 0..seeds {
            let engine = Engine::new(FakeOs::default().cpus(1).mode(mode));
            run(&engine, seed, length);
            check_empty(&engine);
        }
    }
}

struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Two threads have a heap each, give their blocks to each other, and delete their heaps. Meanwhile
/// a third makes and deletes heaps, trims, purges, counts and forks.
#[test]
fn threads_free_what_others_allocated_while_heaps_come_and_go() {
    let (rounds, length) = (10, 1000);
    // Space for the blocks that pile up while a thread does not get to run.
    let engine = Engine::new(FakeOs::default().space(256 << 20).cpus(1));
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let (engine, done) = (&engine, &done);
        // Ends the third thread also when a check has failed.
        let _end = End(done);
        scope.spawn(move || {
            while !done.load(Ordering::Relaxed) {
                let heaps = [heap(engine, usize::MAX), heap(engine, usize::MAX)];
                for size in [10, 1000, 100_000] {
                    assert!(!alloc(engine, heaps[0], size).is_null());
                    assert!(!alloc(engine, heaps[1], size).is_null());
                }
                engine.trim();
                engine.stats();
                delete(engine, heaps[0]);
                engine.before_fork();
                engine.after_fork();
                delete(engine, heaps[1]);
            }
        });
        for round in 0..rounds {
            let (to_first, from_second) = mpsc::channel::<Block>();
            let (to_second, from_first) = mpsc::channel::<Block>();
            let ends = [(to_second, from_second), (to_first, from_first)];
            let heaps = [heap(engine, usize::MAX), heap(engine, usize::MAX)];
            let workers =
                ends.into_iter().zip(heaps).enumerate().map(|(number, ((give, take), heap))| {
                    scope.spawn(move || {
                        let mut worker = Worker::new(engine, number as u32);
                        worker.move_to(Some((heap, usize::MAX)));
                        for op in Program::new((round * 2 + number) as u64).take(length) {
                            if let Some(block) = worker.apply(op) {
                                // The other thread may have ended.
                                if let Err(mpsc::SendError(block)) = give.send(block) {
                                    worker.receive(block);
                                }
                            }
                            take.try_iter().for_each(|block| worker.receive(block));
                        }
                        drop(give);
                        take.iter().for_each(|block| worker.receive(block));
                        worker.free_all();
                    })
                });
            let workers: Vec<_> = workers.collect();
            workers.into_iter().for_each(|worker| worker.join().unwrap());
            heaps.into_iter().for_each(|heap| delete(engine, heap));
        }
    });
    check_empty(&engine);
}

#[test]
fn a_limit_is_kept_to_the_byte() {
    let engine = engine();
    for (size, usable) in [(1, 16), (100, 112), (5000, 5120), (70_000, 2 * UNIT)] {
        let limit = 10 * usable + usable / 2;
        let heap = heap(&engine, limit);
        let blocks: Vec<_> = (0..10).map(|_| alloc(&engine, heap, size)).collect();
        assert!(blocks.iter().all(|block| !block.is_null()));
        assert_eq!(engine.heap_used(heap, "a test"), 10 * usable);
        let shortages = engine.os().shortages();
        assert!(alloc(&engine, heap, size).is_null(), "beyond the limit");
        assert_eq!(engine.os().shortages(), shortages + 1, "the platform was not told");
        // SAFETY: the test does not use the blocks.
        unsafe {
            assert!(engine.heap_realloc(heap, blocks[0], 8 * usable, 1, "a test").is_null());
            assert_eq!(engine.heap_used(heap, "a test"), 10 * usable);
            engine.free(blocks[0]);
        }
        assert!(!alloc(&engine, heap, size).is_null());
        // The limit of one heap does not bind other heaps.
        assert!(!alloc(&engine, self::heap(&engine, usize::MAX), limit).is_null());
        engine.check();
    }
    let none = heap(&engine, 0);
    assert!(alloc(&engine, none, 0).is_null() && alloc(&engine, none, usize::MAX).is_null());
}

/// A block that is resized counts once. So shrinking always succeeds, in a full heap too, and
/// growing succeeds where both blocks would not fit together.
#[test]
fn a_full_heap_resizes() {
    let engine = engine();
    for (from, to) in [(5120, 100), (2 * UNIT, 100), (UNIT, UNIT / 2), (UNIT / 2, 2 * UNIT)] {
        let heap = heap(&engine, from.max(to));
        let block = alloc(&engine, heap, from);
        // SAFETY: a live block of this test, with as many bytes as requested.
        unsafe {
            block.write(7);
            let resized = engine.realloc(block, to, 1);
            assert!(!resized.is_null(), "{from} bytes to {to}");
            assert_eq!(resized.read(), 7);
            assert_eq!(engine.heap_used(heap, "a test"), engine.usable_size(resized));
            assert!(engine.realloc(resized, 4 * UNIT, 1).is_null());
        }
        delete(&engine, heap);
    }
    check_empty(&engine);
}

/// A block that grows in place, or moves with its pages, stays in its heap and counts its new size.
#[test]
fn large_blocks_grow_within_the_limit() {
    let engine = engine();
    let heap = heap(&engine, 40 * UNIT);
    let mut block = alloc(&engine, heap, 10 * UNIT);
    // SAFETY: a live block of this test, with as many bytes as requested.
    unsafe {
        block.write(7);
        for units in [12, 20, 15, 35, 40] {
            block = engine.realloc(block, units * UNIT, 1);
            assert_eq!((block.read(), engine.usable_size(block)), (7, units * UNIT));
            assert_eq!(engine.heap_used(heap, "a test"), units * UNIT);
            engine.check();
            // A block behind it, so that it has to move next.
            assert!(!engine.alloc(UNIT + 1).is_null());
        }
        assert!(engine.realloc(block, 41 * UNIT, 1).is_null());
    }
    assert!(engine.os().moves() > 0, "no block has moved");
    delete(&engine, heap);
    engine.check();
}

/// Free pages of a heap's spans go back to the kernel like those of other spans.
#[test]
fn holes_in_heaps_are_dug() {
    let engine = engine();
    let heap = heap(&engine, usize::MAX);
    let blocks: Vec<_> = (0..1000).map(|_| alloc(&engine, heap, 1024)).collect();
    // SAFETY: the test no longer uses them.
    blocks.iter().skip(1).for_each(|&block| unsafe { engine.free(block) });
    assert!(engine.trim());
    assert!(engine.stats().dug_bytes >= 48 << 10, "{:?}", engine.stats().dug_bytes);
    assert_eq!(engine.stats().heap_bytes, 1024);
    // The heap uses the purged pages again.
    for _ in 0..100 {
        let block = alloc(&engine, heap, 1024);
        // SAFETY: the block has 1024 bytes.
        unsafe { block.write_bytes(1, 1024) };
    }
    engine.check();
    delete(&engine, heap);
    check_empty(&engine);
}

#[test]
fn the_ledger_adds_up_with_heaps() {
    let engine = engine();
    let before = engine.ledger();
    let heap = heap(&engine, usize::MAX);
    for size in [100, 100_000] {
        let block = alloc(&engine, heap, size);
        // SAFETY: the block has `size` bytes.
        unsafe { block.write_bytes(1, size) };
    }
    let ledger = engine.ledger();
    assert_eq!((ledger.small_blocks, ledger.large_blocks), (1, 1));
    assert_eq!(ledger.unclear, before.unclear);
    assert!(ledger.large >= 100_000 && ledger.small > 0 && ledger.tables > before.tables);
    delete(&engine, heap);
}

/// Runs the same program on a heap while these calls are refused. Returns the number of calls made.
fn run_refusing(calls: Range<usize>) -> usize {
    let engine = Engine::new(FakeOs::default().space(8 << 20).cpus(1).refusing(calls.clone()));
    let mut workers: [_; 3] = from_fn(|number| (Worker::new(&engine, number as u32), None));
    for (nth, op) in Program::new(5).take(1000).enumerate() {
        let (worker, heap) = &mut workers[nth / 20 % 3];
        if nth % 200 == 0 {
            if let Some(old) = heap.take() {
                worker.forget(old);
                delete(&engine, old);
                engine.trim();
            }
            *heap = engine.new_heap(usize::MAX);
            worker.move_to(heap.map(|heap| (heap, usize::MAX)));
        }
        if let Some(block) = worker.apply(op) {
            worker.receive(block);
        }
    }
    engine.check();
    let made = engine.os().calls();
    engine.os().heal();
    for (worker, heap) in &mut workers {
        worker.shadow().check();
        worker.free_all();
        heap.iter().for_each(|&heap| delete(&engine, heap));
    }
    engine.check();
    assert_eq!(engine.stats().live_bytes, 0, "{calls:?}");
    made
}

#[test]
fn each_call_is_refused_once() {
    for range in [|call| call..call + 1, |call| call..usize::MAX, |call: usize| call..call + 5] {
        let all = run_refusing(0..0);
        assert!(all > 20, "the program makes only {all} calls");
        let mut call = 0;
        while run_refusing(range(call)) > call {
            call += step();
        }
        assert!(call + 5 >= all, "stopped at call {call} of {all}");
    }
}

#[test]
fn no_room_for_a_heap() {
    let engine = Engine::new(FakeOs::default().refusing(0..usize::MAX));
    assert_eq!(engine.new_heap(1), None);
    assert_eq!(engine.os().shortages(), 1);
    engine.os().heal();
    delete(&engine, heap(&engine, 1));
    check_empty(&engine);
}

#[test]
fn owners_share_a_heap() {
    let engine = engine();
    let heap = heap(&engine, usize::MAX);
    engine.share_heap(heap, "a test");
    assert!(!engine.unshare_heap(heap, "a test"));
    assert!(engine.unshare_heap(heap, "a test"));
    delete(&engine, heap);
    check_empty(&engine);
}

#[test]
#[should_panic(expected = "ebbmalloc: deleted heap: 0x")]
fn a_heap_used_after_its_delete() {
    let engine = engine();
    let deleted = heap(&engine, usize::MAX);
    delete(&engine, deleted);
    // A new heap at the deleted heap's address.
    let _other = heap(&engine, usize::MAX);
    alloc(&engine, deleted, 1);
}

#[test]
#[should_panic(expected = "ebbmalloc: deleted heap: 0x")]
fn a_heap_deleted_twice() {
    let engine = engine();
    let deleted = heap(&engine, usize::MAX);
    delete(&engine, deleted);
    delete(&engine, deleted);
}

#[test]
#[should_panic(expected = "ebbmalloc: invalid heap: 0x")]
fn what_never_was_a_heap() {
    let engine = engine();
    let _one = heap(&engine, usize::MAX);
    alloc(&engine, HeapId::from_bits(0x1234_5678_9abc_def0), 1);
}

#[test]
#[should_panic(expected = "ebbmalloc: invalid heap: 0x0 passed to a test")]
fn no_heap_before_anything() {
    alloc(&engine(), HeapId::from_bits(0), 1);
}

/// Has `free` called at this offset into a block of a heap, after the block was freed `times`
/// times.
fn free(size: usize, times: usize, offset: usize) {
    let engine = engine();
    let heap = heap(&engine, usize::MAX);
    let block = alloc(&engine, heap, size);
    assert!(!alloc(&engine, heap, size).is_null());
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
fn large_block_twice() {
    free(100_000, 1, 0);
}

#[test]
#[should_panic(expected = "ebbmalloc: interior pointer: 0x")]
fn inside_a_small_block() {
    free(100, 0, 16);
}

#[test]
#[should_panic(expected = "ebbmalloc: interior pointer: 0x")]
fn inside_a_large_block() {
    free(200_000, 0, UNIT);
}

#[test]
#[should_panic(expected = "ebbmalloc: invalid free: 0x")]
fn a_block_of_a_deleted_heap() {
    let engine = engine();
    let heap = heap(&engine, usize::MAX);
    let block = alloc(&engine, heap, 100);
    delete(&engine, heap);
    // SAFETY: the memory is the fake's; the engine must detect the mistake.
    unsafe { engine.free(block) };
}

/// The page map no longer knows the block.
#[test]
#[should_panic(expected = "ebbmalloc: invalid free: 0x")]
fn the_size_of_a_block_of_a_deleted_heap() {
    let engine = engine();
    let heap = heap(&engine, usize::MAX);
    let block = alloc(&engine, heap, 100);
    delete(&engine, heap);
    engine.usable_size(block);
}

#[test]
#[should_panic(expected = "ebbmalloc: not a block of this heap: 0x")]
fn a_block_of_another_heap() {
    let engine = engine();
    let heaps = [heap(&engine, usize::MAX), heap(&engine, usize::MAX)];
    let block = alloc(&engine, heaps[0], 100);
    // SAFETY: the memory is the fake's; the engine must detect the mistake.
    unsafe { engine.heap_free(heaps[1], block, "a test") };
}

#[test]
#[should_panic(expected = "ebbmalloc: not a block of this heap: 0x")]
fn a_block_of_no_heap() {
    let engine = engine();
    let heap = heap(&engine, usize::MAX);
    // SAFETY: the memory is the fake's; the engine must detect the mistake.
    unsafe { engine.heap_realloc(heap, engine.alloc(100), 1, 1, "a test") };
}

/// The given size names the cache of another class: a sized free must not put a heap's block there
/// undetected.
#[test]
#[should_panic(expected = "ebbmalloc: ")]
fn a_block_of_a_heap_freed_as_one_of_none() {
    let engine = engine();
    let block = alloc(&engine, heap(&engine, usize::MAX), 100);
    // SAFETY: the memory is the fake's; the engine must detect the mistake.
    unsafe { engine.free_sized(block, 100, 1) };
    engine.trim();
}
