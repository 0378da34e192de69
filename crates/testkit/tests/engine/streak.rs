//! Tests the size of refills and flushes: the whole capacity of a cache while a thread goes on in
//! one direction, half of it where it changes direction.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use ebbmalloc::internals::Engine;
use ebbmalloc_testkit::{FakeOs, LinuxIn, is_possible};

const SIZE: usize = 1024;
/// The capacity of a thread's cache, in blocks of `SIZE` bytes.
const ROOM: u64 = 32;
const BURST: usize = 100;
const BURSTS: usize = 100;

/// Each thread has a cache of its own, whatever the scheduler does.
fn engine() -> Engine<FakeOs> {
    Engine::new(FakeOs::default().mode("thread"))
}

fn allocate(engine: &Engine<FakeOs>, count: usize) -> Vec<usize> {
    (0..count).map(|_| engine.alloc(SIZE).expose_provenance()).collect()
}

fn free(engine: &Engine<FakeOs>, blocks: Vec<usize>) {
    for block in blocks {
        // SAFETY: a live block, freed once.
        unsafe { engine.free(std::ptr::with_exposed_provenance_mut(block)) }
    }
}

/// The average number of blocks in a refill and in a flush, over `blocks` blocks allocated and
/// freed.
fn batches(engine: &Engine<FakeOs>, blocks: usize) -> (u64, u64) {
    engine.check();
    let stats = engine.stats();
    let row = stats.classes.iter().find(|row| row.block_bytes == SIZE as u64).unwrap();
    (blocks as u64 / row.refills.max(1), blocks as u64 / row.flushes.max(1))
}

#[test]
fn batches_are_as_large_as_caches_where_one_thread_frees_what_another_allocates() {
    let engine = engine();
    let (sender, receiver) = mpsc::sync_channel(0);
    thread::scope(|scope| {
        let engine = &engine;
        scope.spawn(move || {
            for _ in 0..BURSTS {
                sender.send(allocate(engine, BURST)).unwrap();
            }
            engine.leave_thread();
        });
        scope.spawn(move || {
            receiver.into_iter().for_each(|blocks| free(engine, blocks));
            engine.leave_thread();
        });
    });
    let (refill, flush) = batches(&engine, BURST * BURSTS);
    assert!(refill >= ROOM - 2, "{refill} blocks a refill");
    assert!(flush >= ROOM - 4, "{flush} blocks a flush");
    // Blocks that the last flushes left in transfer caches stay there until requested or trimmed.
    engine.trim();
    assert_eq!(engine.stats().spans, 0, "all is free");
}

#[test]
fn batches_are_as_large_as_caches_where_a_thread_frees_much_after_allocating_much() {
    let engine = engine();
    free(&engine, allocate(&engine, BURST * BURSTS));
    let (refill, flush) = batches(&engine, BURST * BURSTS);
    assert!(refill >= ROOM - 2, "{refill} blocks a refill");
    assert!(flush >= ROOM - 4, "{flush} blocks a flush");
    engine.leave_thread();
}

/// A thread that changes direction, also after a streak, keeps half of its cache.
#[test]
fn batches_are_half_as_large_where_a_thread_turns_before_a_streak() {
    let engine = engine();
    free(&engine, allocate(&engine, BURST));
    let before = engine.stats();
    for _ in 0..BURSTS {
        free(&engine, allocate(&engine, ROOM as usize + 10));
    }
    let after = engine.stats();
    let blocks = (ROOM + 10) * BURSTS as u64;
    let (refills, flushes) = (after.refills - before.refills, after.flushes - before.flushes);
    // At each change of direction, a cache serves half of its capacity itself. Full batches would
    // leave it nothing, and cost two batches a turn.
    assert!(blocks / refills > ROOM * 3 / 4, "{refills} refills");
    assert!(blocks / flushes > ROOM * 3 / 4, "{flushes} flushes");
    engine.leave_thread();
}

/// One thread only allocates and others only free: the blocks just freed are the last to be handed
/// out.
#[test]
fn a_streak_goes_on_in_its_span() {
    const IN_SPAN: usize = 64;
    let engine = engine();
    let with_another_cache = |work: &(dyn Fn() -> Vec<usize> + Sync)| {
        thread::scope(|scope| {
            let worker = scope.spawn(|| {
                let blocks = work();
                engine.leave_thread();
                blocks
            });
            worker.join().unwrap()
        })
    };
    let free_elsewhere = |blocks: &[usize]| {
        with_another_cache(&|| {
            free(&engine, blocks.to_vec());
            vec![]
        })
    };
    let mut blocks = with_another_cache(&|| allocate(&engine, 2 * IN_SPAN));
    blocks.sort();
    let (one, other) = blocks.split_at(IN_SPAN);
    assert_eq!(other[IN_SPAN - 1] - one[0], (2 * IN_SPAN - 1) * SIZE, "two spans");
    free_elsewhere(&one[1..]);
    // Three batches of half of the cache, each with one block more.
    let mut taken = allocate(&engine, (ROOM as usize / 2 + 1) * 3);
    free_elsewhere(&other[..4]);
    taken.extend(allocate(&engine, IN_SPAN - 1 + 4 - taken.len()));
    let from_other = taken.iter().position(|block| other.contains(block));
    assert_eq!(from_other, Some(IN_SPAN - 1), "all of one, then of the other");
    free(&engine, taken);
    engine.leave_thread();
    engine.check();
}

/// One of thousands of threads on a few CPUs loses its CPU in the middle of a refill. The first of
/// the threads that wait for the lock fills the cache, and the others take blocks from it.
#[test]
fn threads_that_waited_for_a_class_take_what_the_first_one_got() {
    let cpus = thread::available_parallelism().map_or(1, |cpus| cpus.get() as u64);
    let waiting = 16 * cpus;
    let engine = Engine::new(LinuxIn::new("percpu"));
    let refills_of_all = || {
        engine.trim();
        let before = engine.stats().refills;
        engine.before_fork();
        thread::scope(|scope| {
            for _ in 0..waiting {
                scope.spawn(|| assert!(!engine.alloc(64).is_null()));
            }
            // Time for the threads to reach the lock. A thread that comes later finds the cache
            // filled anyway.
            thread::sleep(Duration::from_millis(50));
            engine.after_fork();
        });
        engine.stats().refills - before
    };
    if !is_possible(&engine, "percpu") {
        return;
    }
    // The first thread may lose its CPU before it has filled the cache; a refill brings at least 32
    // blocks.
    let least = (0..20).map(|_| refills_of_all()).find(|&refills| refills <= waiting / 2);
    assert!(least.is_some(), "each thread refills");
    engine.check();
}
