//! Small programs for Miri, which checks every access of the engine to the fake's memory.
//!
//! ```sh
//! cargo +nightly miri test -p ebbmalloc-testkit --test miri
//! ```
//!
//! They also run without Miri.
#![cfg(not(loom))]

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;

use ebbmalloc::internals::Engine;
use ebbmalloc_testkit::fake_stack::call;
use ebbmalloc_testkit::{Block, FakeOs, Op, Program, Worker};

fn engine() -> Engine<FakeOs> {
    engine_in("slot")
}

fn engine_in(mode: &'static str) -> Engine<FakeOs> {
    Engine::new(FakeOs::default().space(12 << 20).mode(mode).watched())
}

fn finish(engine: &Engine<FakeOs>) {
    engine.check();
    assert_eq!(engine.stats().live_bytes, 0);
}

#[test]
fn one_thread() {
    one_thread_in("slot");
}

#[test]
fn one_thread_with_its_cache() {
    one_thread_in("thread");
}

fn one_thread_in(mode: &'static str) {
    let engine = engine_in(mode);
    let mut worker = Worker::new(&engine, 0);
    worker.run(Program::new(1).take(150));
    worker.free_all();
    engine.trim();
    finish(&engine);
}

/// Sampled blocks, in small pages: reading each byte of a page takes long under Miri.
#[test]
fn two_threads_with_sampled_blocks() {
    let os = FakeOs::default().space(12 << 20).environment("EBB_SAMPLE", "1").watched();
    let engine = Engine::new(os);
    thread::scope(|scope| {
        for number in 0..2 {
            let engine = &engine;
            scope.spawn(move || {
                let mut worker = Worker::new(engine, number);
                worker.run(Program::new(number as u64).take(40));
                worker.free_all();
            });
        }
    });
    assert!(engine.stats().sampled_blocks > 10);
    finish(&engine);
}

#[test]
fn one_of_every_kind() {
    one_of_every_kind_at(&[1 << 16]);
}

#[test]
fn one_of_every_kind_at_other_alignments() {
    one_of_every_kind_at(&[1, 32, 4096, 1 << 20]);
}

fn one_of_every_kind_at(alignments: &[usize]) {
    let engine = engine();
    let mut worker = Worker::new(&engine, 0);
    for &align in alignments {
        worker.apply(Op::Alloc { size: 100, align });
        worker.apply(Op::Realloc { nth: 0, size: 40_000 });
        worker.apply(Op::AllocZeroed { size: align });
        // In place, growing and shrinking; then the block moves.
        worker.apply(Op::Alloc { size: 200_000, align });
        worker.apply(Op::Realloc { nth: 2, size: 300_000 });
        worker.apply(Op::Realloc { nth: 2, size: 70_000 });
        worker.apply(Op::Resize { nth: 2, size: 100_000 });
        worker.apply(Op::Remap { nth: 2, size: 66_000 });
        worker.apply(Op::Remap { nth: 2, size: 10 });
        worker.apply(Op::Realloc { nth: 2, size: 0 });
        worker.free_all();
    }
    engine.trim();
    finish(&engine);
}

/// Two threads, both of which find an engine that was never used.
#[test]
fn two_threads_start_it() {
    let engine = engine();
    let barrier = Barrier::new(2);
    thread::scope(|scope| {
        for number in 0..2 {
            let (engine, barrier) = (&engine, &barrier);
            scope.spawn(move || {
                let mut worker = Worker::new(engine, number);
                barrier.wait();
                worker.run(Program::new(number as u64).take(25));
                worker.free_all();
            });
        }
    });
    finish(&engine);
}

#[test]
fn null_is_freed_while_another_thread_starts() {
    let engine = engine();
    thread::scope(|scope| {
        scope.spawn(|| assert!(!engine.alloc(1).is_null()));
        // SAFETY: freeing null is allowed.
        unsafe { engine.free(std::ptr::null_mut()) };
    });
}

