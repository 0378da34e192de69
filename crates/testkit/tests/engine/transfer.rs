//! Blocks that pass from cache to cache beside the spans of their class, where others are at these.

use std::collections::HashSet;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ebbmalloc::{Engine, Os};
use ebbmalloc_testkit::{FakeOs, LinuxIn, is_possible};

const SIZE: usize = 1024;
const CPUS: usize = 4;
/// So many blocks one cache of a CPU or thread may hold.
const CACHED: usize = 256;
/// So many a thread leaves to others, or keeps in its cache; and so many another takes, fewer than are left.
const LEFT: usize = 600;
const TAKEN: usize = 300;
/// A transfer cache has room for so many bytes of blocks beyond 8 KiB of each class.
const ROOM: usize = 256 << 10;

type Shared<O> = Arc<Engine<O>>;

fn fake(mode: &'static str) -> Shared<FakeOs> {
    Arc::new(Engine::new(FakeOs::default().cpus(CPUS).mode(mode).still()))
}

/// Addresses, which may go to other threads.
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
        // SAFETY: live, and freed once.
        unsafe { engine.free(std::ptr::with_exposed_provenance_mut(block)) }
    }
}

/// Runs `work` on another thread.
fn start<O, R>(
    engine: &Shared<O>,
    work: impl FnOnce(&Engine<O>) -> R + Send + 'static,
) -> JoinHandle<R>
where
    O: Os + Send + 'static,
    R: Send + 'static,
{
    let engine = Arc::clone(engine);
    thread::spawn(move || work(&engine))
}

/// What `work` returns on a thread that never gets the lock of the class.
fn beside_others<O, R>(engine: &Shared<O>, work: impl FnOnce(&Engine<O>) -> R + Send + 'static) -> R
where
    O: Os + Send + 'static,
    R: Send + 'static,
{
    let thread = engine.while_at_spans(SIZE, || {
        let thread = start(engine, work);
        let begin = Instant::now();
        while !thread.is_finished() {
            assert!(begin.elapsed() < Duration::from_secs(60), "it waits for the class's lock");
            thread::sleep(Duration::from_millis(1));
        }
        thread
    });
    thread.join().unwrap()
}

/// Has a thread free more than its cache has room for, and leave it to others.
fn leave<O: Os + Send + 'static>(engine: &Shared<O>) -> HashSet<usize> {
    let blocks = allocate(engine, SIZE, LEFT);
    let left = blocks.iter().copied().collect();
    beside_others(engine, move |engine| free(engine, &blocks));
    engine.check();
    left
}

fn what_one_leaves_another_takes<O: Os + Send + 'static>(engine: &Shared<O>) {
    let left = leave(engine);
    let taken = beside_others(engine, |engine| allocate(engine, SIZE, TAKEN));
    let passed = taken.iter().filter(|block| left.contains(block)).count();
    assert!(passed >= TAKEN - CACHED, "{passed} of {TAKEN} were left");
    engine.check();
    free(engine, &taken);
    engine.trim();
    assert_eq!(engine.stats().cached_bytes, 0);
    engine.check();
}

#[test]
fn who_finds_others_at_the_spans_does_not_wait() {
    ["slot", "thread"].map(fake).iter().for_each(what_one_leaves_another_takes);
}

#[test]
fn nor_in_percpu_mode() {
    let engine = Arc::new(Engine::new(LinuxIn::new("percpu").cpus(CPUS)));
    if is_possible(&engine, "percpu") {
        what_one_leaves_another_takes(&engine);
    }
}

#[test]
fn what_nobody_takes_goes_back() {
    let engine = fake("slot");
    leave(&engine);
    // One round sees what is there, the next that nothing has changed.
    for _ in 0..2 {
        engine.os().sleep_ms(200);
        engine.idle();
    }
    assert_eq!(engine.stats().cached_bytes, 0);
    engine.check();
}

#[test]
fn what_is_left_is_bounded_for_all_classes_together() {
    const SIZES: [usize; 3] = [SIZE, 2 * SIZE, 4 * SIZE];
    let engine = fake("slot");
    let blocks: Vec<_> =
        SIZES.iter().flat_map(|&size| allocate(&engine, size, (4 << 20) / size)).collect();
    engine.trim();
    let thread = engine.while_at_spans(SIZES[0], || {
        engine.while_at_spans(SIZES[1], || {
            engine.while_at_spans(SIZES[2], || {
                // In turn, until it has to wait.
                let thread = start(&engine, move |engine| {
                    let third = blocks.len() / 7;
                    (0..third).for_each(|nth| {
                        free(engine, &blocks[4 * nth..4 * nth + 4]);
                        free(engine, &blocks[4 * third + 2 * nth..4 * third + 2 * nth + 2]);
                        free(engine, &blocks[6 * third + nth..6 * third + nth + 1]);
                    });
                });
                thread::sleep(Duration::from_millis(200));
                thread
            })
        })
    });
    thread.join().unwrap();
    engine.check();
    // Beside what the thread's own cache has room for.
    let most = CPUS * (ROOM + SIZES.len() * (8 << 10)) + SIZES.len() * (256 << 10);
    let cached = engine.stats().cached_bytes as usize;
    assert!(cached <= most, "{cached} bytes in caches, {most} at most");
}

#[test]
fn two_cpus_have_none() {
    let slabs = |cpus| {
        let engine = Engine::new(FakeOs::default().cpus(cpus));
        allocate(&engine, SIZE, 1);
        engine.stats().slab_bytes >> 18
    };
    assert_eq!([1, 2, 3, 4, 20].map(slabs), [1, 2, 3, 8, 36]);
}
