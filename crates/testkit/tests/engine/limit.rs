//! Tests `EBB_LIMIT`: the engine never holds more memory than the limit, to the byte, and a program
//! can use all of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ebbmalloc::internals::Engine;
use ebbmalloc_testkit::FakeOs;

/// The bytes that a unit of 64 KiB counts, with its entries in the tables.
const UNIT_COST: usize = (64 << 10) + 8 + 4 + 16 + 576;
const UNIT: usize = 64 << 10;
/// A block of two units.
const BLOCK: usize = 128 << 10;

fn engine(limit: String) -> Engine<FakeOs> {
    Engine::new(FakeOs::default().cpus(1).environment("EBB_LIMIT", limit.leak()))
}

fn fill(engine: &Engine<FakeOs>, size: usize) -> Vec<*mut u8> {
    let blocks = std::iter::repeat_with(|| engine.alloc(size));
    blocks.take_while(|block| !block.is_null()).collect()
}

fn free(engine: &Engine<FakeOs>, block: *mut u8) {
    // SAFETY: the tests free each block once.
    unsafe { engine.free(block) }
}

fn holds_what_it_may(engine: &Engine<FakeOs>) {
    let stats = engine.stats();
    assert!(stats.held_bytes <= stats.limit_bytes, "{} bytes", stats.held_bytes);
    engine.check();
}

#[test]
fn the_edge_is_exact() {
    for (bytes, blocks) in [(32 * UNIT_COST, 16), (32 * UNIT_COST - 1, 15), (33 * UNIT_COST, 16)] {
        let engine = engine(bytes.to_string());
        let all = fill(&engine, BLOCK);
        assert_eq!(all.len(), blocks, "under a limit of {bytes} bytes");
        assert_eq!(engine.os().shortages(), 1);
        let stats = engine.stats();
        assert_eq!(stats.limit_bytes as usize, bytes / UNIT_COST * UNIT_COST);
        assert_eq!(stats.held_bytes as usize, 2 * blocks * UNIT_COST);
        // The limit covers small blocks too: their span of one unit takes the odd unit, if there is
        // one.
        let spans = fill(&engine, 64);
        assert_eq!(spans.is_empty(), (bytes / UNIT_COST).is_multiple_of(2));
        holds_what_it_may(&engine);
    }
}

#[test]
fn what_is_freed_makes_room_in_any_shape() {
    let engine = engine((32 * UNIT_COST).to_string());
    for size in [BLOCK, 100, 1 << 20, 20_000, 600_000, 3000, 2 << 20] {
        let blocks = fill(&engine, size);
        let got = blocks.len() * size;
        assert!(got > 1 << 20, "{got} bytes in blocks of {size}");
        holds_what_it_may(&engine);
        // Leaves holes first, which are resident and too short for the next block.
        let (even, odd): (Vec<_>, Vec<_>) =
            blocks.iter().enumerate().partition(|(n, _)| n % 2 == 0);
        even.iter().chain(&odd).for_each(|(_, block)| free(&engine, **block));
        holds_what_it_may(&engine);
    }
}

#[test]
fn resident_holes_go_where_they_are_in_the_way() {
    let engine = engine((32 * UNIT_COST).to_string());
    let blocks = fill(&engine, BLOCK);
    blocks.iter().step_by(2).for_each(|&block| free(&engine, block));
    assert_eq!(engine.stats().dirty_bytes, 1 << 20);
    // No hole is long enough. Purging 9 units of holes makes space; no more than the longest ones
    // go.
    let block = engine.alloc(9 << 16);
    assert!(!block.is_null());
    let stats = engine.stats();
    assert_eq!((stats.dirty_bytes, stats.held_bytes), (7 << 16, stats.limit_bytes));
    assert!(engine.alloc(8 << 16).is_null(), "16 + 9 + 8 units are more than 32");
    assert_eq!(engine.stats().dirty_bytes, 7 << 16, "purged for nothing");
    assert!(!engine.alloc(7 << 16).is_null());
    holds_what_it_may(&engine);
}

