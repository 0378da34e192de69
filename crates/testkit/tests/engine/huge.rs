//! Tests huge pages: which memory they back, when none are asked for, and what they leave as it
//! was.

use ebbmalloc::internals::{Engine, OsThreads};
use ebbmalloc_testkit::FakeOs;

const MIB: usize = 1 << 20;
const HUGE: usize = 2 * MIB;

fn os() -> FakeOs {
    FakeOs::default().cpus(1).still().space(256 * MIB)
}

/// An engine with huge pages that take `us` each.
fn engine(us: u64) -> Engine<FakeOs> {
    Engine::new(os().huge_pages_in(us * 1000))
}

/// Allocates blocks of `size` bytes, `bytes` in all.
fn fill(engine: &Engine<FakeOs>, bytes: usize, size: usize) -> Vec<*mut u8> {
    let blocks: Vec<_> = (0..bytes / size).map(|_| engine.alloc(size)).collect();
    assert!(blocks.iter().all(|block| !block.is_null()));
    blocks
}

fn free(engine: &Engine<FakeOs>, blocks: Vec<*mut u8>) {
    // SAFETY: live blocks, each freed once.
    blocks.into_iter().for_each(|block| unsafe { engine.free(block) });
}

/// How many of these blocks lie in huge pages.
fn in_huge_pages(engine: &Engine<FakeOs>, blocks: &[*mut u8]) -> usize {
    let pages = engine.os().huge_pages();
    let is_in_one = |block: &&*mut u8| pages.iter().any(|page| page.contains(&block.addr()));
    blocks.iter().filter(is_in_one).count()
}

#[test]
fn heaps_grow_by_huge_pages_and_fill_them() {
    let engine = engine(100);
    let first = fill(&engine, 15 * MIB, 1024);
    assert_eq!(engine.stats().huge_bytes, 0);
    let rest = fill(&engine, 48 * MIB, 1024);
    assert!(in_huge_pages(&engine, &first) * 20 < first.len());
    assert!(in_huge_pages(&engine, &rest) * 20 > 19 * rest.len());
    let stats = engine.stats();
    assert!(stats.huge_bytes as usize <= 48 * MIB && stats.dirty_bytes as usize <= HUGE);
    assert_eq!(stats.huge_us, 100 * stats.huge_bytes / HUGE as u64);
    engine.check_with(&[first, rest].concat());
}

#[test]
fn who_wants_none_gets_none() {
    let engine = Engine::new(os().huge_pages_in(1).environment("EBB_HUGE", "never"));
    fill(&engine, 48 * MIB, 1024);
    assert_eq!((engine.os().huge_pages().len(), engine.stats().huge_refusals), (0, 0));
}

/// The kernel would give small pages, and the heap take them for more.
#[test]
fn where_no_program_gets_any_none_is_asked_for() {
    let engine = Engine::new(os().no_huge_pages().environment("EBB_HUGE", "always"));
    let blocks = fill(&engine, 48 * MIB, 1024);
    let stats = engine.stats();
    assert_eq!((stats.huge_pages, stats.huge_refusals, stats.dirty_bytes), (0, 0, 0));
    engine.check_with(&blocks);
}

#[test]
fn where_the_kernel_has_none_the_heap_grows_all_the_same() {
    let engine = Engine::new(os());
    let blocks = fill(&engine, 64 * MIB, 1024);
    let stats = engine.stats();
    assert!((1..20).contains(&stats.huge_refusals) && stats.huge_bytes == 0, "{stats:?}");
    assert_eq!(stats.dirty_bytes, 0);
    engine.check_with(&blocks);
}

/// Else memory would seem to be needed again that is not, and what is free would stay.
#[test]
fn a_huge_page_that_the_kernel_refuses_is_no_refault() {
    let engine = Engine::new(os());
    fill(&engine, 20 * MIB, 1024);
    free(&engine, fill(&engine, 24 * MIB, 1024));
    engine.trim();
    // Refaults may take 6.2 of 200 ms. Those of 8 MiB take 5.1; a huge page's would take 1.3.
    engine.os().sleep_ms(200);
    let refusals = engine.stats().huge_refusals;
    free(&engine, fill(&engine, 8 * MIB, 1024));
    let stats = engine.stats();
    assert!(stats.huge_refusals > refusals && stats.wanted_bytes == 0, "{stats:?}");
}

