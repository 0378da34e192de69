//! Tests purging: free memory goes back to the kernel, but memory that refaults soon is not purged
//! again and again.

use std::sync::Arc;

use ebbmalloc::internals::{Engine, OsThreads};
use ebbmalloc_testkit::FakeOs;

const MIB: usize = 1 << 20;

/// Allocates a block of these MiB, and writes to each page.
fn used(engine: &Engine<FakeOs>, mib: usize) -> *mut u8 {
    let block = engine.alloc(mib * MIB);
    assert!(!block.is_null());
    // SAFETY: each lies in the block.
    (0..mib * MIB).step_by(4096).for_each(|at| unsafe { block.add(at).write(1) });
    block
}

/// Grows a buffer to 8 MiB by doubling and frees it. Returns its addresses on the way.
fn grow(engine: &Engine<FakeOs>) -> [*mut u8; 6] {
    grow_from(engine, MIB / 8)
}

/// Grows a buffer from `bytes` bytes by doubling it six times, and frees it. Returns its addresses.
fn grow_from(engine: &Engine<FakeOs>, bytes: usize) -> [*mut u8; 6] {
    let mut block = engine.alloc(bytes);
    let places = [1, 2, 3, 4, 5, 6].map(|doubling| {
        // SAFETY: a live block, resized and freed once.
        block = unsafe { engine.realloc(block, bytes << doubling, 16) };
        block
    });
    // SAFETY: a live block, freed once.
    unsafe { engine.free(block) };
    places
}

#[test]
fn a_buffer_that_grows_again_and_again_in_place_stays() {
    // A purge of 64 MiB is due every 15 ms: 16 GiB in these four seconds, if nothing were learned.
    let engine = Engine::new(FakeOs::default().cpus(1).still().space(192 * MIB));
    for _ in 0..2000 {
        grow_from(&engine, MIB);
        engine.os().sleep_ms(2);
    }
    let purged = engine.stats().purged_bytes as usize / MIB;
    assert!((1..300).contains(&purged), "{purged} MiB purged");
}

#[test]
fn a_little_stays_for_a_while() {
    let engine = Engine::new(FakeOs::default().cpus(1).still());
    let purged = || engine.stats().purged_bytes as usize;
    // Eight buffers in a tenth of a second: no page is purged and touched again in between.
    for _ in 0..8 {
        grow(&engine);
        engine.os().sleep_ms(13);
    }
    assert_eq!(purged(), 0);
    engine.os().sleep_ms(26);
    grow(&engine);
    assert!((4 * MIB..8 * MIB).contains(&purged()), "{} bytes purged", purged());
    // A larger surplus does not stay as long as a small one.
    let engine = Engine::new(FakeOs::default().cpus(1).still());
    let blocks: Vec<_> = (0..16).map(|_| engine.alloc(MIB)).collect();
    for block in blocks {
        // SAFETY: freed once.
        unsafe { engine.free(block) }
        engine.os().sleep_ms(10);
    }
    assert!(engine.stats().purged_bytes as usize > 8 * MIB, "{:?}", engine.stats());
}

/// Allocates 80 MiB in two blocks and frees them, once every `pause` milliseconds. Returns how many
/// MiB were purged each time, and how many may stay in the end because of refaults.
fn purged_in_turn(pause: u32) -> (Vec<usize>, usize) {
    let engine = Engine::new(FakeOs::default().cpus(1).still().space(192 * MIB));
    let mut before = 0;
    let mut turn = |_| {
        let blocks = [(); 2].map(|()| used(&engine, 40));
        // SAFETY: each is freed once.
        blocks.into_iter().for_each(|block| unsafe { engine.free(block) });
        engine.os().sleep_ms(pause);
        let purged = engine.stats().purged_bytes as usize / MIB;
        purged - std::mem::replace(&mut before, purged)
    };
    let purged = (0..60).map(&mut turn).collect();
    engine.check();
    (purged, engine.stats().wanted_bytes as usize / MIB)
}

