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

/// Takes so many MiB in halves and frees four of them, half by half: how much of that was resident at most.
fn most_dirty(os: FakeOs, mib: usize) -> usize {
    let engine = Engine::new(os.cpus(1).space(160 * MIB), None);
    let blocks: Vec<_> = (0..2 * mib).map(|_| engine.alloc(MIB / 2)).collect();
    let free_and_look = |block: &*mut u8| {
        // SAFETY: each is freed once.
        unsafe { engine.free(*block) };
        engine.stats().dirty_bytes as usize
    };
    let most = blocks.iter().take(8).map(free_and_look).max().unwrap();
    engine.check();
    most
}

#[test]
fn the_nearer_the_limit_the_less_stays() {
    let of = |mib: u64| FakeOs::default().memory(mib << 20);
    // With 56 MiB in use, 7 may stay; half of that half-way between 80 and 95 %; nothing from there on.
    assert_eq!(most_dirty(FakeOs::default(), 56), 4 * MIB);
    assert_eq!(most_dirty(of(64), 40), 4 * MIB);
    let between = most_dirty(of(64), 56);
    assert!((2 * MIB..4 * MIB).contains(&between), "{between}");
    assert_eq!(most_dirty(of(62), 62), 0);
}

#[test]
fn what_there_is_is_looked_up_where_it_matters() {
    let engine = Engine::new(FakeOs::default().cpus(1).space(80 * MIB).memory(64 << 20), None);
    let mut block = engine.alloc(MIB);
    for (size, known) in [(15 * MIB, false), (17 * MIB, true)] {
        // SAFETY: a live block, and one freed at once.
        unsafe {
            block = engine.realloc(block, size, 16);
            engine.free(engine.alloc(100_000));
        }
        assert_eq!(engine.stats().memory_bytes > 0, known, "at {size} bytes");
    }
}