#[test]
fn dear_ones_end_until_time_has_passed() {
    let engine = engine(4000);
    fill(&engine, 48 * MIB, 1024);
    let at_first = engine.os().huge_pages().len();
    assert!((1..10).contains(&at_first), "{at_first}");
    engine.os().sleep_ms(3_600_000);
    fill(&engine, 96 * MIB, 1024);
    let later = engine.os().huge_pages().len() - at_first;
    assert!((8..30).contains(&later), "{later}");
    let always = Engine::new(os().huge_pages_in(4_000_000).environment("EBB_HUGE", "always"));
    fill(&always, 48 * MIB, 1024);
    assert!(always.os().huge_pages().len() >= 15);
}

#[test]
fn blocks_of_several_pages_do_not_make_it_grow_so() {
    let engine = engine(1);
    for size in [5000, 32 << 10, 64 << 10, 100_000, 512 << 10, MIB, 3 * MIB] {
        fill(&engine, 20 * MIB, size);
    }
    assert_eq!((engine.os().huge_pages().len(), engine.os().advised().len()), (0, 0));
}

#[test]
fn nor_does_memory_that_refaults() {
    let engine = engine(1);
    fill(&engine, 20 * MIB, 1024);
    let before = engine.os().huge_pages().len();
    for _ in 0..40 {
        free(&engine, fill(&engine, 64 * MIB, MIB));
        engine.os().sleep_ms(100);
    }
    assert_eq!(engine.os().huge_pages().len(), before);
    engine.check();
}

/// Else a block of which one page is touched would keep all of it resident.
#[test]
fn the_rest_of_one_is_for_small_blocks() {
    let engine = engine(1);
    let mut small = fill(&engine, 20 * MIB, 1024);
    let mut sparse = Vec::new();
    for turn in 0..30 {
        small.extend(fill(&engine, 128 << 10, 1024));
        let size = [10_000, 64 << 10, 300_000, MIB, 3 * MIB][turn % 5];
        sparse.extend(fill(&engine, 3 * MIB, size));
        sparse.push(engine.alloc_aligned(200_000, 1 << 20));
        engine.os().sleep_ms(1);
    }
    assert!(in_huge_pages(&engine, &small[20 * 1024..]) > 3000);
    let dense = engine.stats().huge_bytes as usize;
    assert!(dense <= 12 * MIB, "{dense}");
    assert_eq!(in_huge_pages(&engine, &sparse), 0);
    engine.check_with(&[small, sparse].concat());
}

/// Such a span may stay almost empty.
#[test]
fn first_spans_lie_in_none() {
    let engine = engine(1);
    fill(&engine, 20 * MIB, 40_000);
    for size in (16..4096).step_by(16) {
        fill(&engine, size, size);
    }
    for _ in 0..50 {
        let heap = engine.new_heap(usize::MAX).unwrap();
        assert!(!engine.heap_alloc(heap, 8, 1, "a test").is_null());
    }
    assert_eq!(engine.os().huge_pages().len(), 0);
}

#[test]
fn new_ones_read_as_zero_and_used_ones_do_not() {
    let engine = engine(1);
    fill(&engine, 17 * MIB, 1024);
    // Blocks of a cache's batch lie in the same page.
    let size = 3000;
    for _ in 0..3 {
        let blocks: Vec<_> = (0..2000).map(|_| engine.alloc_zeroed(size)).collect();
        assert!(in_huge_pages(&engine, &blocks) > 1000);
        for &block in &blocks {
            // SAFETY: a live block of `size` bytes.
            let bytes = unsafe { std::slice::from_raw_parts_mut(block, size) };
            assert!(bytes.iter().all(|&byte| byte == 0));
            bytes.fill(7);
        }
        free(&engine, blocks);
    }
    engine.check();
}

#[test]
fn a_limit_holds() {
    let engine = Engine::new(os().huge_pages_in(1).environment("EBB_LIMIT", "25M"));
    let blocks: Vec<_> =
        std::iter::from_fn(|| Some(engine.alloc(1024)).filter(|block| !block.is_null())).collect();
    assert!(engine.stats().held_bytes <= 25 << 20);
    assert!(blocks.len() * 1024 > 24 * MIB && !engine.os().huge_pages().is_empty());
    engine.check_with(&blocks);
}

#[test]
fn purges_take_whole_ones() {
    let engine = engine(1);
    let kept = fill(&engine, 20 * MIB, 1024);
    let before = engine.os().huge_pages().len();
    let blocks = fill(&engine, 60 * MIB, 4096);
    assert!(engine.os().huge_pages().len() > before + 25);
    // Purges go on, a part of the free memory at a time.
    for block in blocks {
        // SAFETY: a live block, freed once.
        unsafe { engine.free(block) };
        engine.os().sleep_ms((block.addr() % (10 * 4096) == 0) as u32);
    }
    let purged = engine.stats().purged_bytes as usize;
    assert!(purged > 40 * MIB, "{purged}");
    let broken = engine.os().broken_huge_pages();
    // It would be half of them, if each purge took the end of the longest run.
    assert!(broken <= 10, "{broken} of {}", purged / HUGE);
    engine.check_with(&kept);
}

