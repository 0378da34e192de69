//! Tests the ledger: it adds up to the resident memory, and names the waste that a test planted.
#![cfg(not(any(miri, loom)))]

use std::fs;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use ebbmalloc::Stats;
use ebbmalloc::internals::{
    Beacon, ENGINE, Engine, Ledger, ProcessMemory, RemoteProfile, WritableMemory,
};
use ebbmalloc_testkit::FakeOs;

const UNIT: usize = 64 << 10;

/// Allocates blocks of this size and writes every byte.
fn blocks(engine: &Engine<FakeOs>, size: usize, count: usize) -> Vec<*mut u8> {
    let take = |_| {
        let block = engine.alloc(size);
        // SAFETY: the block has `size` bytes.
        unsafe { block.write_bytes(0xa5, size) };
        block
    };
    (0..count).map(take).collect()
}

fn free(engine: &Engine<FakeOs>, blocks: impl IntoIterator<Item = *mut u8>) {
    // SAFETY: live blocks of this engine, no longer used.
    blocks.into_iter().for_each(|block| unsafe { engine.free(block) });
}

fn class(ledger: &Ledger, size: usize) -> ebbmalloc::internals::ClassLedger {
    let index = (0..).find(|&index| ebbmalloc::internals::class_bytes(index) == size);
    ledger.classes[index.unwrap()]
}

/// Allocates 20,000 blocks of 512 bytes, and frees all but every 100th.
fn keep_every_hundredth(engine: &Engine<FakeOs>) {
    let all = blocks(engine, 512, 20_000);
    free(engine, (0..).zip(all).filter(|(nth, _)| nth % 100 != 0).map(|(_, block)| block));
    engine.trim();
}

fn conclusions(ledger: &Ledger) -> Vec<String> {
    let mut told = Vec::new();
    ledger.for_each_conclusion(ledger.resident(), |conclusion| told.push(conclusion.to_string()));
    told
}

/// Checks that the ledger's sum equals the resident bytes of the fake operating system.
fn assert_adds_up(engine: &Engine<FakeOs>, what: &str) -> Ledger {
    let ledger = engine.ledger();
    assert_eq!(ledger.resident(), engine.os().touched() as u64, "{what}: {ledger:?}");
    assert_eq!(ledger.unclear, 0, "{what}");
    ledger
}

/// Checks that statistics account for all units in use or dirty, without asking which pages are
/// resident.
fn assert_units_add_up(stats: &Stats) {
    let spans = stats.cached_bytes + stats.pinned_bytes + stats.hole_bytes + stats.end_bytes;
    let units = (stats.live_bytes + spans + stats.dirty_bytes) as usize;
    assert_eq!(units % UNIT, 0, "{stats:?}");
    // Here all committed units are mapped.
    let fresh = Engine::new(FakeOs::default());
    free(&fresh, blocks(&fresh, 100, 1));
    let fresh = fresh.stats();
    let tables_of_one = (fresh.table_bytes / (fresh.committed_bytes / UNIT as u64)) as usize;
    assert_eq!(units / UNIT * (UNIT + tables_of_one), stats.held_bytes as usize, "{stats:?}");
}

/// Checks that statistics are upper bounds of the ledger: pages they count may be untouched, but
/// not the other way around.
fn assert_no_less(stats: &Stats, ledger: &Ledger, page: usize) {
    let blocks = ledger.small + ledger.large;
    let ends = ledger.large_rounding + ledger.span_ends;
    for (told, resident) in [
        (stats.live_bytes, blocks),
        (stats.live_bytes + stats.end_bytes, blocks + ends),
        (stats.rounding_bytes, ledger.small_rounding_most),
        (stats.live_bytes, stats.rounding_bytes),
        (stats.cached_bytes, ledger.cached),
        (stats.pinned_bytes, ledger.pinned),
        (stats.end_bytes, ledger.span_ends),
        (stats.dirty_bytes, ledger.free_runs),
        // Four tables, each in whole pages.
        (stats.table_bytes + 4 * page as u64, ledger.tables),
        (stats.slab_bytes, ledger.slabs),
    ] {
        assert!(told >= resident, "{told} of {resident}: {stats:?}\n{ledger:?}");
    }
}

