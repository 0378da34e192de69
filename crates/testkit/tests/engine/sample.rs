//! Tests sampled guard pages: each kind of mistake is reported, correct programs run, and out of
//! memory is not reported as a mistake.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use crate::oom::each_call_is_refused;
use ebbmalloc::internals::Engine;
use ebbmalloc_testkit::{FakeOs, Program, Worker};

/// All slots, those that may be live at once, and the address space that they take.
const SLOTS: usize = 256;
const LIVE: usize = 192;
const PAGE: usize = 4096;

fn fake(every: &'static str) -> FakeOs {
    FakeOs::default().space(12 << 20).cpus(1).environment("EBB_SAMPLE", every)
}

fn engine() -> Engine<FakeOs> {
    Engine::new(fake("1"))
}

/// A sampled block of 100 bytes, as near the end of its page as alignment allows, or at its
/// beginning.
fn sampled(engine: &Engine<FakeOs>, at_end: bool) -> *mut u8 {
    let blocks = std::iter::repeat_with(|| engine.alloc(100)).take(100);
    let found = blocks.filter(|&block| engine.usable_size(block) == 100);
    found.into_iter().find(|block| at_end == (block.addr() % PAGE != 0)).expect("a sampled block")
}

/// # Safety
/// As for [`Engine::free`].
unsafe fn free(engine: &Engine<FakeOs>, block: *mut u8) {
    // SAFETY: the caller guarantees what [`Engine::free`] needs.
    unsafe { engine.free(block) }
}

/// The message with which the engine stops this.
fn said(engine: &Engine<FakeOs>, work: impl FnOnce()) -> String {
    assert!(catch_unwind(AssertUnwindSafe(work)).is_err(), "nothing was seen");
    engine.os().printed()
}

#[test]
fn blocks_lie_in_pages_of_their_own() {
    let engine = engine();
    let mut pages: Vec<usize> = (0..LIVE).map(|_| engine.alloc(100).addr() / PAGE).collect();
    pages.sort();
    assert!(pages.windows(2).all(|pair| pair[1] - pair[0] >= 2), "{pages:x?}");
    let stats = engine.stats();
    assert_eq!((stats.sampled_blocks, stats.sampled_bytes), (LIVE as u64, 112 * LIVE as u64));
    // The engine samples no more blocks until some are freed.
    assert_eq!(engine.usable_size(engine.alloc(100)), 112);
    assert_eq!(engine.stats().sampled_blocks, LIVE as u64);
}

#[test]
fn both_ends_are_used_and_alignment_is_kept() {
    let engine = engine();
    for (size, align) in [(1, 1), (0, 1), (100, 64), (3000, 16), (5, 4096), (4096, 1)] {
        let mut ends = [0; 2];
        for _ in 0..20 {
            let block = engine.alloc_aligned(size, align);
            assert!(block.addr().is_multiple_of(align));
            assert_eq!(engine.usable_size(block), size, "sampled");
            ends[!block.addr().is_multiple_of(PAGE) as usize] += 1;
            // SAFETY: the test no longer uses the block.
            unsafe {
                block.write_bytes(1, size);
                engine.free_sized(block, size, align);
            }
        }
        assert!(
            ends[0] > 0 && (ends[1] > 0 || size.max(align) == PAGE),
            "{size} {align}: {ends:?}"
        );
    }
}

#[test]
fn what_is_larger_than_a_page_is_not_sampled() {
    let engine = engine();
    for (size, align) in [(4097, 1), (10, 8192), (100_000, 1)] {
        engine.alloc_aligned(size, align);
    }
    assert_eq!(engine.stats().sampled_blocks, 0);
}

/// A slot is used again only after all that were freed before it.
#[test]
fn freed_slots_wait_in_a_queue() {
    let engine = engine();
    let blocks: Vec<_> = (0..LIVE).map(|_| engine.alloc(100)).collect();
    // SAFETY: the test no longer uses them.
    blocks.iter().for_each(|&block| unsafe { free(&engine, block) });
    let page = |block: *mut u8| block.addr() / PAGE;
    let fresh: Vec<_> = (LIVE..SLOTS).map(|_| engine.alloc(100)).collect();
    assert!(fresh.iter().all(|&new| blocks.iter().all(|&old| page(new) != page(old))));
    for &old in &blocks[..LIVE - fresh.len()] {
        assert_eq!(page(engine.alloc(100)), page(old));
    }
}