#[test]
fn what_is_soon_wanted_back_stays_in_the_end() {
    let (purged, wanted) = purged_in_turn(40);
    // Still purged now and then: the engine cannot know that the memory is touched again. Page
    // faults may take 1/32 of these 2.4 s, and 80 MiB take 51 ms.
    assert!(purged[0] > 30 && purged.iter().sum::<usize>() < 200, "{purged:?}");
    assert!((80..84).contains(&wanted), "{wanted} MiB stay");
}

#[test]
fn what_is_wanted_back_after_long_goes_each_time() {
    let (purged, wanted) = purged_in_turn(20_000);
    assert!(purged[1..].iter().all(|&mib| mib > 30), "{purged:?}");
    assert_eq!(wanted, 0);
}

/// The MiB that a round purges, and the MiB of surplus before it, after `turns` turns of 80 MiB,
/// allocated and freed.
fn given_by_a_round(turns: usize) -> (usize, usize) {
    let engine = Engine::new(FakeOs::default().cpus(1).still().space(192 * MIB));
    for _ in 0..turns {
        let blocks = [(); 2].map(|()| used(&engine, 40));
        // SAFETY: each is freed once.
        blocks.into_iter().for_each(|block| unsafe { engine.free(block) });
        engine.os().sleep_ms(40);
    }
    let dirty = || engine.stats().dirty_bytes as usize / MIB;
    // The first round only learns how much is surplus.
    engine.idle();
    engine.os().sleep_ms(200);
    let before = dirty();
    engine.idle();
    (before - dirty(), before)
}

#[test]
fn rounds_give_less_of_what_was_soon_wanted_back() {
    assert_eq!(given_by_a_round(1), (14, 28));
    let (given, before) = given_by_a_round(20);
    assert!(before > 28 && given > 0 && given <= before / 4, "{given} of {before}");
}

/// Allocates 64 MiB in blocks of 2,000 bytes, and frees all but each `keep`-th in another order.
/// Returns those kept.
fn phase(engine: &Engine<FakeOs>, keep: usize) -> Vec<*mut u8> {
    const BLOCKS: usize = 64 * MIB / 2000;
    let blocks: Vec<_> = (0..BLOCKS).map(|_| engine.alloc(2000)).collect();
    // A prime that does not divide the number of blocks.
    (0..BLOCKS).map(|nth| nth * 7919 % BLOCKS).filter(|nth| nth % keep != 0).for_each(|nth| {
        // SAFETY: each is freed once.
        unsafe { engine.free(blocks[nth]) }
    });
    blocks.into_iter().step_by(keep).collect()
}

/// MiB purged, in spans or not.
fn gone(engine: &Engine<FakeOs>) -> usize {
    let stats = engine.stats();
    (stats.purged_bytes + stats.dug_bytes) as usize / MIB
}

#[test]
fn small_blocks_of_a_thread_alone_stay_from_phase_to_phase() {
    let engine = Engine::new(FakeOs::default().cpus(1).still().space(256 * MIB));
    for _ in 0..30 {
        phase(&engine, usize::MAX);
        engine.os().sleep_ms(50);
    }
    // Once, and then as page faults may take 1/32 of the time: 47 of 1,500 ms, for 64 MiB 41.
    assert!((16..200).contains(&gone(&engine)), "{} MiB", gone(&engine));
    // Who says that it idles gets back what it kept.
    while engine.idle() {
        engine.os().sleep_ms(200);
    }
    let stats = engine.stats();
    assert!(stats.dirty_bytes as usize <= 2 * MIB, "{stats:?}");
    engine.check();
}

#[test]
fn pages_between_small_blocks_go_after_each_burst_of_frees() {
    let engine = Engine::new(FakeOs::default().cpus(1).still().space(512 * MIB));
    let mut kept = Vec::new();
    for _ in 0..4 {
        let before = gone(&engine);
        kept.extend(phase(&engine, 100));
        assert!(gone(&engine) - before > 24, "{} MiB", gone(&engine) - before);
        engine.os().sleep_ms(60_000);
    }
    // SAFETY: each is freed once.
    kept.into_iter().for_each(|block| unsafe { engine.free(block) });
    engine.check();
}

