//! Entry points of the fuzzers: each makes a program from any bytes, runs it against the shadow
//! model, and audits the whole heap afterwards. They panic if anything is wrong.
//!
//! A program runs in turn on one thread, where equal bytes do equal things, or on several at once.

use std::sync::mpsc;
use std::thread;

use arbitrary::{Arbitrary, Unstructured};
use ebbmalloc::internals::{Engine, HeapId};

use crate::case::{Case, Step, WORKERS};
use crate::{Block, TestOs, Worker};

/// Runs a program on one thread, on the fake operating system.
pub fn alternate(bytes: &[u8]) {
    if let Some(case) = case(bytes) {
        in_turn(&Engine::new(case.platform.fake()), &case.steps);
    }
}

/// Runs a program on one thread, on the real operating system in percpu mode.
pub fn alternate_percpu(bytes: &[u8]) {
    if let Some(case) = case(bytes) {
        in_turn(&Engine::new(case.platform.linux(Some("percpu"))), &case.steps);
    }
}

/// Runs a program on several threads, on the fake and on the real operating system.
pub fn together(bytes: &[u8]) {
    if let Some(case) = case(bytes) {
        at_once(&Engine::new(case.platform.fake()), &case.steps);
        at_once(&Engine::new(case.platform.linux(None)), &case.steps);
    }
}

/// Runs a program on several threads, on the real operating system in percpu mode.
pub fn together_percpu(bytes: &[u8]) {
    if let Some(case) = case(bytes) {
        at_once(&Engine::new(case.platform.linux(Some("percpu"))), &case.steps);
    }
}

fn case(bytes: &[u8]) -> Option<Case> {
    Case::arbitrary_take_rest(Unstructured::new(bytes)).ok()
}

/// A run on one thread: the workers of an engine, and the heaps that they share.
struct Run<'a, O: TestOs> {
    engine: &'a Engine<O>,
    workers: [Worker<'a, O>; WORKERS],
    heaps: Vec<(HeapId, usize)>,
    /// Heaps not made for want of memory.
    failed_heaps: usize,
}

fn in_turn<O: TestOs>(engine: &Engine<O>, steps: &[(usize, Step)]) {
    let workers = std::array::from_fn(|number| Worker::new(engine, number as u32));
    let mut run = Run { engine, workers, heaps: Vec::new(), failed_heaps: 0 };
    steps.iter().for_each(|&(worker, step)| run.step(worker, step));
    run.check();
    let nulls = run.failed_heaps + run.workers.iter().map(Worker::nulls).sum::<usize>();
    if let Some(shortages) = engine.os().shortages() {
        assert_eq!(shortages, nulls, "nulls, and how many of them the platform was told of");
    }
    run.workers.iter_mut().for_each(Worker::free_all);
    while !run.heaps.is_empty() {
        run.delete_heap(0);
    }
    engine.leave_thread();
    finish(engine);
}

impl<O: TestOs> Run<'_, O> {
    fn step(&mut self, worker: usize, step: Step) {
        let engine = self.engine;
        match step {
            Step::Op(op) => {
                if let Some(block) = self.workers[worker].apply(op) {
                    self.workers[(worker + 1) % WORKERS].receive(block);
                }
            }
            Step::NewHeap { limit } => {
                if self.heaps.len() == 4 {
                    self.delete_heap(worker);
                }
                match engine.new_heap(limit) {
                    Some(heap) => {
                        self.heaps.push((heap, limit));
                        self.workers[worker].move_to(Some((heap, limit)));
                    }
                    None => self.failed_heaps += 1,
                }
            }
            Step::Enter { nth } => self.workers[worker].move_to(self.heaps.get(nth).copied()),
            Step::DeleteHeap { nth } if nth < self.heaps.len() => self.delete_heap(nth),
            Step::DeleteHeap { .. } => {}
            Step::Fork { child } => {
                engine.before_fork();
                if child { engine.after_fork_in_child() } else { engine.after_fork() }
            }
            Step::Check => self.check(),
            _ => common(engine, step),
        }
    }

    fn delete_heap(&mut self, nth: usize) {
        let (heap, _) = self.heaps.swap_remove(nth);
        self.workers.iter_mut().for_each(|worker| worker.forget(heap));
        // SAFETY: all workers have forgotten its blocks.
        unsafe { self.engine.delete_heap(heap, "a test") };
    }

    /// Checks all blocks, the whole heap, and the limits.
    fn check(&self) {
        let blocks = || self.workers.iter().flat_map(|worker| worker.shadow().blocks());
        blocks().for_each(Block::check);
        self.engine.check_with(&blocks().map(|block| block.start).collect::<Vec<_>>());
        let stats = self.engine.stats();
        let within = stats.limit_bytes == 0 || stats.held_bytes <= stats.limit_bytes;
        assert!(within, "{} bytes of {}", stats.held_bytes, stats.limit_bytes);
        let of_heaps = blocks().filter(|block| block.heap.is_some());
        let used: usize = of_heaps.map(|block| block.usable).sum();
        assert!(used as u64 <= stats.heap_bytes, "{used} bytes of heaps, {stats:?}");
    }
}