#[test]
fn it_adds_up_whatever_is_done() {
    for (mode, page) in [("slot", 4096), ("thread", 4096), ("slot", 65536), ("thread", 16384)] {
        // Enough addresses: short of them, the engine would unmap some.
        let os = FakeOs::default().mode(mode).page(page).space(128 << 20);
        let engine = Engine::new(os);
        let mut held: Vec<*mut u8> = Vec::new();
        let mut random = 1u64;
        for step in 0..3000 {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let number = (random >> 33) as usize;
            let size = [number % 200, number % 5000, number % 60000, number % 900_000][step % 4];
            match number % 5 {
                0..3 if held.len() < 120 => held.extend(blocks(&engine, size, 1)),
                _ if !held.is_empty() => {
                    let gone = held.swap_remove(number % held.len());
                    free(&engine, [gone]);
                }
                _ => {}
            }
            if step % 100 == 0 {
                let ledger = assert_adds_up(&engine, &format!("{mode}, {page}, step {step}"));
                let stats = engine.stats();
                assert_eq!(ledger.small_blocks + ledger.large_blocks, held.len() as u64);
                assert_eq!(
                    ledger.classes.iter().map(|class| class.spans).sum::<u64>(),
                    stats.spans
                );
                assert_eq!(
                    ledger.classes.iter().map(|class| class.cached).sum::<u64>(),
                    stats.classes.iter().map(|class| class.cached).sum::<u64>()
                );
                assert_no_less(&stats, &ledger, page);
                assert_units_add_up(&stats);
            }
            if step % 700 == 699 {
                engine.trim();
                assert_adds_up(&engine, "after a trim");
            }
        }
        free(&engine, held);
        engine.trim();
        let ledger = assert_adds_up(&engine, "at the end");
        assert_eq!(ledger.small + ledger.large + ledger.free(), 0, "{ledger:?}");
    }
}

#[test]
fn every_hundredth_block_kept_is_named() {
    let engine = Engine::new(FakeOs::default());
    keep_every_hundredth(&engine);
    let ledger = assert_adds_up(&engine, "planted");
    let class = class(&ledger, 512);
    assert_eq!((class.live, class.cached), (200, 0));
    assert_eq!(ledger.small, 200 * 512);
    // The trim left each of these blocks the page that it lies in.
    assert_eq!(ledger.pinned, 200 * (4096 - 512));
    let stats = engine.stats();
    let free = stats.classes.iter().map(|class| class.free * class.block_bytes).sum::<u64>();
    assert_eq!((stats.pinned_bytes, stats.hole_bytes), (ledger.pinned, free - ledger.pinned));
    assert!(stats.hole_bytes > 19_000 * 512 - 200 * 4096, "{stats:?}");
    assert_eq!((stats.rounding_bytes, ledger.small_rounding_most), (200 * 31, 200 * 31));
    assert_units_add_up(&stats);
    let told = conclusions(&ledger);
    assert!(told[0].contains("is free memory pinned by 200 blocks of 512 bytes"), "{told:#?}");
    assert!(told[0].contains("1 % full on average"), "{told:#?}");
}

#[test]
fn large_blocks_are_told_from_what_lies_behind_them() {
    let engine = Engine::new(FakeOs::default());
    let block = blocks(&engine, 100_000, 1)[0];
    let ledger = assert_adds_up(&engine, "large");
    // 24 pages and a part of one are touched; the rest of the second unit is not.
    assert_eq!(
        (ledger.large, ledger.large_rounding, ledger.large_blocks),
        (100_000, 25 * 4096 - 100_000, 1)
    );
    // SAFETY: a live block of this engine.
    let block = unsafe {
        let block = engine.realloc(block, 1_000_000, 1);
        block.write_bytes(1, 1_000_000);
        block
    };
    assert_eq!(assert_adds_up(&engine, "grown").large, 1_000_000);
    // SAFETY: a live block of this engine.
    let block = unsafe { engine.realloc(block, 70_000, 1) };
    let ledger = assert_adds_up(&engine, "shrunk");
    assert_eq!((ledger.large, ledger.large_rounding), (70_000, 2 * 65536 - 70_000));
    free(&engine, [block]);
    let ledger = assert_adds_up(&engine, "freed");
    assert!(ledger.large == 0 && ledger.free_runs > 0);
}

#[test]
fn the_report_in_words() {
    let engine = Engine::new(FakeOs::default());
    keep_every_hundredth(&engine);
    let mut text = String::new();
    engine.why(&mut text).unwrap();
    assert!(
        text.contains("pinned free blocks: ") && text.contains("pinned by 200 blocks of 512 bytes"),
        "{text}"
    );
}

#[test]
fn where_nothing_is_known_nothing_is_claimed() {
    let mut text = String::new();
    Engine::new(FakeOs::default().space(0)).why(&mut text).unwrap();
    assert_eq!(text, "0 B resident; the kernel does not say which pages\n");
}