/// Also where the burst takes no time, so that no purge by interval is due.
#[test]
fn free_runs_go_after_a_burst_of_frees_too() {
    const BLOCKS: usize = 192 * MIB / 2000;
    let engine = Engine::new(FakeOs::default().cpus(1).still().space(512 * MIB));
    let blocks: Vec<_> = (0..BLOCKS).map(|_| engine.alloc(2000)).collect();
    blocks.iter().enumerate().filter(|(nth, _)| nth % 100 != 0).for_each(|(_, &block)| {
        // SAFETY: each is freed once.
        unsafe { engine.free(block) }
    });
    let stats = engine.stats();
    // As much again as may be freed before the next look.
    assert!(stats.dirty_bytes as usize <= (8 + 32) * MIB, "{stats:?}");
    engine.check();
}

/// 28 MiB of the free memory stay resident; a longer block begins with these and continues in what
/// follows.
#[test]
fn a_long_block_begins_with_what_is_resident() {
    let engine = Engine::new(FakeOs::default().cpus(1).still().space(320 * MIB));
    let free = |block| {
        // SAFETY: each is freed once.
        unsafe { engine.free(block) }
    };
    let first = used(&engine, 80);
    // So some memory may refault.
    engine.os().sleep_ms(1000);
    free(first);
    assert_eq!(engine.stats().dirty_bytes as usize, 28 * MIB);
    let block = used(&engine, 30);
    assert_eq!((block, engine.stats().dirty_bytes), (first, 0));
    free(block);
    // The same holds at the end of all addresses ever used.
    let block = used(&engine, 56);
    assert_eq!((block, engine.stats().dirty_bytes), (first, 0));
    engine.check();
    free(block);
    // A block does not begin there if most of it would not be resident: it may be sparse, and be
    // zeros.
    assert_eq!(engine.stats().dirty_bytes as usize, 28 * MIB);
    assert_ne!(engine.alloc_zeroed(64 * MIB), first);
    assert_eq!(engine.stats().dirty_bytes as usize, 28 * MIB);
    engine.check();
}

#[test]
fn a_long_block_keeps_to_the_limit() {
    let os = FakeOs::default().cpus(1).still().space(192 * MIB).environment("EBB_LIMIT", "64MiB");
    let engine = Engine::new(os);
    let [_in_use, one, _between, longest] = [30, 12, 1, 14].map(|mib| engine.alloc(mib * MIB));
    // SAFETY: each is freed once.
    [one, longest].into_iter().for_each(|block| unsafe { engine.free(block) });
    assert_eq!(engine.stats().dirty_bytes as usize, 26 * MIB);
    assert!(!engine.alloc(26 * MIB).is_null());
    let stats = engine.stats();
    assert!((stats.large_bytes + stats.dirty_bytes) as usize <= 64 * MIB, "{stats:?}");
    engine.check();
}

/// The freed memory is part resident and part purged, so it is two free runs.
#[test]
fn a_buffer_grows_in_place_where_the_last_one_was_purged_in_part() {
    let engine = Engine::new(FakeOs::default().cpus(1).space(64 * MIB));
    grow(&engine);
    engine.os().sleep_ms(200);
    let first = grow(&engine);
    let purged = || engine.stats().purged_bytes as usize;
    assert!((4 * MIB..8 * MIB).contains(&purged()), "{} bytes purged", purged());
    assert_eq!(grow(&engine), first);
    engine.check();
    // It also grows beyond all addresses ever used, past resident and purged memory.
    let block = engine.alloc(MIB / 8);
    // SAFETY: a live block.
    assert_eq!(unsafe { engine.realloc(block, 12 * MIB, 16) }, first[0]);
    engine.check();
}

