//! Programs that Miri must stop: each reads memory that the engine must not read, and `cargo xtask
//! test` checks that none runs to its end.
#![cfg(miri)]

use std::hint::black_box;

use ebbmalloc::internals::Engine;
use ebbmalloc_testkit::{FakeOs, Op, Worker};

/// Frees a block of this size and reads it, after a trim or before.
fn look_again(size: usize, trim: bool) {
    let engine = Engine::new(FakeOs::default().space(12 << 20).watched());
    let mut worker = Worker::new(&engine, 0);
    worker.apply(Op::Alloc { size, align: 1 });
    let block = worker.shadow().blocks()[0].start;
    worker.free_all();
    if trim {
        engine.trim();
        assert!(engine.os().purges() > 0);
    }
    // SAFETY: memory of the fake, which exists; Miri must object, as the block is freed.
    black_box(unsafe { block.read() });
}

#[test]
fn a_freed_block_is_read() {
    look_again(100, false);
}

#[test]
fn purged_memory_is_read() {
    look_again(100_000, true);
}
