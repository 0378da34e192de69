//! Tests the watch on free memory: these tests do to free memory what the engine must not, and the
//! watch must notice.

use std::slice;

use ebbmalloc::internals::{Engine, OsThreads};
use ebbmalloc_testkit::{FakeOs, Op, Worker};

/// Applies `what` to the memory of a freed block, or of a purged run, before it is handed out
/// again.
fn meddle(size: usize, purge: bool, what: impl Fn(&Engine<FakeOs>, *mut u8, usize)) {
    let engine = Engine::new(FakeOs::default().watched());
    let mut worker = Worker::new(&engine, 0);
    worker.apply(Op::Alloc { size, align: 1 });
    let [block] = worker.shadow().blocks() else { panic!() };
    let (start, usable) = (block.start, block.usable);
    worker.free_all();
    if purge {
        // Not by `trim`, which unmaps what it purges.
        for _ in 0..1000 {
            engine.idle();
            engine.os().sleep_ms(1000);
        }
        assert_eq!(engine.os().resident(engine.stats().committed_bytes as usize), 0);
    }
    what(&engine, start, usable);
    worker.apply(Op::Alloc { size, align: 1 });
    assert_eq!(worker.shadow().blocks()[0].start, start);
    worker.free_all();
    worker.apply(Op::AllocZeroed { size });
}

const SIZES: [usize; 5] = [16, 500, 8192, 60_000, 1 << 20];

fn write(_: &Engine<FakeOs>, start: *mut u8, usable: usize) {
    // SAFETY: memory of the fake, which exists.
    unsafe { start.add(usable / 2).write(0xa7) };
}

#[test]
fn what_is_left_alone_is_no_mistake() {
    for size in SIZES {
        meddle(size, false, |_, _, _| {});
        meddle(size, true, |_, _, _| {});
    }
}

#[test]
#[should_panic = "written while it was free"]
fn a_write_to_a_freed_block_is_seen() {
    meddle(100, false, write);
}

#[test]
fn a_write_to_free_memory_of_any_size_is_seen() {
    for (size, purge) in SIZES.into_iter().flat_map(|size| [(size, false), (size, true)]) {
        let run = std::panic::catch_unwind(|| meddle(size, purge, write));
        assert!(run.is_err(), "{size} bytes, purged: {purge}");
    }
}

/// Purged memory reads as zero for the program, and as another value for the engine.
#[test]
fn purged_memory_is_not_zero_for_the_engine() {
    meddle(1 << 20, true, |_, start, usable| {
        // SAFETY: memory of the fake, which exists.
        assert!(unsafe { slice::from_raw_parts(start, usable) }.iter().all(|&byte| byte != 0));
    });
}

/// A refused purge may leave any contents.
#[test]
fn a_refused_purge_is_no_mistake() {
    let engine = Engine::new(FakeOs::default().watched());
    let mut worker = Worker::new(&engine, 0);
    worker.apply(Op::Alloc { size: 1 << 20, align: 1 });
    worker.free_all();
    engine.os().faults().refuse_next(0..1);
    engine.trim();
    assert_eq!(engine.os().refusals(), 1);
    worker.apply(Op::AllocZeroed { size: 1 << 20 });
    worker.free_all();
    engine.check();
}