/// At the end of a program, statistics print the numbers and then the ledger's lines, which add up.
#[test]
fn statistics_end_with_the_ledger() {
    let engine = Engine::new(FakeOs::default());
    keep_every_hundredth(&engine);
    let ledger = engine.ledger();
    engine.print_stats();
    let printed = engine.os().printed();
    let lines: Vec<_> =
        printed.lines().map(|line| line.strip_prefix("ebbmalloc: ").expect(line)).collect();
    assert!(lines[0].contains(" mode "), "{printed}");
    let ledger_at = lines.iter().position(|line| line.ends_with(" resident, of which")).unwrap();
    assert!(lines[..ledger_at].iter().any(|line| line.trim_start().starts_with("512 ")));
    let parts: Vec<_> = ledger.parts().into_iter().filter(|part| part.bytes > 0).collect();
    assert_eq!(lines.len(), ledger_at + 1 + parts.len(), "{printed}");
    for (part, line) in parts.iter().zip(&lines[ledger_at + 1..]) {
        let kib = format!("{:.1} KiB ", part.bytes as f64 / 1024.0);
        assert!(line.ends_with(&format!(" %  {}", part.label)), "{line}");
        assert!(line.trim_start().starts_with(&kib), "{line}: {kib}");
    }
}

/// Lets one test at a time use the engine of this process.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The memory of this process, read as another process would.
struct Own(fs::File);

impl Own {
    fn new() -> Self {
        Self(fs::File::options().read(true).write(true).open("/proc/self/mem").unwrap())
    }

    /// The beacons at the beginnings of anonymous mappings.
    fn beacons(&self) -> Vec<Beacon> {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let starts =
            maps.lines().filter(|line| line.contains(" rw-p ") && line.contains(" 00:00 0"));
        let starts =
            starts.map(|line| usize::from_str_radix(line.split('-').next().unwrap(), 16).unwrap());
        starts
            .filter_map(|start| {
                let mut bytes = [0; Beacon::SIZE];
                self.0.read_exact_at(&mut bytes, start as u64).ok()?;
                Beacon::read(&bytes, start)?.ok()
            })
            .collect()
    }
}

impl ProcessMemory for Own {
    fn read(&mut self, address: usize, bytes: &mut [u8]) -> bool {
        self.0.read_exact_at(bytes, address as u64).is_ok()
    }

    fn resident(&mut self, _: usize, pages: &mut [bool]) {
        pages.fill(true);
    }
}

impl WritableMemory for Own {
    fn write(&mut self, address: usize, bytes: &[u8]) -> bool {
        self.0.write_all_at(bytes, address as u64).is_ok()
    }
}

/// A process whose memory changes faster than it can be read.
struct Garbage(u64);

impl ProcessMemory for Garbage {
    fn read(&mut self, _: usize, bytes: &mut [u8]) -> bool {
        for (nth, byte) in bytes.iter_mut().enumerate() {
            self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            // Often makes numbers small enough to be plausible.
            *byte = if nth % 8 > 3 && self.0 >> 63 == 0 { 0 } else { (self.0 >> 40) as u8 };
        }
        // A word of the heap may be the committed size: looking at each page of the largest
        // possible heap would take minutes.
        if bytes.len() == size_of::<usize>() {
            bytes[5..].fill(0);
        }
        self.0 >> 60 != 0
    }

    fn resident(&mut self, _: usize, pages: &mut [bool]) {
        pages.iter_mut().for_each(|page| *page = true);
    }
}

/// A process that lies to keep its reader busy: its heap and its slabs are endless, and the lists
/// of its heap profile are circles.
struct Liar {
    own: Own,
    calls: usize,
}

impl Liar {
    fn new() -> Self {
        Self { own: Own::new(), calls: 0 }
    }

    fn count(&mut self) {
        self.calls += 1;
        assert!(self.calls < 10_000_000, "the reader goes on and on");
    }
}

impl ProcessMemory for Liar {
    fn read(&mut self, address: usize, bytes: &mut [u8]) -> bool {
        // The first object of a table.
        const FIRST: u64 = 1 << 15;
        self.count();
        let is_read = self.own.read(address, bytes);
        let words: &[u64] = match bytes.len() {
            // The first stack or the session, the bytes of the heap, a stack, and a site of it or
            // the slabs of threads.
            4 => &[FIRST],
            8 => &[usize::MAX as u64 >> 8],
            24 => &[FIRST, FIRST, 0],
            40 => &[FIRST, 1 << 44, 4096, 4, 4],
            _ => &[],
        };
        for (to, word) in bytes.chunks_mut(8).zip(words) {
            to.copy_from_slice(&word.to_le_bytes()[..to.len()]);
        }
        is_read
    }