#[test]
fn two_threads_hand_over() {
    two_threads_hand_over_in("slot");
}

#[test]
fn two_threads_with_caches_hand_over() {
    two_threads_hand_over_in("thread");
}

/// Blocks of one size go back and forth; only the channel synchronises the threads.
fn two_threads_hand_over_in(mode: &'static str) {
    let engine = engine_in(mode);
    let (to_one, from_other) = mpsc::channel::<Block>();
    let (to_other, from_one) = mpsc::channel::<Block>();
    thread::scope(|scope| {
        for (number, out, inbox) in [(0, to_other, from_other), (1, to_one, from_one)] {
            let engine = &engine;
            scope.spawn(move || {
                let mut worker = Worker::new(engine, number);
                for round in 0..30 {
                    worker.apply(Op::Alloc { size: 2000 + 40_000 * (round % 10 / 9), align: 1 });
                    if round % 2 == 0
                        && let Some(block) = worker.apply(Op::HandOver { nth: 0 })
                    {
                        let Ok(()) = out.send(block) else { return };
                    }
                    inbox.try_iter().for_each(|block| worker.receive(block));
                    worker.apply(Op::Free { nth: round });
                }
                drop(out);
                inbox.iter().for_each(|block| worker.receive(block));
                worker.free_all();
                engine.leave_thread();
            });
        }
    });
    finish(&engine);
}

/// One thread's cache becomes another's: as it is left, and with the blocks that a fork leaves in
/// it. Stacks grow through all their tiers.
#[test]
fn caches_are_handed_on() {
    let engine = engine_in("thread");
    let work = |leave: bool| {
        let blocks: Vec<_> = (0..200).map(|_| engine.alloc(64)).collect();
        // SAFETY: freed once.
        blocks.into_iter().for_each(|block| unsafe { engine.free(block) });
        if leave {
            engine.leave_thread();
            // SAFETY: a live block, freed once; the thread has no cache.
            unsafe { engine.free(engine.alloc(64)) };
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| work(true));
        scope.spawn(|| work(false));
    });
    assert!(engine.stats().cached_bytes > 0);
    engine.before_fork();
    engine.after_fork_in_child();
    thread::scope(|scope| {
        scope.spawn(|| work(true));
        scope.spawn(|| work(true));
    });
    engine.trim();
    assert_eq!(engine.stats().cached_bytes, 0);
    finish(&engine);
}

/// A thread's cache is drained, whole and in part, while the thread is idle. The thread goes on
/// with the rest, and with slots that were read.
#[test]
fn caches_are_emptied_by_others() {
    let os = FakeOs::default().space(12 << 20).mode("thread").barrier(true);
    let engine = Engine::new(os);
    let [begin, end] = [(); 2].map(|()| Barrier::new(2));
    let work = || {
        let sizes = [64, 1000];
        let blocks: Vec<_> = (0..80).map(|nth| engine.alloc(sizes[nth % 2])).collect();
        // SAFETY: freed once.
        blocks.into_iter().for_each(|block| unsafe { engine.free(block) });
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..4 {
                work();
                begin.wait();
                end.wait();
            }
            engine.leave_thread();
        });
        for round in 0..4 {
            begin.wait();
            engine.os().set_busy(round == 1);
            let _ = if round % 2 == 0 { engine.idle() } else { engine.trim() };
            engine.os().set_busy(false);
            engine.check();
            assert_eq!(engine.stats().cached_bytes > 0, round < 3);
            end.wait();
        }
    });
    finish(&engine);
}

