//! Tests the heap profile: what it estimates for each stack lies within the statistical error of
//! what the program did, whatever that was, in each mode.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, mpsc};
use std::{fs, thread};

use ebbmalloc::internals::{Counts, Engine, Os, OsThreads};
use ebbmalloc_testkit::fake_stack::call;
use ebbmalloc_testkit::{FakeOs, LinuxIn, is_possible};

/// Mean number of bytes between samples.
const MEAN: u64 = 4096;
const SEEDS: u64 = 20;
/// An estimate is wrong if chance alone gets so far off more rarely than this. A run compares some
/// 10,000 estimates.
const CHANCE: f64 = 1e-7;

/// Sums over blocks, and the variances of their estimates.
#[derive(Clone, Copy, Default, Debug)]
struct Sum {
    objects: f64,
    bytes: f64,
    objects_variance: f64,
    bytes_variance: f64,
    /// The most objects and bytes that one sample stands for.
    objects_most: f64,
    bytes_most: f64,
}

impl Sum {
    /// Adds a block of this size, or with -1 subtracts it.
    fn add(&mut self, size: usize, sign: f64) {
        let size = size.max(1) as f64;
        let share = -(-size / MEAN as f64).exp_m1();
        // A block counts 1 / share with the probability `share`, else 0.
        let variance = (1.0 - share) / share;
        self.objects += sign;
        self.bytes += sign * size;
        self.objects_variance += sign * variance;
        self.bytes_variance += sign * variance * size * size;
        self.objects_most = self.objects_most.max(1.0 / share);
        self.bytes_most = self.bytes_most.max(size / share);
    }
}

/// What a program holds and has allocated, by call.
#[derive(Default)]
struct Truth(Mutex<BTreeMap<usize, [Sum; 2]>>);

impl Truth {
    fn add(&self, at: usize, size: usize) {
        let mut truth = self.0.lock().unwrap();
        truth.entry(at).or_default().iter_mut().for_each(|sum| sum.add(size, 1.0));
    }

    fn remove(&self, at: usize, size: usize) {
        self.0.lock().unwrap().get_mut(&at).unwrap()[0].add(size, -1.0);
    }

    /// Compares estimates with the truth.
    fn compare(&self, found: &BTreeMap<usize, [Counts; 2]>) -> Comparison {
        let mut comparison = Comparison::default();
        let truth = self.0.lock().unwrap();
        for (at, sums) in &*truth {
            let found = found.get(at).copied().unwrap_or_default();
            for (name, sum, counts) in [("live", sums[0], found[0]), ("all", sums[1], found[1])] {
                let (objects, bytes) = (sum.objects_variance, sum.bytes_variance);
                for (unit, truth, variance, most, estimate) in [
                    ("objects", sum.objects, objects, sum.objects_most, counts.objects),
                    ("bytes", sum.bytes, bytes, sum.bytes_most, counts.bytes),
                ] {
                    // Buckets of sizes are a little wide, and sums of floats not exact.
                    let off = ((estimate - truth).abs() - truth * 0.002 - 0.01).max(0.0);
                    if chance_of(off, variance, most) < CHANCE {
                        let text = format!("{at:#x} {name} {unit}: {estimate:.0}, not {truth:.0}");
                        comparison.wrong.push(text);
                    }
                }
            }
            let [_, all] = sums;
            if all.objects_variance > 1e-9 {
                let off = found[1].objects - all.objects;
                comparison.deviations.push(off / all.objects_variance.sqrt());
            }
        }
        let unknown = found.keys().filter(|at| !truth.contains_key(at));
        comparison.wrong.extend(unknown.map(|at| format!("{at:#x} allocated nothing")));
        comparison
    }
}

/// The estimates of a profile beside the truth.
#[derive(Default)]
struct Comparison {
    /// What is too far off.
    wrong: Vec<String>,
    /// How far off the number of allocated objects is, in standard deviations, for each call.
    deviations: Vec<f64>,
}

/// The most that the probability can be that a sum of independent terms, with this variance and
/// none larger than `most`, is `off` more than it should be: Bennett's inequality.
fn chance_of(off: f64, variance: f64, most: f64) -> f64 {
    if variance < 1e-9 {
        return (off == 0.0) as u8 as f64;
    }
    let ratio = off * most / variance;
    (-(variance / (most * most)) * ((1.0 + ratio) * ratio.ln_1p() - ratio)).exp()
}

