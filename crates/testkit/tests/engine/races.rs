//! Tests frees of one block by two threads at once: the second is a double free, also where another
//! block lies there by then.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::{ptr, thread};

use ebbmalloc::internals::Engine;
use ebbmalloc_testkit::FakeOs;

const MIB: usize = 1 << 20;

/// Frees a block on two threads at once, and on one of them then does `work`. Returns how many of
/// the frees the engine did not refuse.
fn free_on_two(engine: &Engine<FakeOs>, block: *mut u8, work: impl FnOnce()) -> usize {
    let address = block.expose_provenance();
    // Threads that a barrier wakes begin too far apart.
    let ready = AtomicUsize::new(0);
    let is_freed = || {
        ready.fetch_add(1, Ordering::Relaxed);
        while ready.load(Ordering::Relaxed) < 2 {
            thread::yield_now();
        }
        // SAFETY: none: the engine must detect the mistake.
        let free = || unsafe { engine.free(ptr::with_exposed_provenance_mut(address)) };
        match catch_unwind(AssertUnwindSafe(free)) {
            Ok(()) => true,
            Err(panic) => {
                let message = panic.downcast::<String>().expect("what the engine says");
                assert!(message.starts_with("ebbmalloc: "), "{message}");
                false
            }
        }
    };
    thread::scope(|scope| {
        let other = scope.spawn(is_freed);
        let here = is_freed();
        work();
        here as usize + other.join().unwrap() as usize
    })
}

#[test]
fn of_two_threads_one_frees_a_large_block() {
    for turn in 0..60 {
        let os = FakeOs::default().cpus(2).mode("slot").still().space(256 * MIB);
        let engine = Engine::new(os);
        // The last one is too long for a near cache, which these blocks make large.
        let (held, size) = (engine.alloc(64 * MIB), [100_000, 700_000, 3 * MIB][turn % 3]);
        assert_eq!(free_on_two(&engine, engine.alloc(size), || {}), 1);
        engine.check_with(&[held]);
    }
}

#[test]
fn of_two_threads_one_frees_a_large_block_of_a_heap() {
    for turn in 0..100 {
        let engine = Engine::new(FakeOs::default().cpus(2).still());
        let heap = engine.new_heap(usize::MAX).expect("room for a heap");
        let block = engine.heap_alloc(heap, [100_000, 3 * MIB][turn % 2], 1, "a test");
        assert_eq!(free_on_two(&engine, block, || {}), 1);
        engine.check();
    }
}

/// A block of another length may lie there by then. It may be freed, but as what it is.
#[test]
fn another_block_in_the_place_stays_whole() {
    let os = FakeOs::default().cpus(2).mode("slot").still().space(256 * MIB);
    let engine = Engine::new(os);
    let held = engine.alloc(64 * MIB);
    for turn in 0..150 {
        let (size, next) = [(100_000, 70_000), (700_000, 600_000), (3 * MIB, 2 * MIB)][turn % 3];
        let mut new = ptr::null_mut();
        if free_on_two(&engine, engine.alloc(size), || new = engine.alloc(next)) < 2 {
            // SAFETY: a new block, which the other thread did not free.
            unsafe { engine.free(new) };
        }
        engine.check_with(&[held]);
    }
}

/// Another heap's block may lie there by then.
#[test]
fn a_block_that_was_freed_meanwhile_is_no_block_of_its_heap() {
    const SIZE: usize = 100_000;
    let engine = Engine::new(FakeOs::default().cpus(2).still().space(64 * MIB));
    let heaps = [(); 2].map(|()| engine.new_heap(usize::MAX).expect("room for a heap"));
    let alloc = |heap: usize, size| engine.heap_alloc(heaps[heap], size, 1, "a test");
    // Its span stays, so that no other lies where the large blocks do.
    assert!(!alloc(0, 1000).is_null());
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        // Others wait for the lock of the first heap.
        for _ in 0..3 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    // SAFETY: a new block, freed once.
                    unsafe { engine.free(alloc(0, 1000)) }
                }
            });
        }
        let turns = || {
            for _ in 0..1000 {
                let mut new = ptr::null_mut();
                if free_on_two(&engine, alloc(0, SIZE), || new = alloc(1, SIZE)) < 2 {
                    // SAFETY: a new block, which the other thread did not free.
                    unsafe { engine.free(new) };
                }
            }
        };
        let outcome = catch_unwind(AssertUnwindSafe(turns));
        done.store(true, Ordering::Relaxed);
        outcome.unwrap();
    });
    for heap in heaps {
        // SAFETY: nothing uses the heap's blocks any more.
        unsafe { engine.delete_heap(heap, "a test") }
    }
    engine.check();
    assert_eq!((engine.stats().live_bytes, engine.stats().heap_bytes), (0, 0));
}