/// The same, but the thread learns of the drain only through its cache: the drainer must have read
/// the slots before the thread writes to them. In Rust's memory model the thread once wrote too
/// early, where it stored its own header over the drainer's.
#[test]
fn an_emptied_cache_is_filled_by_frees() {
    // A thread may still find the stack closed, and then synchronises by chance; hence more than
    // one turn.
    for _ in 0..2 {
        let os = FakeOs::default().space(12 << 20).mode("thread").barrier(true);
        let engine = Engine::new(os);
        let [at_rest, emptied] = [(); 2].map(|()| AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                // As many blocks as leave the stack in its first tier, where it begins again.
                let [first, second, later] = [(); 3].map(|()| engine.alloc(64));
                // SAFETY: freed once.
                [first, second].into_iter().for_each(|block| unsafe { engine.free(block) });
                let before = engine.os().barriers();
                at_rest.store(true, Ordering::Release);
                // Stands for the kernel's barrier: the cache is closed.
                while engine.os().barriers() == before {
                    thread::yield_now();
                }
                while !emptied.load(Ordering::Relaxed) {
                    thread::yield_now();
                }
                // SAFETY: freed once.
                unsafe { engine.free(later) };
                engine.leave_thread();
            });
            while !at_rest.load(Ordering::Acquire) {
                thread::yield_now();
            }
            engine.trim();
            emptied.store(true, Ordering::Relaxed);
        });
        finish(&engine);
    }
}

/// One thread frees blocks and another gets them, while a third holds the lock of their spans.
#[test]
fn blocks_pass_beside_their_spans() {
    const SIZE: usize = 8192;
    let allocate = |worker: &mut Worker<FakeOs>, count| {
        for _ in 0..count {
            worker.apply(Op::Alloc { size: SIZE, align: 1 });
        }
    };
    let os = FakeOs::default().space(12 << 20).cpus(4).mode("thread").still().watched();
    let engine = Engine::new(os);
    let mut worker = Worker::new(&engine, 0);
    // More blocks than a cache holds.
    allocate(&mut worker, 20);
    engine.while_at_spans(SIZE, || {
        thread::scope(|scope| {
            scope.spawn(move || worker.free_all()).join().unwrap();
            scope.spawn(|| {
                let mut worker = Worker::new(&engine, 1);
                allocate(&mut worker, 10);
                worker.free_all();
            });
        });
    });
    engine.trim();
    finish(&engine);
}

/// Two threads make a heap each, of which the other frees a block; one deletes its own meanwhile.
#[test]
fn heaps_come_and_go() {
    let engine = engine();
    let alloc = |heap, size| {
        let block = engine.heap_alloc(heap, size, 1, "a test");
        // SAFETY: the block has `size` bytes.
        unsafe { block.write_bytes(1, size) };
        Block::new(block, size, 1, size)
    };
    let heaps = [(); 2].map(|()| engine.new_heap(1 << 20).unwrap());
    for heap in heaps {
        let _gone_with_it = [100, 70_000].map(|size| alloc(heap, size));
    }
    let of_others = [heaps[1], heaps[0]].map(|heap| alloc(heap, 100));
    thread::scope(|scope| {
        let (engine, alloc) = (&engine, &alloc);
        for (heap, other) in heaps.into_iter().zip(of_others) {
            scope.spawn(move || {
                // Moves the whole struct, since a bare address is not `Send`.
                let other = other;
                // SAFETY: only this thread uses or frees it; both heaps live until the threads are
                // done.
                unsafe { engine.free(other.start) };
                let short_lived = engine.new_heap(usize::MAX).unwrap();
                alloc(short_lived, 5000);
                // SAFETY: its block is no longer used.
                unsafe { engine.delete_heap(short_lived, "a test") };
                alloc(heap, 200);
            });
        }
        engine.trim();
        engine.stats();
    });
    engine.check();
    // SAFETY: their blocks are no longer used.
    heaps.into_iter().for_each(|heap| unsafe { engine.delete_heap(heap, "a test") });
    finish(&engine);
}