/// The estimates of a profile, by the innermost call.
fn estimates<O: Os>(engine: &Engine<O>) -> BTreeMap<usize, [Counts; 2]> {
    let mut found = BTreeMap::<usize, [Counts; 2]>::new();
    let whole = engine.for_each_profile_stack(&mut |stack| {
        let at = stack.calls.first().map_or(0, |&call| call as usize);
        let sums = found.entry(at).or_default();
        for (sum, counts) in sums.iter_mut().zip([stack.live, stack.allocated]) {
            sum.objects += counts.objects;
            sum.bytes += counts.bytes;
        }
    });
    assert!(whole);
    // The stack without calls is there from the start.
    found.retain(|_, sums| sums[1].objects > 0.0);
    found
}

/// A program that allocates from an engine, and knows the truth.
struct Program<'a> {
    engine: &'a Engine<LinuxIn>,
    truth: Truth,
}

/// A block of a program: its address as a number, so that it can go to other threads.
#[derive(Clone, Copy)]
struct Block {
    at: usize,
    start: usize,
    size: usize,
}

impl Block {
    fn start(&self) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.start)
    }
}

impl Program<'_> {
    fn alloc(&self, at: usize, size: usize) -> Block {
        let start = call(at, || self.engine.alloc(size));
        assert!(!start.is_null());
        self.truth.add(at, size);
        // SAFETY: the block has `size` bytes.
        unsafe { start.write_bytes(at as u8, size.min(64)) };
        Block { at, start: start.expose_provenance(), size }
    }

    fn free(&self, block: Block) {
        // SAFETY: a live block, not used any more. Both ways to free one are used.
        unsafe {
            match block.start % 64 {
                0 => self.engine.free_sized(block.start(), block.size, 1),
                16 => self.engine.free_if_sized(block.start(), block.size, 1),
                _ => self.engine.free(block.start()),
            }
        }
        self.truth.remove(block.at, block.size);
    }

    fn realloc(&self, at: usize, block: Block, size: usize) -> Block {
        // SAFETY: a live block, whose old address is not used any more.
        let start = call(at, || unsafe { self.engine.realloc(block.start(), size, 1) });
        assert!(!start.is_null());
        // SAFETY: the block has that many bytes.
        unsafe { assert_eq!(start.read(), block.at as u8, "the contents moved along") };
        unsafe { start.write(at as u8) };
        self.truth.remove(block.at, block.size);
        self.truth.add(at, size);
        Block { at, start: start.expose_provenance(), size }
    }
}

/// The loop that keeps one block and frees another of the same class at once.
fn keeps_one_and_frees_another(program: &Program) {
    for _ in 0..20_000 {
        program.alloc(0x1000, 64);
        program.free(program.alloc(0x2000, 64));
    }
}

/// One thread allocates what another frees, all but every fourth.
fn producer_and_consumer(program: &Program) {
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            for nth in 0..20_000 {
                sender.send(program.alloc(0x1000 + nth % 3, 40 + nth % 3 * 100)).unwrap();
            }
        });
        scope.spawn(move || {
            for (nth, block) in receiver.iter().enumerate() {
                if nth % 4 != 0 {
                    program.free(block);
                }
                program.free(program.alloc(0x5000, 100));
            }
        });
    });
}

/// Blocks that grow by steps and by doubling, in place and moved.
fn grows(program: &Program) {
    for nth in 0..300 {
        let mut block = program.alloc(0x1000, 16);
        for size in [17, 20, 31, 32, 40, 100, 250, 1000, 1010, 1020, 5000, 40_000] {
            block = program.realloc(0x2000 + size, block, size);
        }
        if nth % 10 == 0 {
            for size in [70_000, 100_000, 131_072, 200_000, 800_000, 1_600_000, 90_000] {
                block = program.realloc(0x2000 + size, block, size);
            }
        }
        if nth % 2 == 0 {
            program.free(block);
        }
    }
}

/// Many threads, each with its own sizes and stack.
fn many_threads(program: &Program) {
    thread::scope(|scope| {
        for thread in 0..16 {
            scope.spawn(move || {
                let mut held = Vec::new();
                for nth in 0..3000 {
                    held.push(program.alloc(0x1000 + thread, 16 * (thread + 1) + nth % 7));
                    if nth % 3 == 0 {
                        program.free(held.swap_remove(nth * 7 % held.len()));
                    }
                }
                program.engine.leave_thread();
            });
        }
    });
}

