//! Tests transfer caches: blocks pass from cache to cache without their class's lock while other
//! threads hold it.

use std::collections::HashSet;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use ebbmalloc::internals::{Engine, Os, OsThreads};
use ebbmalloc_testkit::{FakeOs, LinuxIn, is_possible};

const SIZE: usize = 1024;
const CPUS: usize = 4;
/// The most blocks that one cache of a CPU or thread holds.
const CACHED: usize = 256;
/// The blocks that a thread frees, into its cache or a transfer cache; and the blocks that another
/// thread takes, fewer than are left.
const LEFT: usize = 600;
const TAKEN: usize = 300;
/// The capacity of a transfer cache, in bytes of blocks.
const ROOM: usize = 256 << 10;

type Shared<O> = Arc<Engine<O>>;

fn fake(mode: &'static str) -> Shared<FakeOs> {
    Arc::new(Engine::new(FakeOs::default().cpus(CPUS).mode(mode).still()))
}

/// Allocates blocks; returns their addresses, which can be sent to other threads.
fn allocate(engine: &Engine<impl Os>, size: usize, count: usize) -> Vec<usize> {
    (0..count)
        .map(|_| {
            let block = engine.alloc(size);
            assert!(!block.is_null());
            block.expose_provenance()
        })
        .collect()
}

fn free(engine: &Engine<impl Os>, blocks: &[usize]) {
    for &block in blocks {
        // SAFETY: live blocks, each freed once.
        unsafe { engine.free(std::ptr::with_exposed_provenance_mut(block)) }
    }
}

/// The result of `work` on a thread while the lock of the class is held; `None` if the thread waits
/// for the lock.
fn beside_others<O, R>(
    engine: &Shared<O>,
    work: impl FnOnce(&Engine<O>) -> R + Send + 'static,
) -> Option<R>
where
    O: Os + Send + 'static,
    R: Send + 'static,
{
    let (thread, in_time) = engine.while_at_spans(SIZE, || {
        let engine = Arc::clone(engine);
        let thread = thread::spawn(move || work(&engine));
        let begin = Instant::now();
        while !thread.is_finished() && begin.elapsed() < Duration::from_secs(5) {
            thread::sleep(Duration::from_millis(1));
        }
        let in_time = thread.is_finished();
        (thread, in_time)
    });
    let result = thread.join().unwrap();
    in_time.then_some(result)
}

/// Has a thread free more blocks than fit its cache, so that the rest goes to a transfer cache.
fn leave<O: Os + Send + 'static>(engine: &Shared<O>) -> Option<HashSet<usize>> {
    let blocks = allocate(engine, SIZE, LEFT);
    let left = blocks.iter().copied().collect();
    beside_others(engine, move |engine| free(engine, &blocks))?;
    engine.check();
    Some(left)
}

/// One thread leaves blocks and another takes them; `None` if one of them has to wait.
fn passes<O: Os + Send + 'static>(engine: &Shared<O>) -> Option<()> {
    let left = leave(engine)?;
    let taken = beside_others(engine, |engine| allocate(engine, SIZE, TAKEN))?;
    let passed = taken.iter().filter(|block| left.contains(block)).count();
    assert!(passed >= TAKEN - CACHED, "{passed} of {TAKEN} were left");
    engine.check();
    free(engine, &taken);
    engine.trim();
    assert_eq!(engine.stats().cached_bytes, 0);
    engine.check();
    Some(())
}

#[test]
fn who_finds_others_at_the_spans_does_not_wait() {
    ["slot", "thread"].map(fake).iter().for_each(|engine| passes(engine).expect("it waits"));
}

#[test]
fn nor_in_percpu_mode() {
    // CPU numbers may be high on test machines; a thread without a cache would wait.
    let engine = Arc::new(Engine::new(LinuxIn::new("percpu").cpus(256)));
    if is_possible(&engine, "percpu") {
        // A thread that migrates between CPUs leaves its blocks in their caches.
        assert!((0..5).any(|_| passes(&engine).is_some()), "it waits");
    }
}

#[test]
fn what_nobody_takes_goes_back() {
    let engine = fake("slot");
    leave(&engine).expect("it waits");
    // One round sees the blocks, the next sees that they are unchanged.
    for _ in 0..2 {
        engine.os().sleep_ms(200);
        engine.idle();
    }
    assert_eq!(engine.stats().cached_bytes, 0);
    engine.check();
}

#[test]
fn what_is_left_of_a_size_that_nobody_asks_for_goes_back_before_the_heap_grows() {
    let engine = fake("slot");
    let _live = allocate(&engine, 4096, 2048);
    // A third of the blocks keeps all of their spans in use.
    let (kept, freed): (Vec<_>, Vec<_>) =
        allocate(&engine, SIZE, 2000).into_iter().enumerate().partition(|(nth, _)| nth % 3 == 0);
    let blocks = |numbered: Vec<(usize, usize)>| -> Vec<_> {
        numbered.into_iter().map(|(_, block)| block).collect()
    };
    free(&engine, &blocks(freed));
    engine.trim();
    let kept = blocks(kept);
    beside_others(&engine, move |engine| free(engine, &kept)).expect("it waits");
    let cached = || engine.stats().cached_bytes;
    assert!(cached() > 2 * (CACHED * SIZE) as u64);
    allocate(&engine, 1 << 20, 1);
    assert_eq!(cached(), 0);
    engine.check();
}