#[test]
fn what_is_purged_behind_a_large_block_is_in_none() {
    let engine = engine(1);
    let kept = fill(&engine, 17 * MIB, 1024);
    free(&engine, fill(&engine, 16 * MIB, 1024));
    let large = fill(&engine, 6 * MIB, 600_000);
    let medium = fill(&engine, 6 * MIB, 70_000);
    assert!(in_huge_pages(&engine, &large) > 5 && in_huge_pages(&engine, &medium) > 50);
    // Where a tenth of the medium blocks go, no whole unit does.
    let (freed, medium): (Vec<_>, Vec<_>) =
        medium.into_iter().enumerate().partition(|(nth, _)| nth % 10 == 0);
    free(&engine, freed.into_iter().map(|(_, block)| block).collect());
    engine.trim();
    assert_eq!(engine.stats().huge_bytes as usize, engine.os().huge_pages().len() * HUGE);
    let medium = medium.into_iter().map(|(_, block)| block).collect();
    engine.check_with(&[kept, large, medium].concat());
}

#[test]
fn units_without_free_pages_stay_in_one() {
    let engine = engine(1);
    let kept = fill(&engine, 17 * MIB, 1024);
    free(&engine, fill(&engine, 16 * MIB, 1024));
    let medium = fill(&engine, 12 * MIB, 128 << 10);
    assert!(in_huge_pages(&engine, &medium) > 50);
    engine.trim();
    assert_eq!(engine.stats().huge_bytes as usize, engine.os().huge_pages().len() * HUGE);
    assert!(in_huge_pages(&engine, &medium) > 50);
    engine.check_with(&[kept, medium].concat());
}

/// The rest of a huge page and free memory behind it are one run.
#[test]
fn memory_that_joins_the_rest_of_one_is_used_again() {
    let engine = engine(1);
    fill(&engine, 21 * MIB, 1024);
    let rest_bytes = engine.stats().dirty_bytes as usize;
    let large = || fill(&engine, 8 * MIB, MIB);
    free(&engine, large());
    assert!(rest_bytes > 0 && engine.stats().dirty_bytes as usize >= 8 * MIB + rest_bytes);
    let before = engine.stats();
    let again = large();
    assert_eq!(engine.stats().held_bytes, before.held_bytes);
    assert_eq!(engine.stats().dirty_bytes as usize, rest_bytes);
    assert_eq!(in_huge_pages(&engine, &again), 0);
    engine.check();
}

#[test]
fn large_blocks_do_not_grow_into_the_rest_of_one() {
    let engine = engine(1);
    fill(&engine, 20 * MIB, 1024);
    let touched = fill(&engine, MIB, 2048);
    let end = touched.iter().map(|block| block.addr()).max().unwrap().next_multiple_of(64 << 10);
    assert!(engine.stats().dirty_bytes > 256 << 10);
    free(&engine, touched);
    engine.flush_cache();
    let large = fill(&engine, 2 * MIB, 70_000);
    // SAFETY: live blocks.
    large.iter().for_each(|&block| _ = unsafe { engine.resize(block, 256 << 10, 1) });
    let pages = engine.os().huge_pages();
    let last = |block: &*mut u8| block.addr() + engine.usable_size(*block) - 1;
    let is_behind = |last: &usize| pages.iter().any(|page| (end..page.end).contains(last));
    assert_eq!(large.iter().map(last).filter(is_behind).count(), 0);
    engine.check();
}

/// Bytes that long blocks have in huge pages, or get there once the program touches them.
fn advised_bytes(engine: &Engine<FakeOs>) -> usize {
    let os = engine.os();
    let bytes = |ranges: Vec<std::ops::Range<usize>>| -> usize {
        ranges.iter().map(|range| range.len()).sum()
    };
    bytes(os.huge_pages()) + bytes(os.advised())
}