/// The most blocks that a refill brings in a streak.
const BATCH_MOST: usize = 1025;

/// The engine counts the blocks of each refill, however many there are. Where a refill brings more
/// than the mean interval, one of its blocks is sampled.
#[test]
fn about_one_of_so_many_is_sampled() {
    for (every, mean) in [("50", 50), ("1000", 1000)] {
        let os = FakeOs::default().space(64 << 20).environment("EBB_SAMPLE", every);
        let engine = Engine::new(os);
        let (count, mut sampled) = (100_000, 0);
        for _ in 0..count {
            let block = engine.alloc(33);
            if engine.usable_size(block) == 33 {
                sampled += 1;
                // SAFETY: the test does not use the block.
                unsafe { free(&engine, block) };
            }
        }
        let (expected, refills) = (count / mean, engine.stats().refills as usize);
        let told = format!("{sampled} sampled of {count}, one of {mean}, in {refills} refills");
        assert!(sampled <= refills + 1 && sampled <= 2 * expected + 5, "{told}");
        assert!(cfg!(miri) || sampled >= (count / BATCH_MOST).min(expected / 2), "{told}");
    }
}

#[test]
fn check_mode_leaves_it_off() {
    let engine = Engine::new(fake("1").environment("EBB_CHECK", "noleaks"));
    assert_eq!(engine.usable_size(engine.alloc(100)), 100);
    assert_eq!(engine.stats().sampled_blocks, 0);
}

#[test]
fn nonsense_is_named() {
    for nonsense in ["-1", "1/1000", "5000x", "99999999999", " 5"] {
        let engine = Engine::new(fake(nonsense));
        let started = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| engine.start()));
        let said = *started.expect_err(nonsense).downcast::<String>().unwrap();
        let named = format!("EBB_SAMPLE={nonsense} is not understood, so the program does not");
        assert!(said.contains(&named), "{said}");
    }
}

#[test]
fn a_write_past_the_end_is_seen_by_free() {
    let engine = engine();
    let block = sampled(&engine, false);
    // SAFETY: the memory is the fake's, and the test no longer uses the block; the engine must see
    // the write.
    let said = said(&engine, || unsafe {
        block.add(4095).write(1);
        engine.free(block);
    });
    assert!(
        said.contains("has 100 bytes, and byte 4095 was written (0x01); seen by free"),
        "{said}"
    );
}

#[test]
fn a_write_before_the_start_is_seen_by_realloc() {
    let engine = engine();
    let block = sampled(&engine, true);
    // SAFETY: the memory is the fake's; the engine must see the write.
    let said = said(&engine, || unsafe {
        block.sub(1).write(1);
        engine.realloc(block, 200, 1);
    });
    assert!(said.contains("underflow") && said.contains("byte -1 was written (0x01)"), "{said}");
    assert!(said.contains("seen by realloc"), "{said}");
}

/// The report shows where the block was allocated, where it was freed first, and where it was freed
/// again.
#[test]
fn a_double_free_names_three_stacks() {
    let engine = engine();
    engine.os().set_calls(&[0x1111, 0x1112]);
    let block = engine.alloc(100);
    engine.os().set_calls(&[0x2222]);
    // SAFETY: the test no longer uses the block.
    unsafe { free(&engine, block) };
    engine.os().set_calls(&[0x3333]);
    // SAFETY: the memory is the fake's; the engine must detect the mistake.
    let said = said(&engine, || unsafe { free(&engine, block) });
    let positions =
        ["double free", "#0 0x3333", "#0 0x1111", "#1 0x1112", "first freed", "#0 0x2222"]
            .map(|text| said.find(text).unwrap_or_else(|| panic!("no {text} in {said}")));
    assert!(positions.is_sorted(), "{said}");
}

#[test]
fn wrong_addresses_are_told() {
    type Wrong = fn(*mut u8) -> *mut u8;
    let cases: [(&str, Wrong); 3] = [
        ("interior pointer", |block| block.wrapping_add(16)),
        ("invalid free", |block| block.wrapping_add(PAGE)),
        ("invalid free", |block| block.wrapping_add(100 * PAGE)),
    ];
    for (fault, wrong) in cases {
        let engine = engine();
        let address = wrong(engine.alloc(100));
        // SAFETY: the test does not use the block; the engine must detect the mistake.
        let said = said(&engine, || unsafe { free(&engine, address) });
        assert!(said.contains(&format!("{fault}: {:#x} passed to free", address.addr())), "{said}");
    }
}

