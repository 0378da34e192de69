//! Blocks that one thread allocates and another frees: how large the batches are in which they go
//! from cache to cache.

use std::sync::mpsc;
use std::thread;

use ebbmalloc::Engine;
use ebbmalloc_testkit::FakeOs;

const SIZE: usize = 1024;
/// Blocks of this size that a thread's cache has room for.
const ROOM: u64 = 32;
const BURST: usize = 100;
const BURSTS: usize = 100;

/// Each thread has a cache of its own, whatever runs when.
fn engine() -> Engine<FakeOs> {
    Engine::new(FakeOs::default().mode("thread"), None)
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

/// Blocks in a batch to caches and in one from them, on average over all the work.
fn batches(engine: &Engine<FakeOs>) -> (u64, u64) {
    engine.check();
    let stats = engine.stats();
    let row = stats.classes.iter().find(|row| row.block_bytes == SIZE as u64).unwrap();
    let blocks = (BURST * BURSTS) as u64;
    (blocks / row.refills.max(1), blocks / row.flushes.max(1))
}

/// Lets one thread allocate and another free, burst by burst.
fn hand_over(engine: &Engine<FakeOs>) {
    let (sender, receiver) = mpsc::sync_channel(0);
    thread::scope(|scope| {
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
}

#[test]
fn batches_are_as_large_as_caches_where_one_thread_frees_what_another_allocates() {
    let engine = engine();
    hand_over(&engine);
    let (refill, flush) = batches(&engine);
    assert!(refill >= ROOM - 2, "{refill} blocks a refill");
    assert!(flush >= ROOM - 4, "{flush} blocks a flush");
    assert_eq!(engine.stats().spans, 0, "all is free");
}

/// A thread by itself keeps half of its cache, however long it goes on to allocate or to free.
#[test]
fn batches_are_half_as_large_where_a_thread_frees_what_it_allocates() {
    let engine = engine();
    for _ in 0..BURSTS {
        free(&engine, allocate(&engine, BURST));
    }
    let (refill, flush) = batches(&engine);
    // A cache serves half of its room itself at each turn.
    let expected = ROOM / 2..=ROOM * 3 / 4;
    assert!(expected.contains(&refill), "{refill} blocks a refill");
    assert!(expected.contains(&flush), "{flush} blocks a flush");
    engine.leave_thread();
}

/// The class flows no more once the thread that only allocated frees as well, and the other is gone.
#[test]
fn what_turns_flows_no_more() {
    let engine = engine();
    thread::scope(|scope| {
        let (sender, receiver) = mpsc::sync_channel(0);
        let engine = &engine;
        scope.spawn(move || {
            for _ in 0..10 {
                sender.send(allocate(engine, BURST)).unwrap();
            }
            drop(sender);
            let before = engine.stats().refills;
            for _ in 0..BURSTS {
                free(engine, allocate(engine, BURST));
            }
            let refills = (engine.stats().refills - before) as usize;
            assert!(BURST * BURSTS / refills <= 24, "{refills} refills");
            engine.leave_thread();
        });
        scope.spawn(move || {
            receiver.into_iter().for_each(|blocks| free(engine, blocks));
            engine.leave_thread();
        });
    });
    engine.check();
}