/// Blocks of heaps, which are freed one by one or with their heap.
fn heaps(program: &Program) {
    let engine = program.engine;
    for round in 0..4 {
        let heap = engine.new_heap(usize::MAX).unwrap();
        let mut sizes = Vec::new();
        for nth in 0..4000 {
            let (at, size) = (0x1000 + nth % 2, 24 + nth % 5 * 60 + (nth == 7) as usize * 300_000);
            let block = call(at, || engine.heap_alloc(heap, size, 16, "a test"));
            program.truth.add(at, size);
            match nth % 4 {
                0 => {
                    // SAFETY: a live block of this heap, not used any more.
                    unsafe { engine.heap_free(heap, block, "a test") };
                    program.truth.remove(at, size);
                }
                1 => {
                    // SAFETY: a live block of this heap, whose old address is not used any more.
                    let new = call(0x3000, || unsafe { engine.realloc(block, size + 500, 1) });
                    assert!(!new.is_null());
                    program.truth.remove(at, size);
                    program.truth.add(0x3000, size + 500);
                    sizes.push((0x3000, size + 500));
                }
                _ => sizes.push((at, size)),
            }
        }
        if round % 2 == 0 {
            // SAFETY: the program does not use its blocks any more.
            unsafe { engine.delete_heap(heap, "a test") };
            sizes.iter().for_each(|&(at, size)| program.truth.remove(at, size));
        }
    }
}

/// One large block among very many small ones.
fn one_large_among_small(program: &Program) {
    for nth in 0..100_000 {
        if nth == 50_000 {
            program.alloc(0x2000, 8 << 20);
        }
        program.alloc(0x1000, 24);
    }
}

/// Sizes of all sorts, aligned and zeroed too.
fn all_sorts(program: &Program) {
    let mut held = Vec::new();
    let mut state = 1_u64;
    for nth in 0..15_000 {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let size = (state >> 40) as usize % (1 << (nth % 17));
        let at = 0x1000 + nth % 4;
        let block = call(at, || match nth % 4 {
            0 => program.engine.alloc_aligned(size, 256),
            1 => program.engine.alloc_zeroed(size),
            2 => program.engine.alloc_aligned_zeroed(size, 64),
            _ => program.engine.alloc(size),
        });
        assert!(!block.is_null());
        program.truth.add(at, size);
        held.push((block, at, size));
        if nth % 3 != 0 {
            let (block, at, size) = held.swap_remove(state as usize % held.len());
            // SAFETY: a live block, not used any more.
            unsafe { program.engine.free(block) };
            program.truth.remove(at, size);
        }
    }
}

/// Runs a program, and compares its profile with what it did.
fn compare(engine: &Engine<LinuxIn>, work: fn(&Program)) -> Comparison {
    assert!(engine.start_profile(MEAN));
    let program = Program { engine, truth: Truth::default() };
    work(&program);
    let comparison = program.truth.compare(&estimates(engine));
    // What is freed after the end is still subtracted.
    engine.stop_profile();
    comparison
}