#[test]
fn sizes_are_looked_at() {
    type Call = fn(&Engine<FakeOs>, *mut u8);
    // SAFETY: the test does not use the blocks; the engine must detect the mistakes.
    let cases: [(&str, Call); 4] = [
        ("as a block of 99 bytes; it has 100", |engine, block| unsafe {
            engine.free_sized(block, 99, 1)
        }),
        ("wrong size", |engine, block| unsafe { engine.free_sized(block, 100_000, 1) }),
        ("passed to malloc_usable_size", |engine, block| unsafe {
            engine.free_sized(block, 100, 1);
            engine.usable_size(block);
        }),
        ("passed to realloc", |engine, block| unsafe {
            engine.free(block);
            engine.realloc(block, 50, 1);
        }),
    ];
    for (text, call) in cases {
        let engine = engine();
        let block = engine.alloc(100);
        let said = said(&engine, || call(&engine, block));
        assert!(said.contains(text), "{said}");
    }
}

/// The report of the SIGSEGV handler about addresses in and around a block.
#[test]
fn an_access_is_explained_by_the_nearest_block() {
    let engine = engine();
    engine.os().set_calls(&[0x9999, 0x4443, 0x5555]);
    let (first, second) = (sampled(&engine, true), sampled(&engine, true));
    let tell = |address: usize| {
        let before = engine.os().printed().len();
        engine.explain_fault(address, 0x4444);
        engine.os().printed().split_off(before)
    };
    let (low, high) = (first.min(second), first.max(second));
    let gap = |block: *mut u8| block.addr().next_multiple_of(PAGE);
    let told = tell(gap(low));
    assert!(told.contains(&format!("overflow: {:#x} has 100 bytes, and byte 112 was", low.addr())));
    // The stack has the faulting instruction, then its callers, without the handler.
    assert!(told.contains("#0 0x4444\n") && told.contains("#1 0x5555\n"), "{told}");
    let told = tell(high.addr() / PAGE * PAGE - 1);
    let offset = -((high.addr() % PAGE) as isize) - 1;
    assert!(
        told.contains(&format!(
            "underflow: {:#x} has 100 bytes, and byte {offset} was",
            high.addr()
        ))
    );
    // SAFETY: the test no longer uses the block.
    unsafe { free(&engine, high) };
    assert!(tell(high.addr() + 7).contains("use after free"));
    assert!(tell(high.addr() + 7).contains("had 100 bytes, and byte 7 was accessed"));
    // One address outside the slots, and one in a slot that was never used.
    assert_eq!(tell(0), "");
    assert!(tell(high.addr() + 200 * PAGE).contains("without a known sampled block"));
}

/// The handler reports also when its own thread holds the lock.
#[test]
fn an_access_is_explained_without_the_lock() {
    let engine = engine();
    let block = sampled(&engine, true);
    engine.before_fork();
    engine.explain_fault(block.addr(), 1);
    engine.after_fork();
    assert!(engine.os().printed().contains("bad access"), "{}", engine.os().printed());
    // SAFETY: the test no longer uses the block.
    unsafe { free(&engine, block) };
}

fn run(engine: &Engine<FakeOs>, number: u32, steps: usize) {
    let mut worker = Worker::new(engine, number);
    worker.run(Program::new(number as u64).take(steps));
    worker.shadow().check();
    worker.free_all();
}

#[test]
fn correct_programs_run_through() {
    for (mode, every) in [("slot", "1"), ("thread", "1"), ("slot", "20"), ("thread", "20")] {
        let (steps, space) = (3000, 128 << 20);
        let engine = Engine::new(fake(every).space(space).mode(mode));
        thread::scope(|scope| {
            for number in 0..2 {
                let engine = &engine;
                scope.spawn(move || run(engine, number, steps));
            }
        });
        engine.check();
        let stats = engine.stats();
        assert!(stats.sampled_blocks > 0 || every != "1");
        assert_eq!((stats.live_bytes, stats.sampled_bytes), (0, 0), "{mode} {every}");
        assert_eq!(engine.os().complaints(), "");
    }
}

#[test]
fn memory_runs_short() {
    each_call_is_refused(|| fake("1"), 80, 50, |engine| assert_eq!(engine.stats().live_bytes, 0));
}