#[test]
fn realloc_at_the_limit_leaves_the_block() {
    let engine = engine((32 * UNIT_COST).to_string());
    let blocks = fill(&engine, BLOCK);
    for (n, &block) in blocks.iter().enumerate() {
        // SAFETY: the block has `BLOCK` bytes.
        unsafe { block.write_bytes(n as u8 + 1, BLOCK) };
        // SAFETY: a live block, which stays valid when the result is null.
        assert!(unsafe { engine.realloc(block, BLOCK + 1, 16) }.is_null());
    }
    for (n, &block) in blocks.iter().enumerate() {
        // SAFETY: still a live block, of `BLOCK` bytes.
        let bytes = unsafe { std::slice::from_raw_parts(block, BLOCK) };
        assert!(bytes.iter().all(|&byte| byte == n as u8 + 1));
    }
    holds_what_it_may(&engine);
    // It grows into the freed neighbour, and no further.
    free(&engine, blocks[1]);
    // SAFETY: live blocks.
    unsafe {
        assert_eq!(engine.realloc(blocks[0], 2 * BLOCK, 16), blocks[0]);
        assert!(engine.realloc(blocks[0], 3 * BLOCK, 16).is_null());
    }
    holds_what_it_may(&engine);
}

#[test]
fn growing_at_the_frontier_stops_at_the_limit() {
    let engine = engine((32 * UNIT_COST).to_string());
    let block = engine.alloc(BLOCK);
    // SAFETY: a live block.
    unsafe {
        assert_eq!(engine.realloc(block, 32 << 16, 16), block);
        assert!(engine.realloc(block, (32 << 16) + 1, 16).is_null());
    }
    holds_what_it_may(&engine);
}

#[test]
fn growing_into_a_purged_hole_counts() {
    let engine = engine((24 * UNIT_COST).to_string());
    let [block, hole, behind] = [4, 8, 4].map(|units| engine.alloc(units << 16));
    assert!(!behind.is_null());
    free(&engine, hole);
    assert!(engine.trim());
    let rest = engine.alloc(16 << 16);
    assert!(!rest.is_null());
    // SAFETY: a live block.
    unsafe {
        assert!(engine.realloc(block, 5 << 16, 16).is_null());
        free(&engine, rest);
        assert_eq!(engine.realloc(block, 12 << 16, 16), block);
    }
    holds_what_it_may(&engine);
}

#[test]
fn what_is_purged_for_a_hole_joins_it() {
    let engine = engine((40 * UNIT_COST).to_string());
    let [block, hole, dirty, behind] = [4, 8, 4, 4].map(|units| engine.alloc(units << 16));
    free(&engine, hole);
    assert!(engine.trim());
    let rest = engine.alloc(28 << 16);
    assert!(!behind.is_null() && !rest.is_null());
    free(&engine, dirty);
    // SAFETY: a live block.
    assert_eq!(unsafe { engine.realloc(block, 8 << 16, 16) }, block);
    holds_what_it_may(&engine);
}

/// Where memory is short, free memory is unmapped so that it can be used elsewhere. If the kernel
/// refuses that, the memory stays as it was: it must not count as resident from then on.
#[test]
fn what_stays_mapped_does_not_become_resident() {
    let engine = engine((64 * UNIT_COST).to_string());
    let [hole, _, other_hole, _] = [16, 2, 16, 2].map(|units| engine.alloc(units << 16));
    free(&engine, hole);
    free(&engine, other_hole);
    assert!(engine.trim());
    assert!(!engine.alloc(33 << 16).is_null());
    engine.os().faults().refuse(0..usize::MAX);
    let blocks = fill(&engine, 20 << 16);
    assert!(blocks.len() <= 1 && engine.os().refusals() > 2);
    holds_what_it_may(&engine);
}

#[test]
fn pages_that_move_count_once() {
    let engine = engine((24 * UNIT_COST).to_string());
    let block = engine.alloc(16 << 16);
    let behind = engine.alloc(BLOCK);
    // SAFETY: live blocks.
    unsafe {
        assert!(engine.realloc(block, 23 << 16, 16).is_null());
        assert!(!engine.realloc(block, 22 << 16, 16).is_null());
    }
    assert_eq!(engine.os().moves(), 1);
    assert_eq!(engine.stats().held_bytes, engine.stats().limit_bytes);
    free(&engine, behind);
    holds_what_it_may(&engine);
}