/// The tail behind a large block is purged while its owner asks for its size and resizes it.
#[test]
fn what_is_behind_a_large_block_goes_meanwhile() {
    const UNIT: usize = 64 << 10;
    // With one CPU there is no near cache, which would keep the first block.
    let engine = Engine::new(FakeOs::default().cpus(1).space(8 << 20));
    // In memory that was used before, so that the tail is resident.
    let before = [(); 2].map(|()| engine.alloc(2 * UNIT));
    // SAFETY: freed once.
    unsafe { engine.free(before[0]) };
    let block = engine.alloc(UNIT + 1);
    assert_eq!(block, before[0]);
    let block = Block::new(block, UNIT + 1, 1, engine.usable_size(block));
    thread::scope(|scope| {
        let engine = &engine;
        scope.spawn(move || {
            // Moves the whole struct, since a bare address is not `Send`.
            let block = block;
            let start = block.start;
            for size in [UNIT + 5000, UNIT + 9000, UNIT + 1] {
                // SAFETY: only this thread uses the block, and its usable size may be written.
                unsafe {
                    assert!(engine.resize(start, size, 1));
                    let last = start.add(engine.usable_size(start) - 1);
                    last.write(7);
                    thread::yield_now();
                    assert_eq!(last.read(), 7);
                }
            }
            // SAFETY: freed once.
            unsafe { engine.free(start) };
        });
        (0..3).for_each(|_| _ = engine.trim());
    });
    // SAFETY: freed once.
    unsafe { engine.free(before[1]) };
    finish(&engine);
}

/// Statistics are read while other threads work.
#[test]
fn statistics_meanwhile() {
    let engine = engine();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut worker = Worker::new(&engine, 0);
            worker.run(Program::new(9).take(20));
            worker.free_all();
        });
        while engine.stats().refills < 2 {
            thread::yield_now();
        }
    });
    finish(&engine);
}

/// A heap profile: two threads with sampled blocks of all kinds, which are freed during the
/// session, after it, and in the next one.
#[test]
fn sampled_for_a_heap_profile() {
    let engine = engine();
    let live = |engine: &Engine<FakeOs>| {
        let mut objects = 0.0;
        assert!(engine.for_each_profile_stack(&mut |stack| objects += stack.live.objects));
        objects
    };
    assert!(engine.start_profile(64));
    let heap = engine.new_heap(usize::MAX).unwrap();
    let _gone_with_it = call(2, || engine.heap_alloc(heap, 1000, 1, "a test"));
    let kept = thread::scope(|scope| {
        let workers = [0, 1].map(|number| {
            let engine = &engine;
            scope.spawn(move || {
                call(0x1000 + number as usize, || {
                    let mut worker = Worker::new(engine, number);
                    worker.apply(Op::Alloc { size: 3000, align: 1 });
                    worker.apply(Op::Realloc { nth: 0, size: 3001 });
                    worker.apply(Op::Alloc { size: 70_000, align: 1 });
                    worker.apply(Op::Resize { nth: 1, size: 90_000 });
                    worker.apply(Op::Realloc { nth: 1, size: 10 });
                    worker.run(Program::new(number as u64 + 3).take(12));
                    worker.free_all();
                    let block = engine.alloc(500);
                    engine.leave_thread();
                    Block::new(block, 500, 1, 500)
                })
            })
        });
        workers.map(|worker| worker.join().unwrap())
    });
    assert!(live(&engine) > 2.5);
    assert!(engine.profile_header().unwrap().sampled_blocks > 5);
    // SAFETY: its block is no longer used.
    unsafe { engine.delete_heap(heap, "a test") };
    // SAFETY: a live block, freed once.
    let free = |block: Block| unsafe { engine.free_sized(block.start, 500, 1) };
    engine.stop_profile();
    let [first, second] = kept;
    free(first);
    assert!(live(&engine) > 0.5);
    assert!(engine.start_profile(128));
    free(second);
    assert_eq!(live(&engine), 0.0);
    engine.stop_profile();
    engine.trim();
    finish(&engine);
}