/// Advances the fake clock until there is nothing more to give back.
fn rest(engine: &Engine<FakeOs>) {
    for _ in 0..100 {
        if !engine.idle() {
            return;
        }
        engine.os().sleep_ms(200);
    }
    panic!("there is always more to give back");
}

/// Fills blocks of 512 bytes, frees all but every `step`-th, and returns those.
fn survivors(engine: &Engine<FakeOs>, step: usize) -> Vec<*mut u8> {
    let blocks: Vec<_> = (0..8 * MIB / 512).map(|_| engine.alloc(512)).collect();
    // SAFETY: live blocks.
    blocks.iter().for_each(|block| unsafe { block.write_bytes(7, 512) });
    let (kept, freed): (Vec<_>, Vec<_>) =
        blocks.iter().enumerate().partition(|(i, _)| i % step == 0);
    // SAFETY: freed once.
    freed.into_iter().for_each(|(_, &block)| unsafe { engine.free(block) });
    kept.into_iter().map(|(_, &block)| block).collect()
}

#[test]
fn pages_between_survivors_go_back() {
    for page in [4096, 16384] {
        let engine = Engine::new(FakeOs::default().cpus(1).page(page));
        let kept = survivors(&engine, 100);
        let resident = || engine.os().resident(engine.stats().committed_bytes as usize);
        assert!(resident() >= 8 * MIB);
        rest(&engine);
        // One page for each, and a few for the blocks in the cache.
        let most = kept.len() * page + MIB / 4;
        assert!(resident() <= most, "{} KiB in pages of {page}", resident() / 1024);
        engine.check();
        for &block in &kept {
            // SAFETY: live blocks.
            assert!(
                unsafe { std::slice::from_raw_parts(block, 512) }.iter().all(|&byte| byte == 7)
            );
        }
        // The engine uses purged pages again, zero or not.
        let kept_again = survivors(&engine, 50);
        assert!(kept_again.len() > kept.len());
        engine.check();
    }
}

#[test]
fn free_memory_goes_back_by_halves_while_nothing_happens() {
    let engine = Engine::new(FakeOs::default().cpus(1));
    let blocks: Vec<_> = (0..12).map(|_| engine.alloc(MIB / 4)).collect();
    // SAFETY: freed once.
    blocks.into_iter().for_each(|block| unsafe { engine.free(block) });
    let mut dirty = vec![engine.stats().dirty_bytes];
    while *dirty.last().unwrap() > 0 {
        assert!(engine.idle(), "there is more: {dirty:?}");
        engine.os().sleep_ms(200);
        dirty.push(engine.stats().dirty_bytes);
        assert!(dirty.len() < 20, "{dirty:?}");
    }
    // The first round only learns how much is surplus.
    assert_eq!(dirty[0], 3 * MIB as u64);
    assert!(dirty.len() > 3, "{dirty:?}");
    rest(&engine);
}

#[test]
fn idling_does_nothing_before_its_time() {
    let engine = Engine::new(FakeOs::default().cpus(1));
    let kept = survivors(&engine, 100);
    engine.idle();
    let before = engine.os().purges();
    // Each reading of the clock advances it by a millisecond.
    (0..50).for_each(|_| assert!(engine.idle()));
    assert_eq!(engine.os().purges(), before);
    assert!(!kept.is_empty());
}

/// Allocates `mib` MiB in halves and frees four of them, half by half. Returns the maximum of dirty
/// memory.
fn most_dirty(os: FakeOs, mib: usize) -> usize {
    let engine = Engine::new(os.cpus(1).space(160 * MIB).environment("EBB_HUGE", "never"));
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
    // With 56 MiB in use, 7 may stay dirty; near the limit, a quarter of what is left up to there.
    assert_eq!(most_dirty(FakeOs::default(), 56), 4 * MIB);
    assert_eq!(most_dirty(of(64), 40), 4 * MIB);
    let between = most_dirty(of(64), 56);
    assert!((MIB..4 * MIB).contains(&between), "{between}");
    assert!(most_dirty(of(62), 62) <= MIB);
}