#[test]
fn what_is_left_is_bounded_for_all_classes_together() {
    const SIZES: [usize; 3] = [SIZE, 2 * SIZE, 4 * SIZE];
    let engine = fake("slot");
    // Equal bytes of each size, in turn.
    let in_turn = |_| SIZES.into_iter().flat_map(|size| allocate(&engine, size, 4 * SIZE / size));
    let blocks: Vec<_> = (0..1024).flat_map(in_turn).collect();
    engine.trim();
    let thread = engine.while_at_spans(SIZES[0], || {
        engine.while_at_spans(SIZES[1], || {
            engine.while_at_spans(SIZES[2], || {
                let engine = Arc::clone(&engine);
                // The thread runs until it has to wait.
                let thread = thread::spawn(move || free(&engine, &blocks));
                thread::sleep(Duration::from_millis(200));
                thread
            })
        })
    });
    thread.join().unwrap();
    engine.check();
    // Transfer caches, and the capacity of the thread's own cache.
    let most = CPUS * ROOM + SIZES.len() * (256 << 10);
    let cached = engine.stats().cached_bytes as usize;
    assert!(cached <= most, "{cached} bytes in caches, {most} at most");
}

/// Blocks above 8 KiB pass through the transfer cache of their CPU. Through the spans, another CPU
/// would get them, while the caches of this one hold their lines.
#[test]
fn large_blocks_pass_beside_the_spans() {
    const ROUNDS: usize = 200;
    let engine = fake("slot");
    let calls = || engine.stats().refills + engine.stats().flushes;
    let mut before = 0;
    for round in 0..ROUNDS {
        // More than the thread's cache has capacity for.
        let blocks = allocate(&engine, 32 << 10, 40);
        free(&engine, &blocks);
        if round == ROUNDS / 2 {
            before = calls();
        }
    }
    assert_eq!(calls() - before, 0);
    engine.check();
    engine.trim();
    assert_eq!(engine.stats().cached_bytes, 0);
}

#[test]
fn one_cpu_has_none() {
    let slabs = |cpus| {
        let engine = Engine::new(FakeOs::default().cpus(cpus));
        allocate(&engine, SIZE, 1);
        engine.stats().slab_bytes >> 18
    };
    assert_eq!([1, 2, 3, 4, 20].map(slabs), [1, 4, 6, 8, 36]);
}

/// One thread allocates and another frees, by turns, 96 KiB of blocks of this size. Returns the
/// number of refills from spans and flushes to them in 200 rounds, after 1,000 in which capacity
/// grows.
fn flow(mode: &'static str, size: usize) -> u64 {
    const ROUNDS: usize = 1_200;
    let engine = Arc::new(Engine::new(FakeOs::default().cpus(2).mode(mode).still()));
    let calls = || engine.stats().refills + engine.stats().flushes;
    let mut before = 0;
    let (sender, receiver) = mpsc::sync_channel::<Vec<usize>>(0);
    let consumer = thread::spawn({
        let engine = Arc::clone(&engine);
        move || receiver.into_iter().for_each(|blocks| free(&engine, &blocks))
    });
    for round in 0..ROUNDS {
        sender.send(allocate(&engine, size, (96 << 10) / size)).unwrap();
        if round + 200 == ROUNDS {
            before = calls();
        }
    }
    drop(sender);
    consumer.join().unwrap();
    engine.check();
    let asked = calls() - before;
    engine.trim();
    assert_eq!(engine.stats().cached_bytes, 0);
    engine.check();
    asked
}

/// A thread's cache holds 32 KiB of these blocks, and another one 216 KiB.
#[test]
fn large_batches_of_a_flow_pass_beside_the_spans() {
    let calls = flow("thread", 4096);
    assert!(calls < 100, "spans were asked {calls} times");
    // Two threads may use the same slot, whose cache has a capacity of two batches.
    let calls: Vec<_> = (0..11).map(|_| flow("slot", 4096)).collect();
    assert!(calls.iter().any(|&calls| calls < 100), "spans were asked {calls:?} times");
}

/// A thread that repeatedly allocates much and frees it uses its own caches and leaves nothing in
/// transfer caches.
#[test]
fn who_takes_back_what_it_has_freed_leaves_nothing() {
    for mode in ["slot", "thread"] {
        let engine = fake(mode);
        for _ in 0..20 {
            let blocks = allocate(&engine, SIZE, 4096);
            free(&engine, &blocks);
        }
        let cached = engine.stats().cached_bytes as usize;
        assert!(cached <= CACHED * SIZE, "{mode}: {cached} bytes in caches");
    }
}