type Scenario = (&'static str, fn(&Program));

const SCENARIOS: [Scenario; 7] = [
    ("keeps_one_and_frees_another", keeps_one_and_frees_another),
    ("producer_and_consumer", producer_and_consumer),
    ("grows", grows),
    ("many_threads", many_threads),
    ("heaps", heaps),
    ("one_large_among_small", one_large_among_small),
    ("all_sorts", all_sorts),
];

/// Runs all scenarios with these seeds. Asserts that no estimate is wrong, and that all together
/// are neither too high nor too low, which tells a small error from chance.
fn is_true(os: impl Fn() -> LinuxIn, mode: &str, seeds: u64) {
    let mut deviations = Vec::new();
    for (name, work) in SCENARIOS {
        for seed in 0..seeds {
            let engine = Engine::new(os().seed(seed * 7919 + 1));
            if !is_possible(&engine, mode) {
                return;
            }
            let comparison = compare(&engine, work);
            let wrong = &comparison.wrong;
            assert!(wrong.is_empty(), "{name}, seed {seed}: {wrong:#?}");
            deviations.extend(comparison.deviations);
            engine.check();
        }
    }
    // Their mean has the standard deviation 1 / sqrt(len).
    let mean = deviations.iter().sum::<f64>() / deviations.len() as f64;
    let off = mean * (deviations.len() as f64).sqrt();
    assert!(off.abs() < 5.0, "{mode}: {off:.1} standard deviations off in the mean");
}

#[test]
fn it_is_true_in_percpu_mode() {
    is_true(|| LinuxIn::new("percpu"), "percpu", SEEDS);
}

#[test]
fn it_is_true_in_thread_mode() {
    is_true(|| LinuxIn::new("thread"), "thread", SEEDS);
}

#[test]
fn it_is_true_in_slot_mode() {
    is_true(|| LinuxIn::new("slot"), "slot", SEEDS);
}

#[test]
fn it_is_true_beside_statistics_and_safety_modes() {
    for (name, value) in [("EBB_STATS", "1"), ("EBB_SAMPLE", "100")] {
        is_true(|| LinuxIn::new("percpu").environment(name, value), "percpu", 2);
        is_true(|| LinuxIn::new("thread").environment(name, value), "thread", 2);
    }
    // These use no caches, whatever the mode.
    for (name, value) in [("EBB_CHECK", "noleaks"), ("EBB_HARDEN", "1")] {
        is_true(|| LinuxIn::new("slot").environment(name, value), "slot", 1);
    }
}

/// A profiler that samples where a cache misses blames the wrong of two calls: the test that the
/// profile passes notices it. Guarded blocks (`EBB_SAMPLE`) are such samples.
#[test]
fn samples_at_misses_would_fail() {
    let mut noticed = 0;
    for seed in 0..SEEDS {
        let os = LinuxIn::new("slot").environment("EBB_SAMPLE", "64").seed(seed * 7919 + 1);
        let engine = Engine::new(os);
        let truth = Truth::default();
        let mut found = BTreeMap::<usize, [Counts; 2]>::new();
        for _ in 0..20_000 {
            for at in [0x1000, 0x2000] {
                // 50 bytes, rounded up to 64 unless the block is sampled.
                let block = engine.alloc(50);
                truth.add(at, 50);
                let is_sampled = engine.usable_size(block) == 50;
                let counts = found.entry(at).or_default();
                for counts in counts.iter_mut().filter(|_| is_sampled) {
                    counts.objects += 64.0;
                    counts.bytes += 64.0 * 50.0;
                }
                if at == 0x2000 || is_sampled {
                    // SAFETY: a live block, not used any more.
                    unsafe { engine.free(block) };
                }
                if at == 0x2000 {
                    truth.remove(at, 50);
                    if is_sampled {
                        counts[0].objects -= 64.0;
                        counts[0].bytes -= 64.0 * 50.0;
                    }
                }
            }
        }
        noticed += !truth.compare(&found).wrong.is_empty() as u64;
    }
    assert_eq!(noticed, SEEDS);
}

/// Frees of sampled blocks are seen after the end, until the last.
#[test]
fn what_is_freed_after_the_end_is_subtracted() {
    for mode in ["percpu", "thread", "slot"] {
        let engine = Engine::new(LinuxIn::new(mode).seed(5));
        if !is_possible(&engine, mode) {
            continue;
        }
        engine.start_profile(MEAN);
        let program = Program { engine: &engine, truth: Truth::default() };
        let blocks: Vec<_> =
            (0..5000).map(|nth| program.alloc(0x1000, 16 + nth % 3 * 200_000 / 100)).collect();
        engine.stop_profile();
        assert!(estimates(&engine)[&0x1000][0].objects > 0.0);
        blocks.into_iter().for_each(|block| program.free(block));
        let live = estimates(&engine)[&0x1000][0];
        assert!(live.objects.abs() < 1e-6 && live.bytes.abs() < 1e-6, "{live:?}");
        assert_eq!(engine.stats().profile_mean_bytes, 0);
        engine.check();
        engine.trim();
        assert_eq!(engine.stats().heaps, 0, "the profile's heap is none of the program's");
    }
}

/// Blocks of an earlier profile do not count in the next.
#[test]
fn a_new_profile_begins_empty() {
    let engine = Engine::new(LinuxIn::new("slot").seed(5));
    engine.start_profile(MEAN);
    let program = Program { engine: &engine, truth: Truth::default() };
    let old: Vec<_> = (0..5000).map(|_| program.alloc(0x1000, 100)).collect();
    engine.start_profile(MEAN / 2);
    assert_eq!(engine.profile_header().unwrap().mean_bytes, MEAN / 2);
    assert_eq!(estimates(&engine).len(), 0);
    let new: Vec<_> = (0..5000).map(|_| program.alloc(0x2000, 100)).collect();
    old.into_iter().for_each(|block| program.free(block));
    let found = estimates(&engine);
    assert_eq!(found.keys().collect::<Vec<_>>(), [&0x2000]);
    assert!((found[&0x2000][0].bytes / 500_000.0 - 1.0).abs() < 0.3, "{found:?}");
    new.into_iter().for_each(|block| program.free(block));
    engine.check();
}

/// On and off a thousand times while threads allocate and free.
#[test]
fn it_is_switched_at_any_time() {
    for mode in ["percpu", "thread", "slot"] {
        let engine = Engine::new(LinuxIn::new(mode));
        if !is_possible(&engine, mode) {
            continue;
        }
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            for thread in 0..8_usize {
                let (engine, is_over) = (&engine, &is_over);
                scope.spawn(move || {
                    let mut held: Vec<(*mut u8, usize)> = Vec::new();
                    let mut state = thread as u64;
                    while !is_over.load(Ordering::Relaxed) {
                        state = state.wrapping_mul(6364136223846793005).wrapping_add(thread as u64);
                        let random = (state >> 33) as usize;
                        if held.len() < 64 || random.is_multiple_of(2) && held.len() < 512 {
                            let size =
                                random % (if random.is_multiple_of(97) { 200_000 } else { 500 });
                            let block = call(0x1000 + thread, || engine.alloc(size));
                            assert!(!block.is_null());
                            // SAFETY: the block has `size` bytes.
                            unsafe { block.write_bytes(thread as u8, size) };
                            held.push((block, size));
                            continue;
                        }
                        let (block, size) = held.swap_remove(random % held.len());
                        // SAFETY: a live block of `size` bytes, not used after it is freed.
                        unsafe {
                            let bytes = std::slice::from_raw_parts(block, size);
                            assert!(bytes.iter().all(|&byte| byte == thread as u8));
                            match random % 3 {
                                0 => engine.free(block),
                                1 => engine.free_sized(block, size, 1),
                                _ => {
                                    let new = engine.realloc(block, size + 40, 1);
                                    engine.free_if_sized(new, size + 40, 1);
                                }
                            }
                        }
                    }
                    // SAFETY: live blocks, not used any more.
                    held.iter()
                        .for_each(|&(block, size)| unsafe { engine.free_sized(block, size, 1) });
                    engine.leave_thread();
                });
            }
            for nth in 0..1000 {
                assert!(engine.start_profile(1 << (8 + nth % 9)));
                if nth % 10 == 0 {
                    estimates_or_none(&engine);
                }
                if nth % 100 == 0 {
                    thread::sleep(std::time::Duration::from_millis(2));
                }
                engine.stop_profile();
            }
            is_over.store(true, Ordering::Relaxed);
        });
        engine.check();
        let live = estimates(&engine).values().map(|sums| sums[0].objects).sum::<f64>();
        assert!(live.abs() < 1e-6, "{mode}: {live} blocks are live");
    }
}