#[test]
fn long_blocks_have_them() {
    let engine = engine(100);
    let block = engine.alloc(40 * MIB);
    let huge_bytes = advised_bytes(&engine);
    assert!((38 * MIB..=40 * MIB).contains(&huge_bytes), "{huge_bytes}");
    assert_eq!(engine.stats().huge_bytes as usize, huge_bytes);
    // One is measured.
    assert_eq!((engine.os().huge_pages().len(), engine.stats().huge_us), (1, 100));
    engine.check_with(&[block]);
    free(&engine, vec![block]);
    assert_eq!(engine.os().advised(), []);
    engine.trim();
    assert_eq!(engine.stats().huge_bytes, 0);
    engine.check();
}

/// The program may touch a page of each.
#[test]
fn all_long_blocks_together_have_only_some() {
    let engine = Engine::new(os().huge_pages_in(1).space(1 << 30));
    let blocks = fill(&engine, 320 * MIB, 10 * MIB);
    assert_eq!(advised_bytes(&engine), 64 * MIB);
    engine.check_with(&blocks);
    free(&engine, blocks);
    engine.trim();
    // What is purged makes room, as time passes: else who frees and trims would fault without end.
    for _ in 0..20 {
        free(&engine, vec![engine.alloc(60 * MIB)]);
        engine.trim();
    }
    assert!(engine.stats().huge_pages <= 32);
    engine.os().sleep_ms(1024);
    let block = engine.alloc(60 * MIB);
    assert!(engine.stats().huge_pages <= 64);
    assert!(advised_bytes(&engine) >= 58 * MIB);
    engine.check_with(&[block]);
    let always = os().huge_pages_in(1).space(1 << 30).environment("EBB_HUGE", "always");
    let always = Engine::new(always);
    fill(&always, 320 * MIB, 10 * MIB);
    assert!(advised_bytes(&always) > 240 * MIB);
}

#[test]
fn small_heaps_and_those_with_dear_ones_have_none_for_long_blocks() {
    let small = engine(1);
    fill(&small, 14 * MIB, 7 * MIB);
    assert_eq!(advised_bytes(&small), 0);
    let dear = engine(4000);
    let blocks = fill(&dear, 100 * MIB, 20 * MIB);
    assert_eq!((dear.os().huge_pages().len(), dear.os().advised()), (1, Vec::new()));
    dear.check_with(&blocks);
    let refused = Engine::new(os());
    fill(&refused, 100 * MIB, 20 * MIB);
    assert_eq!(advised_bytes(&refused), 0);
    let never = Engine::new(os().huge_pages_in(1).environment("EBB_HUGE", "never"));
    fill(&never, 100 * MIB, 20 * MIB);
    assert_eq!(advised_bytes(&never), 0);
}

#[test]
fn what_a_long_block_grows_by_has_them_and_what_it_gives_back_has_none() {
    let engine = engine(1);
    let block = engine.alloc(20 * MIB);
    let before = advised_bytes(&engine);
    // SAFETY: a live block.
    assert!(unsafe { engine.resize(block, 40 * MIB, 1) });
    assert!(advised_bytes(&engine) >= before + 18 * MIB);
    engine.check_with(&[block]);
    // SAFETY: as before.
    assert!(unsafe { engine.resize(block, 11 * MIB - 1, 1) });
    let end = block.addr() + 11 * MIB;
    assert!(engine.os().advised().iter().all(|range| range.end <= end));
    engine.check_with(&[block]);
}

/// The fake system checks that no advice is left where pages move or mappings go.
#[test]
fn pages_move_without_advice() {
    let engine = Engine::new(os().huge_pages_in(1).space(1 << 30));
    let mut block = engine.alloc(20 * MIB);
    let mut kept = Vec::new();
    for mib in [24, 32, 50, 70] {
        kept.push(engine.alloc(100_000));
        // SAFETY: a live block.
        block = unsafe { engine.realloc(block, mib * MIB, 1) };
        kept.push(block);
        engine.check_with(&kept);
        kept.pop();
    }
    assert!(engine.stats().live_bytes > 70 << 20);
    assert!(engine.os().moves() > 0, "none moved");
    free(&engine, vec![block]);
    engine.trim();
    engine.check_with(&kept);
}

/// Else a program that touches a page of each would have ever more resident.
#[test]
fn the_bound_holds_where_pages_move_and_memory_is_used_again() {
    let engine = Engine::new(os().huge_pages_in(1).space(3 << 30));
    let mut kept = Vec::new();
    for _ in 0..20 {
        let block = engine.alloc(16 * MIB);
        kept.push(engine.alloc(100_000));
        // SAFETY: a live block.
        kept.push(unsafe { engine.realloc(block, 24 * MIB, 1) });
        engine.os().sleep_ms(1024);
    }
    assert!(engine.stats().huge_pages <= 32, "{:?}", engine.stats().huge_pages);
    assert!(engine.os().moves() >= 10, "{}", engine.os().moves());
    engine.check_with(&kept);
    let engine = Engine::new(os().huge_pages_in(1).space(3 << 30));
    let mut kept = Vec::new();
    for _ in 0..20 {
        free(&engine, vec![engine.alloc(16 * MIB)]);
        kept.push(engine.alloc(16 * MIB));
        engine.os().sleep_ms(20);
        assert!(engine.stats().huge_bytes <= 64 << 20, "{:?}", engine.stats().huge_bytes);
    }
    engine.check_with(&kept);
}