    fn resident(&mut self, _: usize, pages: &mut [bool]) {
        self.count();
        pages.fill(true);
    }
}

#[test]
fn a_process_that_lies_is_read_to_an_end() {
    let _alone = alone();
    ENGINE.start_profile(512);
    // SAFETY: live blocks, each freed once.
    (0..1000).for_each(|_| unsafe { ENGINE.free(ENGINE.alloc(1000)) });
    let [beacon] = Own::new().beacons().try_into().expect("one heap");
    Ledger::of(&beacon, &mut Liar::new());
    let profile = RemoteProfile::read(&mut Liar::new(), &beacon).expect("there is a profile");
    assert!(!profile.for_each_stack(&mut Liar::new(), |_| {}));
    assert!(!profile.for_each_samples(&mut Liar::new(), |_| {}));
    ENGINE.stop_profile();
    hit();
}

#[test]
fn the_beacon_is_found_and_garbage_does_no_harm() {
    let _alone = alone();
    let held: Vec<_> = (0..1000).map(|_| ENGINE.alloc(2000)).collect();
    let mut own = Own::new();
    let [beacon] = own.beacons().try_into().expect("one heap");
    assert_eq!(beacon.version(), ebbmalloc::VERSION);
    let seen = Ledger::of(&beacon, &mut own);
    let ledger = ENGINE.ledger();
    assert_eq!((seen.small_blocks, seen.committed), (ledger.small_blocks, ledger.committed));
    assert!(seen.small_blocks >= 1000);
    for seed in 0..6 {
        let ledger = Ledger::of(&beacon, &mut Garbage(seed));
        // Twice the size of the address space.
        assert!(ledger.resident() < 1 << 47);
    }
    // SAFETY: allocated above.
    held.into_iter().for_each(|block| unsafe { ENGINE.free(block) });
}

/// Allocates and frees a block that the cache has: the hot path alone.
fn hit() {
    // SAFETY: a live block, freed once.
    unsafe { ENGINE.free(ENGINE.alloc(100)) }
}

#[test]
fn a_heap_profile_is_switched_and_read_from_outside() {
    let _alone = alone();
    hit();
    let mut own = Own::new();
    let [beacon] = own.beacons().try_into().expect("one heap");
    for mean_bytes in [4096, 1000, 0, 2000] {
        let number = beacon.request_profile(&mut own, mean_bytes).expect("memory can be written");
        assert_eq!(beacon.has_followed(&mut own, number), Some(false), "nothing was allocated");
        hit();
        assert_eq!(beacon.has_followed(&mut own, number), Some(true));
        let profile = RemoteProfile::read(&mut own, &beacon).expect("there is a profile");
        assert_eq!(profile.header().is_on, mean_bytes != 0);
        assert!(profile.header().mean_bytes == mean_bytes || mean_bytes == 0);
        let held: Vec<_> = (0..20_000).map(|nth| ENGINE.alloc(100 + nth % 2 * 50)).collect();
        let large = ENGINE.alloc(1 << 20);
        let (mut live, mut stacks) = (0.0, 0);
        assert!(profile.for_each_stack(&mut own, |stack| {
            live += stack.live.bytes;
            stacks += (stack.live.bytes > 0.0) as usize;
            assert!(stack.live.bytes <= 0.0 || stack.calls.len() > 3, "{stack:?}");
        }));
        let (mut own_live, mut samples) = (0.0, 0);
        assert!(ENGINE.for_each_profile_stack(&mut |stack| own_live += stack.live.bytes));
        assert_eq!(live, own_live);
        profile.for_each_samples(&mut own, |of_stack| samples += of_stack.live.0);
        let expected = if mean_bytes == 0 { 0.0 } else { 20_000.0 * 125.0 + 1048576.0 };
        assert!((live - expected).abs() <= expected / 5.0, "{live}, not {expected}: {stacks}");
        assert_eq!(samples > 0, mean_bytes != 0);
        held.into_iter().chain([large]).for_each(|block| {
            // SAFETY: a live block, freed once.
            unsafe { ENGINE.free(block) }
        });
        let ledger = ENGINE.ledger();
        assert_eq!(Ledger::of(&beacon, &mut own).profile > 0, true);
        assert!(ledger.profile > 0);
    }
    for seed in 0..20 {
        if let Some(profile) = RemoteProfile::read(&mut Garbage(seed), &beacon) {
            profile.for_each_stack(&mut Garbage(seed), |_| {});
        }
    }
    ENGINE.stop_profile();
    hit();
}