fn estimates_or_none(engine: &Engine<LinuxIn>) {
    engine.for_each_profile_stack(&mut |stack| assert!(stack.live.bytes >= 0.0));
}

/// Very many stacks stay bounded, and what is dropped is told.
#[test]
fn a_million_stacks_are_bounded() {
    let engine = Engine::new(LinuxIn::new("slot").seed(3));
    engine.start_profile(1);
    for nth in 0..1_000_000_usize {
        let stack = |work: &mut dyn FnMut()| {
            call(nth | 1 << 40, || call(2, || call(3, &mut *work)));
        };
        stack(&mut || {
            let block = engine.alloc(64);
            // SAFETY: a live block, not used any more.
            unsafe { engine.free(block) };
        });
    }
    let header = engine.profile_header().unwrap();
    assert!(header.dropped_stacks > 100_000, "{header:?}");
    assert_eq!(header.dropped_samples, 0);
    let (mut allocated, mut stacks) = (0.0, 0);
    engine.for_each_profile_stack(&mut |stack| {
        allocated += stack.allocated.objects;
        stacks += 1;
    });
    assert!((allocated - 1e6).abs() < 1.0, "{allocated}");
    assert!((100_000..1_000_000).contains(&stacks), "{stacks}");
}

/// No memory for tables or sampled blocks: ordinary blocks serve.
#[test]
fn without_memory_blocks_are_still_served() {
    for call in 0..60 {
        let os = FakeOs::default().space(64 << 20).environment("EBB_PROFILE", "1000");
        let engine = Engine::new(os.refusing(call..call + 40));
        let mut held = Vec::new();
        for nth in 0..3000 {
            let block = engine.alloc(nth % 400);
            if !block.is_null() {
                held.push(block);
            }
        }
        engine.os().heal();
        // SAFETY: live blocks, not used any more.
        held.into_iter().for_each(|block| unsafe { engine.free(block) });
        engine.check();
    }
}