#[test]
fn who_forbids_them_later_gets_no_more() {
    let engine = engine(1);
    let block = engine.alloc(24 * MIB);
    let gap = engine.alloc(20 * MIB);
    let other = engine.alloc(20 * MIB);
    assert!(engine.os().advised().len() >= 2);
    free(&engine, vec![gap]);
    engine.trim();
    // The fake system checks that what lies between is not advised: it may be unmapped.
    engine.set("huge", "never").unwrap();
    assert_eq!(engine.os().advised(), []);
    let later = engine.alloc(50 * MIB);
    assert_eq!(engine.os().advised(), []);
    engine.check_with(&[block, other, later]);
}

/// A block has no right to what lies behind its end, so that may not become resident.
#[test]
fn the_unit_with_the_end_of_a_long_block_is_not_advised() {
    let engine = engine(1);
    let block = engine.alloc_aligned((20 << 20) - 60_000, HUGE);
    let end = block.addr() + 20 * MIB;
    let advised = engine.os().advised();
    assert!(advised.iter().any(|range| range.end == end - HUGE), "{advised:x?} {end:x}");
    // A shorter block may end within one.
    let huge_bytes = engine.stats().huge_bytes as usize;
    // SAFETY: a live block.
    assert!(unsafe { engine.resize(block, (16 << 20) - 60_000, 1) });
    engine.trim();
    assert!(engine.stats().huge_bytes as usize <= huge_bytes - 2 * HUGE);
    engine.check_with(&[block]);
}

fn why(engine: &Engine<FakeOs>) -> String {
    let mut text = String::new();
    engine.why(&mut text).unwrap();
    text.lines().find(|line| line.contains("huge pages. Why not more")).unwrap().into()
}

#[test]
fn why_tells_how_much_is_in_them_and_why_not_more() {
    let has = |engine: &Engine<FakeOs>, words: &str| {
        let said = why(engine);
        assert!(said.contains(words), "{said}");
    };
    let usual = engine(1);
    fill(&usual, MIB, 1024);
    has(&usual, "Up to 0 B of the heap may be in huge pages. Why not more: no block needed one");
    fill(&usual, 20 * MIB, 1024);
    has(&usual, "more: it got one when it last grew.");
    let bytes = usual.stats().huge_bytes >> 20;
    has(&usual, &format!("Up to {bytes}.0 MiB of"));
    fill(&usual, 160 * MIB, 20 * MIB);
    has(&usual, "more: blocks from 4 MiB on have 64 MiB, or had them lately");
    let dear = engine(4000);
    fill(&dear, 40 * MIB, 1024);
    has(&dear, "more: they took too long");
    let refused = Engine::new(os());
    fill(&refused, 20 * MIB, 1024);
    has(&refused, "more: the kernel refused one");
    let missing = Engine::new(os().no_huge_pages());
    fill(&missing, 20 * MIB, 1024);
    has(&missing, "more: the system has none for it");
    for name in ["EBB_HARDEN", "EBB_HUGE"] {
        let value = if name == "EBB_HUGE" { "never" } else { "1" };
        let forbidden = Engine::new(os().huge_pages_in(1).environment(name, value));
        fill(&forbidden, 20 * MIB, 1024);
        has(&forbidden, "more: EBB_HUGE=never, or EBB_HARDEN, forbids them.");
    }
}

/// The first is measured by then.
#[test]
fn refused_advice_leaves_one_huge_page() {
    let mut refused = 0;
    for nth in 0..12 {
        let engine = engine(1);
        engine.os().faults().refuse_next(nth..nth + 1);
        let block = engine.alloc(20 * MIB);
        engine.os().heal();
        refused += (engine.os().huge_pages().len() == 1 && engine.os().advised().is_empty()) as u32;
        assert_eq!(engine.stats().huge_bytes as usize, advised_bytes(&engine));
        engine.check_with(&[block]);
        free(&engine, vec![block]);
        engine.check();
    }
    assert_eq!(refused, 1);
}
