//! Tests random programs against the shadow model, on one thread and on several.

use std::sync::mpsc;
use std::thread;

use ebbmalloc::internals::{Engine, SMALL_MAX};
use ebbmalloc_testkit::{Block, FakeOs, LinuxIn, Op, Program, TestOs, Worker};
use proptest::prelude::*;

/// Small, large and impossible sizes; none so large that filling the block takes long.
fn size() -> impl Strategy<Value = usize> {
    prop_oneof![
        6 => 0usize..=256,
        4 => 0usize..=4096,
        2 => SMALL_MAX - 4096..=SMALL_MAX + 64,
        1 => Just(0),
        1 => 0usize..=1 << 20,
        1 => prop_oneof![0..20u32, 41..64u32].prop_map(|shift| 1usize << shift),
        1 => usize::MAX - (1 << 20)..=usize::MAX,
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let nth = 0usize..1 << 16;
    prop_oneof![
        8 => size().prop_map(|size| Op::Alloc { size, align: 1 }),
        3 => (size(), 0..22u32).prop_map(|(size, shift)| Op::Alloc { size, align: 1 << shift }),
        3 => size().prop_map(|size| Op::AllocZeroed { size }),
        5 => nth.clone().prop_map(|nth| Op::Free { nth }),
        4 => nth.clone().prop_map(|nth| Op::FreeSized { nth }),
        6 => (nth.clone(), size()).prop_map(|(nth, size)| Op::Realloc { nth, size }),
        2 => (nth.clone(), size()).prop_map(|(nth, size)| Op::Resize { nth, size }),
        2 => (nth.clone(), size()).prop_map(|(nth, size)| Op::Remap { nth, size }),
        2 => nth.clone().prop_map(|nth| Op::UsableSize { nth }),
        1 => Just(Op::Trim),
        2 => nth.prop_map(|nth| Op::HandOver { nth }),
    ]
}

fn ops(most: usize) -> impl Strategy<Value = Vec<Op>> {
    prop::collection::vec(op(), 0..most)
}

/// Panics unless the engine, at rest, agrees that the program holds no memory.
fn check_empty<O: TestOs>(engine: &Engine<O>) {
    engine.check();
    let stats = engine.stats();
    assert_eq!((stats.live_bytes, stats.large_blocks), (0, 0), "{stats:?}");
}

/// Two workers on one thread, so that a block handed over is freed by the other worker.
fn run_single<O: TestOs>(engine: &Engine<O>, ops: &[Op]) {
    let (mut one, mut other) = (Worker::new(engine, 0), Worker::new(engine, 1));
    for &op in ops {
        if let Some(block) = one.apply(op) {
            std::mem::swap(&mut one, &mut other);
            one.receive(block);
        }
    }
    engine.check();
    let blocks = one.shadow().blocks().iter().chain(other.shadow().blocks());
    let live: usize = blocks.map(|block| block.usable).sum();
    assert_eq!(engine.stats().live_bytes, live as u64, "live bytes");
    one.free_all();
    other.free_all();
    check_empty(engine);
}

/// Runs each program on a thread of its own; each thread hands blocks to the next one, in a ring.
fn run_threads<O: TestOs + Send>(
    engine: &Engine<O>,
    programs: Vec<impl Iterator<Item = Op> + Send>,
) {
    let (senders, receivers): (Vec<_>, Vec<_>) =
        programs.iter().map(|_| mpsc::channel::<Block>()).unzip();
    thread::scope(|scope| {
        for (number, (ops, inbox)) in programs.into_iter().zip(receivers).enumerate() {
            let next = senders[(number + 1) % senders.len()].clone();
            scope.spawn(move || {
                let mut worker = Worker::new(engine, number as u32);
                for op in ops {
                    if let Some(block) = worker.apply(op) {
                        // Every thread receives until all senders are gone, unless a check has
                        // failed there.
                        let Ok(()) = next.send(block) else { return };
                    }
                    inbox.try_iter().for_each(|block| worker.receive(block));
                }
                drop(next);
                inbox.iter().for_each(|block| worker.receive(block));
                worker.shadow().check();
                worker.free_all();
                engine.leave_thread();
            });
        }
        drop(senders);
    });
    check_empty(engine);
}

/// `cases` cases, or fewer if `PROPTEST_CASES` asks for fewer.
fn config(cases: u32) -> ProptestConfig {
    let asked = ProptestConfig::default();
    ProptestConfig { cases: cases.min(asked.cases), failure_persistence: None, ..asked }
}

proptest! {
    #![proptest_config(config(100))]

    #[test]
    fn programs_on_a_fake(ops in ops(400), page_shift in 12..17u32, cpus in 1..4usize) {
        let os = FakeOs::default().watched().page(1 << page_shift).cpus(cpus);
        run_single(&Engine::new(os), &ops);
    }

    #[test]
    fn programs_in_thread_mode_on_a_fake(ops in ops(400), page_shift in 12..17u32) {
        let os = FakeOs::default().watched().page(1 << page_shift).mode("thread");
        run_single(&Engine::new(os), &ops);
    }

    #[test]
    fn programs_in_little_space(ops in ops(400)) {
        for mode in ["slot", "thread"] {
            let os = FakeOs::default().watched().space(8 << 20).mode(mode);
            run_single(&Engine::new(os), &ops);
        }
    }
}

proptest! {
    #![proptest_config(config(40))]

    #[test]
    fn programs_in_slot_mode(ops in ops(1000)) {
        run_single(&Engine::new(LinuxIn::new("slot")), &ops);
    }

    #[test]
    fn programs_in_percpu_mode(ops in ops(1000)) {
        run_single(&Engine::new(LinuxIn::new("percpu")), &ops);
    }

    #[test]
    fn programs_in_thread_mode(ops in ops(1000)) {
        run_single(&Engine::new(LinuxIn::new("thread")), &ops);
    }

    #[test]
    fn threads_on_a_fake(programs in prop::collection::vec(ops(400), 1..4)) {
        for mode in ["slot", "thread"] {
            let engine = Engine::new(FakeOs::default().watched().mode(mode));
            run_threads(&engine, programs.iter().cloned().map(Vec::into_iter).collect());
        }
    }
}

/// Runs long programs on more threads than there are caches.
fn threads_in(mode: &'static str) {
    threads_on(LinuxIn::new(mode));
}

fn threads_on(os: LinuxIn) {
    let engine = Engine::new(os);
    for round in 0..3 {
        let programs = (0..8).map(|seed| Program::new(round * 8 + seed).take(10_000)).collect();
        run_threads(&engine, programs);
    }
}

#[test]
fn threads_in_slot_mode() {
    threads_in("slot");
}

#[test]
fn threads_in_percpu_mode() {
    threads_in("percpu");
}

#[test]
fn threads_in_thread_mode() {
    threads_in("thread");
}

#[test]
fn threads_of_which_some_share_caches() {
    threads_on(LinuxIn::new("auto").without_rseq().cpus(1));
}

#[test]
fn memory_ebbs_back() {
    memory_ebbs_back_in("slot");
    memory_ebbs_back_in("thread");
}

fn memory_ebbs_back_in(mode: &'static str) {
    let engine = Engine::new(FakeOs::default().watched().cpus(1).mode(mode));
    let mut worker = Worker::new(&engine, 0);
    worker.run(Program::new(7).take(4000));
    worker.free_all();
    engine.trim();
    engine.check();
    let stats = engine.stats();
    assert_eq!((stats.spans, stats.cached_bytes, stats.dirty_bytes), (0, 0, 0), "{stats:?}");
    assert!(stats.purged_bytes > 0);
    assert_eq!(engine.os().resident(stats.committed_bytes as usize), 0);
}

#[test]
fn freed_blocks_are_not_written() {
    let engine = Engine::new(FakeOs::default());
    let blocks: Vec<Block> = (0..2000)
        .map(|i| {
            let start = engine.alloc(i % 700);
            let mut block = Block::new(start, i % 700, 1, engine.usable_size(start));
            block.fill(i as u64);
            block
        })
        .collect();
    for block in &blocks {
        // SAFETY: freed once; what follows reads memory of the fake, which still exists.
        unsafe { engine.free(block.start) };
    }
    blocks.iter().for_each(Block::check);
}