/// Free memory lies in runs too short for the requests, and nothing is freed meanwhile.
#[test]
fn growth_near_the_limit_takes_from_what_is_free() {
    for grow_in_place in [false, true] {
        let os = FakeOs::default().cpus(1).space(160 * MIB).memory(64 << 20);
        let engine = Engine::new(os);
        let pieces: Vec<_> = (0..360).map(|_| engine.alloc(128 << 10)).collect();
        let mut last = engine.alloc(MIB);
        // SAFETY: each is freed once.
        pieces.iter().step_by(2).for_each(|&piece| unsafe { engine.free(piece) });
        assert!(engine.stats().dirty_bytes > MIB as u64);
        for step in 2..40 {
            last = match grow_in_place {
                // SAFETY: a live block of this test.
                true => unsafe { engine.realloc(last, step * MIB, 16) },
                false => engine.alloc(MIB),
            };
            assert!(!last.is_null());
        }
        let stats = engine.stats();
        let (used, dirty) = (stats.large_bytes, stats.dirty_bytes);
        assert!(used > 61 << 20 && used < 64 << 20, "{used}");
        assert!(dirty <= (64 << 20) / 4 - used / 4, "{dirty}, grown in place: {grow_in_place}");
    }
}

/// The engine refuses a size larger than all memory without making space for it.
#[test]
fn impossible_sizes_cost_nothing() {
    let engine = Engine::new(FakeOs::default().cpus(1).space(80 * MIB));
    let kept = [engine.alloc(MIB), engine.alloc(8 * MIB)];
    // SAFETY: freed once.
    unsafe { engine.free(engine.alloc(100)) };
    // SAFETY: a live block, freed once.
    unsafe { engine.free(kept[0]) };
    let before = engine.stats();
    assert!(before.cached_bytes > 0 && before.dirty_bytes > 0);
    for size in [100 * MIB, 1 << 50, isize::MAX as usize, usize::MAX] {
        assert!(engine.alloc(size).is_null());
    }
    let after = engine.stats();
    assert_eq!((after.cached_bytes, after.dirty_bytes), (before.cached_bytes, before.dirty_bytes));
    // For a size that may fit, the engine tries everything.
    assert!(engine.alloc(55 * MIB).is_null());
    let after = engine.stats();
    assert_eq!((after.cached_bytes, after.dirty_bytes), (0, 0));
}

/// Where a kernel refuses to purge locked memory, other free memory is purged.
#[test]
fn locked_memory_keeps_no_other_memory() {
    let engine = Engine::new(FakeOs::default().cpus(1));
    let blocks = [8, 1, 4, 1].map(|mib| used(&engine, mib));
    let locked = blocks[0].addr();
    engine.os().lock_memory(locked..locked + 4096);
    for block in [blocks[0], blocks[2]] {
        // SAFETY: each is freed once.
        unsafe { engine.free(block) };
    }
    engine.trim();
    assert_eq!(engine.stats().dirty_bytes, 8 << 20);
    // What was locked is used again.
    let again = used(&engine, 8);
    assert_eq!(again, blocks[0]);
    engine.check_with(&[again, blocks[1], blocks[3]]);
}

/// An engine with a filled block of 70,000 bytes, in two units that were used before.
fn used_before() -> (Engine<FakeOs>, *mut u8) {
    let engine = Engine::new(FakeOs::default().cpus(1).still());
    let blocks = [(); 2].map(|()| engine.alloc(128 << 10));
    // SAFETY: each is freed once.
    unsafe { engine.free(blocks[0]) };
    let block = engine.alloc(70_000);
    assert_eq!(block, blocks[0]);
    // SAFETY: the usable size of the block may be written.
    unsafe { block.write_bytes(7, engine.usable_size(block)) };
    (engine, block)
}

/// Whether all usable bytes of a block are as [`used_before`] filled them.
fn is_filled(engine: &Engine<FakeOs>, block: *mut u8) -> bool {
    // SAFETY: a live block of this usable size.
    let bytes = unsafe { std::slice::from_raw_parts(block, engine.usable_size(block)) };
    bytes.iter().all(|&byte| byte == 7)
}