/// What another thread may allocate meanwhile is up to the limit, as at any other time.
#[test]
fn pages_count_once_while_they_move() {
    let engine = Arc::new(engine((24 * UNIT_COST).to_string()));
    let [block, behind] = [12, 2].map(|units| engine.alloc(units << 16));
    let other = Arc::clone(&engine);
    engine.os().in_next_move(move || {
        let block = other.alloc(6 << 16);
        assert!(!block.is_null() && other.alloc(BLOCK / 2 + 1).is_null());
        assert_eq!(other.stats().held_bytes, other.stats().limit_bytes);
        free(&other, block);
    });
    // SAFETY: a live block.
    let block = unsafe { engine.realloc(block, 16 << 16, 16) };
    assert_eq!(engine.os().moves(), 1);
    holds_what_it_may(&engine);
    free(&engine, block);
    free(&engine, behind);
    holds_what_it_may(&engine);
}

#[test]
fn a_share_of_what_there_is() {
    let os = FakeOs::default().environment("EBB_LIMIT", "50%");
    let engine = Engine::new(os.memory(8 << 20));
    assert!(!engine.alloc(1).is_null());
    let limit = engine.stats().limit_bytes as usize;
    assert!((4 << 20) - UNIT_COST < limit && limit <= 4 << 20, "{limit}");
}

#[test]
fn sizes() {
    let limit = |value: &str| {
        let engine = engine(value.to_owned());
        engine.start();
        (engine.stats().limit_bytes as usize, engine.os().printed())
    };
    for (value, bytes) in [
        ("1048576", 1 << 20),
        ("1024K", 1 << 20),
        ("5m", 5 << 20),
        ("5MiB", 5 << 20),
        ("3G", 3 << 30),
        ("3GiB", 3 << 30),
        ("2T", 2 << 40),
        ("5MB", 5_000_000),
        ("5Mi", 5 << 20),
        ("1.5G", 3 << 29),
    ] {
        let (limit, printed) = limit(value);
        assert!(limit <= bytes && bytes < limit + UNIT_COST, "{value}: {limit}");
        assert_eq!(printed, "");
    }
    for none in ["", "0"] {
        assert_eq!(limit(none), (0, String::new()));
    }
    for nonsense in ["many", "12", "1023K", "-5M", "5 M", "5%%", "0%", "101%", "%", "M", "+5M"] {
        let started = std::panic::catch_unwind(|| limit(nonsense));
        let said = *started.expect_err(nonsense).downcast::<String>().unwrap();
        let named =
            format!("EBB_LIMIT={nonsense} is not understood, so the program does not start");
        assert!(said.contains(&named) && said.contains("; use 512M"), "{said}");
    }
}

/// A cache that tolerates refusals may try often.
#[test]
fn a_forbidden_resize_leaves_free_memory_resident() {
    let engine = engine((32 * UNIT_COST).to_string());
    let [block, behind, other] = [10, 2, 8].map(|units| engine.alloc(units * UNIT));
    free(&engine, other);
    let dirty = |engine: &Engine<FakeOs>| engine.stats().dirty_bytes as usize;
    assert_eq!(dirty(&engine), 8 * UNIT);
    for units in [31, 100, 1 << 20] {
        // SAFETY: a live block, which stays.
        assert!(unsafe { engine.realloc(block, units * UNIT, 1) }.is_null());
        assert_eq!(dirty(&engine), 8 * UNIT, "{units} units");
    }
    engine.check_with(&[block, behind]);
}

#[test]
fn a_block_that_grows_without_a_copy_tells_the_pressure() {
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    extern "C" fn pressed(_held_bytes: usize, _limit_bytes: usize) {
        CALLS.fetch_add(1, Ordering::Relaxed);
    }
    type Grow = fn(&Engine<FakeOs>, *mut u8, usize) -> bool;
    let ways: [Grow; 2] = [
        // SAFETY: a live block.
        |engine, block, size| unsafe { engine.resize(block, size, 1) },
        // SAFETY: the same, whose address does not change.
        |engine, block, size| unsafe { engine.remap(block, size, 1) == block },
    ];
    for grow in ways {
        CALLS.store(0, Ordering::Relaxed);
        let engine = engine((32 * UNIT_COST).to_string());
        engine.on_pressure(50, Some(pressed));
        let block = engine.alloc(10 * UNIT);
        assert!(grow(&engine, block, 12 * UNIT));
        assert_eq!(CALLS.load(Ordering::Relaxed), 0);
        assert!(grow(&engine, block, 20 * UNIT));
        assert_eq!(CALLS.load(Ordering::Relaxed), 1);
        free(&engine, block);
    }
}
