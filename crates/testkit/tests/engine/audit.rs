//! Tests that the check of the whole heap finds mistakes that the engine alone does not notice.

use ebbmalloc::internals::Engine;
use ebbmalloc_testkit::FakeOs;

fn engine() -> Engine<FakeOs> {
    Engine::new(FakeOs::default().cpus(1))
}

fn free(engine: &Engine<FakeOs>, block: *mut u8) {
    // SAFETY: the block is in the fake's memory and unused; a second free is the mistake that the
    // check must find.
    unsafe { engine.free(block) }
}

#[test]
#[should_panic(expected = "is in two places")]
fn a_block_twice_in_a_cache() {
    // A thread's cache, where a double free is not noticed at once.
    let engine = Engine::new(FakeOs::default().mode("thread"));
    let [one, other, _] = [(); 3].map(|()| engine.alloc(100));
    [one, other, one].into_iter().for_each(|block| free(&engine, block));
    engine.check();
}

#[test]
#[should_panic(expected = "is in two places")]
fn a_block_in_use_that_was_freed() {
    let engine = engine();
    let block = engine.alloc(100);
    free(&engine, block);
    engine.check_with(&[block]);
}

#[test]
#[should_panic(expected = "each block of the span at")]
fn a_small_block_that_was_lost() {
    let engine = engine();
    let blocks = [(); 3].map(|()| engine.alloc(100));
    engine.check_with(&blocks);
    engine.check_with(&blocks[1..]);
}

#[test]
#[should_panic(expected = "as many large blocks as are counted")]
fn a_large_block_that_was_lost() {
    let engine = engine();
    engine.alloc(100_000);
    engine.check_with(&[]);
}

#[test]
fn nothing_is_changed_by_a_look() {
    let engine = engine();
    let heap = engine.new_heap(usize::MAX).expect("room for a heap");
    let mut live = Vec::new();
    for size in [1, 100, 3000, 20_000, 60_000, 200_000] {
        for nth in 0..40 {
            let block = match nth % 3 {
                0 => engine.heap_alloc(heap, size, 1, "a test"),
                _ => engine.alloc(size),
            };
            match nth % 4 {
                0 => free(&engine, block),
                _ => live.push(block),
            }
        }
        engine.check_with(&live);
    }
    engine.trim();
    engine.check_with(&live);
    live.drain(..).for_each(|block| free(&engine, block));
    engine.check_with(&live);
}