/// The tail is purged once for each size that the block gets.
#[test]
fn what_is_behind_a_large_block_goes() {
    let (engine, block) = used_before();
    let dug = || engine.stats().dug_bytes as usize;
    assert_eq!((engine.usable_size(block), dug()), (72 << 10, 0));
    for _ in 0..2 {
        engine.trim();
        assert_eq!(dug(), (128 - 72) << 10);
    }
    assert!(is_filled(&engine, block));
    // SAFETY: a live block, behind whose end the test uses nothing.
    assert!(unsafe { engine.resize(block, 100_000, 1) });
    // SAFETY: the usable size of the block may be written.
    unsafe { block.write_bytes(7, engine.usable_size(block)) };
    // What lies behind its new end is gone already.
    engine.trim();
    assert_eq!(dug(), (128 - 72) << 10);
    // SAFETY: as before.
    assert!(unsafe { engine.resize(block, 70_000, 1) });
    for _ in 0..2 {
        engine.trim();
        assert_eq!(dug(), 2 * (128 - 72) << 10);
    }
    assert!(is_filled(&engine, block));
    engine.check();
}

/// The block may be freed or grow at any moment: only a tail that stays for a while is worth a
/// system call and page faults.
#[test]
fn what_is_behind_a_large_block_goes_in_the_second_look() {
    let (engine, block) = used_before();
    let looks = (1..).take_while(|_| {
        engine.os().sleep_ms(1000);
        engine.idle();
        engine.stats().dug_bytes == 0
    });
    assert!((1..20).contains(&looks.count()));
    assert!(is_filled(&engine, block));
}

/// The fake panics if the engine purges what has moved away.
#[test]
fn what_is_behind_a_block_that_moves_stays() {
    let engine = Arc::new(Engine::new(FakeOs::default().cpus(1)));
    // SAFETY: freed once.
    unsafe { engine.free(used(&engine, 1)) };
    let [block, _] = [MIB - 20_000, 128 << 10].map(|size| engine.alloc(size));
    let other = Arc::clone(&engine);
    engine.os().in_next_move(move || _ = other.trim());
    // SAFETY: a live block.
    unsafe { engine.realloc(block, 2 * MIB, 16) };
    assert_eq!(engine.os().moves(), 1);
    engine.check();
}

/// The block is copied then, to another place.
#[test]
fn a_move_whose_target_the_kernel_took_away_does_no_harm() {
    let engine = Engine::new(FakeOs::default().cpus(1));
    let (block, behind) = (used(&engine, 1), used(&engine, 1));
    // SAFETY: freed once.
    unsafe { engine.free(used(&engine, 2)) };
    engine.trim();
    engine.os().lose_next_target();
    // SAFETY: a live block.
    let grown = unsafe { engine.realloc(block, 2 * MIB, 16) };
    assert!(!grown.is_null() && grown != block && engine.os().moves() == 0);
    // SAFETY: each lies in the block.
    assert!((0..MIB).step_by(4096).all(|at| unsafe { grown.add(at).read() } == 1));
    let others = [2, 2].map(|mib| used(&engine, mib));
    engine.check_with(&[grown, behind, others[0], others[1]]);
    // The fake panics if the engine purges what is not mapped.
    for block in [grown, behind, others[0], others[1]] {
        // SAFETY: each is freed once.
        unsafe { engine.free(block) };
    }
    engine.trim();
    engine.check();
}