/// Performs a step that does not depend on the number of threads.
fn common<O: TestOs>(engine: &Engine<O>, step: Step) {
    let os = engine.os();
    match step {
        Step::Idle(ms) => {
            os.pass(ms);
            engine.idle();
        }
        Step::Leave => engine.leave_thread(),
        Step::Refuse { after, calls } => os.faults().refuse_next(after..after + calls),
        Step::Heal => os.faults().heal(),
        _ => {}
    }
}

/// Runs each worker's steps on its own thread. Workers hand blocks to the next worker.
fn at_once<O: TestOs + Send>(engine: &Engine<O>, steps: &[(usize, Step)]) {
    let (senders, receivers): (Vec<_>, Vec<_>) =
        (0..WORKERS).map(|_| mpsc::channel::<Block>()).unzip();
    let heaps: Vec<HeapId> = thread::scope(|scope| {
        let spawn = |(own, inbox): (usize, mpsc::Receiver<Block>)| {
            let next = senders[(own + 1) % WORKERS].clone();
            scope.spawn(move || {
                let mut worker = Worker::new(engine, own as u32);
                let mut heaps = Vec::new();
                for &(_, step) in steps.iter().filter(|(worker, _)| *worker == own) {
                    match step {
                        Step::Op(op) => {
                            if let Some(block) = worker.apply(op) {
                                // Workers receive until all senders are gone. Fails if a check has
                                // failed in the next worker.
                                let Ok(()) = next.send(block) else { return heaps };
                            }
                        }
                        Step::NewHeap { limit } if heaps.len() < 4 => {
                            // The worker cannot judge the limit: frees of others change the heap's
                            // use.
                            let heap = engine.new_heap(limit);
                            heaps.extend(heap);
                            worker.move_to(heap.map(|heap| (heap, limit)));
                        }
                        Step::Enter { .. } => worker.move_to(None),
                        Step::Fork { .. } => {
                            engine.before_fork();
                            engine.after_fork();
                        }
                        Step::Check => worker.shadow().check(),
                        _ => common(engine, step),
                    }
                    inbox.try_iter().for_each(|block| worker.receive(block));
                }
                drop(next);
                inbox.iter().for_each(|block| worker.receive(block));
                worker.shadow().check();
                worker.free_all();
                engine.leave_thread();
                heaps
            })
        };
        let threads: Vec<_> = receivers.into_iter().enumerate().map(spawn).collect();
        drop(senders);
        threads.into_iter().flat_map(|thread| thread.join().expect("no check failed")).collect()
    });
    engine.check_with(&[]);
    // SAFETY: all workers have freed all of their blocks.
    heaps.into_iter().for_each(|heap| unsafe { engine.delete_heap(heap, "a test") });
    finish(engine);
}

/// Checks that no memory is left in use once the program holds no block.
fn finish<O: TestOs>(engine: &Engine<O>) {
    engine.check_with(&[]);
    engine.os().faults().heal();
    engine.trim();
    engine.check_with(&[]);
    let stats = engine.stats();
    if !engine.wants_stacks() {
        let left = (stats.spans, stats.large_blocks, stats.heaps, stats.cached_bytes);
        assert_eq!(left, (0, 0, 0, 0), "{stats:?}");
        assert_eq!((stats.dirty_bytes, stats.held_bytes), (0, 0), "{stats:?}");
    }
}