#[test]
fn a_heap_profile_is_switched_from_outside_under_load() {
    let _alone = alone();
    hit();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    hit();
                }
            });
        }
        let mut own = Own::new();
        let [beacon] = own.beacons().try_into().expect("one heap");
        for nth in 0..200 {
            let mean_bytes = if nth % 2 == 0 { 1000 + nth } else { 0 };
            let number = beacon.request_profile(&mut own, mean_bytes).unwrap();
            // The engine may switch by itself at the same time.
            if nth % 8 == 0 {
                ENGINE.start_profile(512);
            }
            let has_followed = |own: &mut Own| beacon.has_followed(own, number).unwrap();
            let tries = (0..1000).find(|_| {
                thread::sleep(std::time::Duration::from_micros(200));
                has_followed(&mut own)
            });
            assert!(tries.is_some(), "request {nth} is not followed");
            if let Some(profile) = RemoteProfile::read(&mut own, &beacon) {
                profile.for_each_stack(&mut own, |stack| assert!(stack.live.bytes >= 0.0));
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    ENGINE.stop_profile();
    hit();
}

#[test]
fn others_may_work_meanwhile() {
    let _alone = alone();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for seed in 1..3 {
            let stop = &stop;
            scope.spawn(move || {
                let mut held = [std::ptr::null_mut(); 200];
                let mut random = seed;
                while !stop.load(Ordering::Relaxed) {
                    random = (random * 1103515245 + 12345) & 0x7fff_ffff;
                    let size = if random % 16 == 0 { random % 200_000 } else { random % 3000 };
                    // SAFETY: null, or a live block of this engine that only this thread has.
                    unsafe {
                        ENGINE.free(held[random % 200]);
                        held[random % 200] = ENGINE.alloc(size);
                    }
                }
                // SAFETY: null, or live blocks of this engine that only this thread has.
                held.into_iter().for_each(|block| unsafe { ENGINE.free(block) });
            });
        }
        let mut own = Own::new();
        for _ in 0..50 {
            let ledger = ENGINE.ledger();
            assert!(ledger.resident() > 0 && ledger.resident() <= ledger.committed * 2);
            // The same from outside, where no lock stops the other threads from writing.
            for beacon in own.beacons() {
                Ledger::of(&beacon, &mut own);
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn other_versions_are_told_by_name() {
    let _alone = alone();
    ENGINE.alloc(1);
    let own = Own::new();
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let (bytes, start) = maps
        .lines()
        .filter(|line| line.contains(" rw-p "))
        .find_map(|line| {
            let start = usize::from_str_radix(line.split('-').next()?, 16).ok()?;
            let mut bytes = [0; Beacon::SIZE];
            own.0.read_exact_at(&mut bytes, start as u64).ok()?;
            Beacon::read(&bytes, start).map(|_| (bytes, start))
        })
        .unwrap();
    assert!(Beacon::read(&bytes, start + 4096).is_none(), "a copy elsewhere is none");
    let mut other = bytes;
    // The first number after the magic is the version of the layout.
    other[8] ^= 0xff;
    assert_eq!(Beacon::read(&other, start).unwrap().unwrap_err().version(), ebbmalloc::VERSION);
    other[0] ^= 1;
    assert!(Beacon::read(&other, start).is_none());
}

/// The ledger tells quarantined blocks from the program's, and records about blocks from other
/// memory.
#[test]
fn care_is_told_from_the_program() {
    for variable in ["EBB_CHECK", "EBB_HARDEN", "EBB_SAMPLE"] {
        let os = FakeOs::default().space(64 << 20).cpus(1).environment(variable, "1");
        let engine = Engine::new(os);
        let [kept, gone] = [(); 2].map(|()| blocks(&engine, 1000, 100));
        let large = blocks(&engine, 100_000, 3);
        free(&engine, gone);
        free(&engine, large);
        let ledger = assert_adds_up(&engine, variable);
        let care = engine.stats().choice.care;
        let held_back = if care == "sample" { 0 } else { 50 * 1000 };
        assert!(ledger.quarantine >= held_back, "{variable}: {ledger:?}");
        assert_eq!(ledger.quarantine > 0, care != "sample", "{variable}");
        assert_eq!(ledger.check_tables > 0, care == "check");
        assert_eq!(ledger.sampled > 0, care == "sample");
        if care == "check" {
            assert_eq!((ledger.small_blocks, ledger.large_blocks), (100, 0));
            assert!(ledger.quarantine >= 100 * 1000 + 3 * 100_000);
        }
        drop(kept);
    }
}