/// A block that lies in two mappings: it moved, and then grew in place. With the blocks behind it.
fn block_in_two_mappings() -> (Engine<FakeOs>, *mut u8, [*mut u8; 2]) {
    let engine = Engine::new(FakeOs::default().cpus(1).space(64 * MIB));
    let (block, behind) = (used(&engine, 1), used(&engine, 1));
    let (run, last) = (used(&engine, 4), used(&engine, 1));
    // SAFETY: freed once.
    unsafe { engine.free(run) };
    engine.trim();
    // SAFETY: a live block.
    let moved = unsafe { engine.realloc(block, 2 * MIB, 16) };
    // SAFETY: the same.
    assert!(moved == run && unsafe { engine.realloc(moved, 4 * MIB, 16) } == run);
    assert_eq!(engine.os().moves(), 1);
    // SAFETY: the block has 4 MiB.
    unsafe { run.write_bytes(1, 4 * MIB) };
    (engine, run, [behind, last])
}

/// Resizes this block, whose bytes are all 1.
fn resized(engine: &Engine<FakeOs>, block: *mut u8, mib: usize) -> *mut u8 {
    // SAFETY: a live block.
    let block = unsafe { engine.realloc(block, mib * MIB, 16) };
    assert!(!block.is_null());
    // SAFETY: the first 4 MiB lie in the block.
    assert!((0..4 * MIB).all(|at| unsafe { block.add(at).read() } == 1));
    block
}

/// Resizes this block once more, and frees all three.
fn resize_and_free(engine: &Engine<FakeOs>, block: *mut u8, others: [*mut u8; 2]) {
    engine.check_with(&[block, others[0], others[1]]);
    let blocks = [resized(engine, block, 16), others[0], others[1]];
    engine.check_with(&blocks);
    for block in blocks {
        // SAFETY: each is freed once.
        unsafe { engine.free(block) };
    }
    engine.trim();
    engine.check_with(&[]);
}

/// The kernel refuses to move the second mapping, whose pages would go to a longer range. It would
/// be too late if those of the first had moved before.
#[test]
fn a_block_of_two_mappings_whose_target_the_kernel_took_away_is_as_it_was() {
    let (engine, block, others) = block_in_two_mappings();
    engine.os().lose_next_target();
    let grown = resized(&engine, block, 8);
    assert!(grown != block && engine.os().moves() == 1, "copied");
    resize_and_free(&engine, grown, others);
}

#[test]
fn a_block_of_which_the_kernel_moved_a_part_is_copied_from_there_on() {
    for part in [4096, 64 << 10, MIB, 2 * MIB - 4096] {
        let (engine, block, others) = block_in_two_mappings();
        engine.os().move_partly(part);
        let grown = resized(&engine, block, 8);
        assert!(grown != block && engine.os().moves() == 3, "{part} bytes of the first mapping");
        resize_and_free(&engine, grown, others);
    }
}

#[test]
fn behind_a_large_block_that_was_never_used_there_is_nothing() {
    let engine = Engine::new(FakeOs::default().cpus(1).still());
    let block = engine.alloc(70_000);
    engine.trim();
    assert_eq!((engine.stats().dug_bytes, engine.os().purges()), (0, 0));
    engine.check_with(&[block]);
}

#[test]
fn zeros_where_nothing_was_used_are_not_written() {
    let engine = Engine::new(FakeOs::default().cpus(1).still().space(192 * MIB));
    // The engine takes it to be resident.
    // SAFETY: freed once.
    unsafe { engine.free(engine.alloc(40 * MIB)) };
    let purged = |engine: &Engine<FakeOs>| engine.stats().purged_bytes as usize;
    let before = purged(&engine);
    let block = engine.alloc_zeroed(40 * MIB);
    assert_eq!(purged(&engine) - before, 40 * MIB);
    // SAFETY: a live block of that size, freed once.
    unsafe {
        block.write_bytes(1, 40 * MIB);
        engine.free(block);
    }
    // The engine writes zeros to used memory and does not purge it: it is resident already.
    let before = purged(&engine);
    let block = engine.alloc_zeroed(40 * MIB);
    assert_eq!(purged(&engine), before);
    // SAFETY: a live block, freed once.
    unsafe { engine.free(block) }
}

