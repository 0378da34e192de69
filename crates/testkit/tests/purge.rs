//! Free memory goes back to the kernel, but not for ever the same memory that is wanted again.
#![cfg(not(any(miri, loom)))]

use ebbmalloc::Engine;
use ebbmalloc_testkit::FakeOs;

const MIB: usize = 1 << 20;

/// A buffer that grows to 8 MiB by doubling, and goes.
fn grow(engine: &Engine<FakeOs>) {
    let mut block = engine.alloc(MIB / 8);
    for doubling in 1..=6 {
        // SAFETY: a live block, resized and freed once.
        block = unsafe { engine.realloc(block, (MIB / 8) << doubling, 16) };
    }
    // SAFETY: as above.
    unsafe { engine.free(block) };
}

#[test]
fn a_buffer_that_grows_again_and_again_in_place_stays() {
    // The fake clock moves a millisecond with each look at it: purges are due all the time.
    let engine = Engine::new(FakeOs::default().cpus(1), None);
    (0..2000).for_each(|_| grow(&engine));
    let purged = engine.stats().purged_bytes as usize / MIB;
    assert!((1..200).contains(&purged), "{purged} MiB purged");
}