/// The text that the engine writes has the header, a line for each stack and the mappings.
#[test]
fn it_is_written_as_text() {
    let engine = Engine::new(LinuxIn::new("slot").seed(1));
    let path = std::env::temp_dir().join(format!("ebb-profile-{}.heap", std::process::id()));
    let c_path = CString::new(path.to_str().unwrap()).unwrap();
    assert!(!engine.write_profile(&c_path), "there is no profile yet");
    engine.start_profile(MEAN);
    let program = Program { engine: &engine, truth: Truth::default() };
    for _ in 0..2000 {
        program.alloc(0xabcd, 100);
    }
    assert!(engine.write_profile(&c_path));
    let text = fs::read_to_string(&path).unwrap();
    fs::remove_file(&path).unwrap();
    let mut lines = text.lines();
    let header = lines.next().unwrap();
    assert!(header.starts_with("heap profile: ") && header.ends_with("@ heap_v2/4096"), "{header}");
    assert_eq!(lines.next().unwrap(), format!("# pid: {}", std::process::id()));
    let stack = lines.next().unwrap();
    assert!(stack.ends_with("] @ 0xabce"), "{stack}");
    assert!(text.contains("\nMAPPED_LIBRARIES:\n") && text.contains("[stack]"), "{text}");
}

/// Samples a block, and returns what the engine said when it tried to write files.
fn said_after_a_sample(engine: &Engine<FakeOs>) -> String {
    let block = engine.alloc(100_000);
    // SAFETY: a live block, not used any more.
    unsafe { engine.free(block) };
    engine.os().printed()
}

/// What others hold counts for the limit too: the engine itself holds next to nothing here.
#[test]
fn near_the_limit_of_the_container_a_file_is_written() {
    let os = FakeOs::default().environment("EBB_PROFILE", "1000");
    let os = os.environment("EBB_PROFILE_AT", "limit:90%").environment("EBB_PROFILE_TO", "/dir");
    let engine = Engine::new(os);
    assert_eq!(said_after_a_sample(&engine), "");
    engine.os().sleep_ms(100);
    engine.os().take_memory(89);
    assert_eq!(said_after_a_sample(&engine), "");
    engine.os().take_memory(90);
    assert_eq!(said_after_a_sample(&engine), "", "the kernel was asked a moment ago");
    engine.os().sleep_ms(100);
    // The fake operating system has no files.
    let said = said_after_a_sample(&engine);
    assert!(said.contains("cannot write the heap profile to /dir/ebb.0.limit.heap"), "{said}");
    engine.os().sleep_ms(100);
    assert_eq!(said_after_a_sample(&engine), said, "once");
}

#[test]
fn near_the_limit_of_the_engine_a_file_is_written() {
    let os = FakeOs::default().environment("EBB_PROFILE", "1000");
    let os = os.environment("EBB_PROFILE_AT", "limit:50%").environment("EBB_LIMIT", "8M");
    let engine = Engine::new(os);
    assert_eq!(said_after_a_sample(&engine), "");
    let held = engine.alloc(5 << 20);
    let said = said_after_a_sample(&engine);
    assert!(said.contains("./ebb.0.limit.heap"), "{said}");
    // SAFETY: a live block, not used any more.
    unsafe { engine.free(held) };
}