/// What is no whole page of the purged part holds data, or all of it if the kernel refuses.
#[test]
fn a_block_that_is_purged_reads_as_zero_up_to_its_end() {
    for (size, is_locked) in [(40 * MIB, false), (40 * MIB + 100, false), (40 * MIB + 100, true)] {
        let engine = Engine::new(FakeOs::default().cpus(1).still().space(256 * MIB));
        // As many bytes may stay free.
        let held = engine.alloc(64 * MIB);
        let block = engine.alloc(size);
        if is_locked {
            engine.os().lock_memory(block.addr()..block.addr() + 4096);
        }
        // SAFETY: a live block of that size, freed once.
        unsafe {
            [0, 5 * MIB, size - 1].into_iter().for_each(|at| block.add(at).write(7));
            engine.free(block);
        }
        let before = gone(&engine);
        // With an alignment, it clears no more than this size.
        let again = engine.alloc_aligned_zeroed(size, 4096);
        assert_eq!((again, gone(&engine) - before), (block, if is_locked { 0 } else { 40 }));
        // SAFETY: a live block of that size.
        let bytes = unsafe { std::slice::from_raw_parts(again, size) };
        assert!(bytes.iter().all(|&byte| byte == 0), "{size} {is_locked}");
        engine.check_with(&[held, again]);
    }
}

/// Else a purge would take the long run, which is about to be used again, and the gaps would stay.
#[test]
fn gaps_that_stay_unused_go_before_what_was_just_freed() {
    let engine = Engine::new(FakeOs::default().cpus(1).still().space(192 * MIB));
    // Gaps of 1 MiB, each between blocks that stay.
    let blocks: Vec<_> = (0..56).map(|_| used(&engine, 1)).collect();
    let free = |blocks: &[*mut u8]| {
        // SAFETY: live blocks, each freed once.
        blocks.iter().for_each(|&block| unsafe { engine.free(block) })
    };
    let gaps: Vec<_> = blocks.iter().copied().step_by(2).collect();
    free(&gaps);
    let turn = || {
        let before = engine.stats().purged_bytes;
        free(&[(); 7].map(|()| used(&engine, 4)));
        (engine.stats().purged_bytes - before) as usize / MIB
    };
    let first: usize = (0..6).map(|_| turn()).sum();
    assert!(first >= 24, "{first} MiB purged at first");
    assert_eq!((0..6).map(|_| turn()).sum::<usize>(), 0);
    engine.check();
}

#[test]
fn what_was_never_used_is_not_needed_again() {
    let engine = Engine::new(FakeOs::default().cpus(1).still().space(512 * MIB));
    // SAFETY: a live block, freed once.
    unsafe { engine.free(used(&engine, 24)) };
    engine.trim();
    // Refaults may take 6 of 200 ms. Those of 24 MiB would take 15.
    engine.os().sleep_ms(200);
    let block = used(&engine, 30);
    // SAFETY: a live block, freed once.
    unsafe { engine.free(used(&engine, 1)) };
    let stats = engine.stats();
    assert!(stats.dirty_bytes > 0 && stats.wanted_bytes == 0, "{stats:?}");
    engine.check_with(&[block]);
}

/// Where they were nothing was purged, so what takes their place has not refaulted.
#[test]
fn pages_that_moved_are_not_needed_again() {
    let engine = Engine::new(FakeOs::default().cpus(1).still().space(512 * MIB));
    // Refaults may take 6 of 200 ms. Those of 16 MiB would take 10.
    engine.os().sleep_ms(200);
    let block = used(&engine, 16);
    let behind = engine.alloc(MIB);
    // SAFETY: a live block.
    let moved = unsafe { engine.realloc(block, 24 * MIB, 1) };
    assert_eq!(engine.os().moves(), 1);
    let other = engine.alloc(16 * MIB);
    assert_eq!(other, block);
    // SAFETY: live blocks, each freed once.
    [behind, other].into_iter().for_each(|block| unsafe { engine.free(block) });
    let stats = engine.stats();
    assert!(stats.dirty_bytes > 0 && stats.wanted_bytes == 0, "{stats:?}");
    engine.check_with(&[moved]);
}
