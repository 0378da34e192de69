//! Defines the rows: each is one loop over a [`Heap`], generic so that the timed loop is also the
//! checked one. Sizes and slots are drawn before the clock starts, into memory that the allocator
//! under test does not manage.

use std::cell::UnsafeCell;
use std::ptr;
use std::sync::Barrier;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::heap::{Checked, Heap, MIN_SIZE, Plain};
use crate::sample::{Samples, sample, sample_once, table};

pub struct Row {
    pub name: &'static str,
    pub about: &'static str,
    /// Measures for about this time.
    pub measure: fn(Duration) -> Samples,
    /// Runs the same loops with every block verified; panics on the first fault.
    pub check: fn(Duration) -> Samples,
}

macro_rules! rows {
    ($($name:literal $run:ident $(<$n:literal>)? $about:literal;)*) => {
        &[$(Row {
            name: $name,
            about: $about,
            measure: $run::<Plain $(, $n)?>,
            check: $run::<Checked $(, $n)?>,
        }),*]
    };
}

pub const ROWS: &[Row] = rows! {
    "pair-16" pair<16> "malloc(16), free at once";
    "pair-64" pair<64> "malloc(64), free at once";
    "pair-1024" pair<1024> "malloc(1024), free at once";
    "burst-64" burst<64> "64 blocks of 16..=256 bytes, then free them in the same order";
    "burst-1024" burst<1024> "1024 blocks of 16..=256 bytes, then free them in the same order";
    "fifo-10k" fifo "10,000 live blocks of 16..=512 bytes; the oldest is replaced";
    "random-small" random_small "20,000 live blocks of 16..1024 bytes, half as many per doubling; \
                                random replacement";
    "random-mixed" random_mixed "5,000 live blocks of 16 B..64 KiB, as many per doubling, \
                                each page written; random replacement";
    "large" large "64 live blocks of 32 KiB..2 MiB, each page written; random replacement";
    "calloc-mixed" calloc_mixed "1,000 live zeroed blocks of 16 B..64 KiB; random replacement";
    "realloc-grow" realloc_grow "four buffers grow in turn from 64 B to 1 MiB by half; \
                                ns per realloc";
    "two-threads" two_threads "random-small on two threads at once";
    "producer-consumer" producer_consumer "one thread allocates 16..1024 bytes, another \
                                           frees, in batches of 64";
    "threads-churn" threads_churn "a thread allocates 512 small blocks, frees half and ends; \
                                   its parent frees the rest";
    "mixed-run" mixed_run "a fixed program of four phases of growing sizes, 10 MiB each, \
                          an eighth of each kept: for its memory";
};

/// Finds a row for the command line.
pub fn parse(name: &str) -> Result<&'static Row> {
    let found = ROWS.iter().find(|row| row.name == name);
    found.context("no such row; micro --help lists them")
}

/// Lists the rows with their meaning, for `--help`.
pub fn list() -> String {
    let line = |row: &Row| format!("  {:<18} {}\n", row.name, row.about);
    format!("Rows:\n{}", ROWS.iter().map(line).collect::<String>())
}

/// Steps in a prepared sequence of sizes and slots.
const STEPS: usize = 1 << 16;

fn uniform(rng: &mut fastrand::Rng, low: usize, high: usize) -> u32 {
    rng.usize(low..=high) as u32
}

/// Draws a size; each doubling is as likely.
fn log_uniform(rng: &mut fastrand::Rng, low: usize, high: usize) -> u32 {
    (low as f64 * (high as f64 / low as f64).powf(rng.f64())) as u32
}

/// Draws 16..1024 bytes, each doubling half as likely: roughly the sizes that programs request.
fn geometric(rng: &mut fastrand::Rng) -> u32 {
    let low = MIN_SIZE << rng.u64(..).trailing_ones().min(5);
    uniform(rng, low, 2 * low - 1)
}

fn pair<H: Heap, const SIZE: usize>(budget: Duration) -> Samples {
    const PAIRS: usize = 8192;
    sample(budget, PAIRS, || {
        for _ in 0..PAIRS {
            // SAFETY: just allocated.
            unsafe { H::free(H::alloc(SIZE)) };
        }
    })
}

fn burst<H: Heap, const BLOCKS: usize>(budget: Duration) -> Samples {
    const PAIRS: usize = 8192;
    let mut rng = fastrand::Rng::with_seed(1);
    let sizes = table(PAIRS, |_| uniform(&mut rng, 16, 256));
    let slots = table(BLOCKS, |_| ptr::null_mut());
    sample(budget, PAIRS, || {
        for sizes in sizes.chunks_exact(BLOCKS) {
            for (slot, size) in slots.iter_mut().zip(sizes) {
                *slot = H::alloc(*size as usize);
            }
            for slot in slots.iter() {
                // SAFETY: the loop above filled the slot with a live block.
                unsafe { H::free(*slot) };
            }
        }
    })
}

/// Slots that are always full, and a prepared sequence of replacements that runs in a circle.
struct Slots {
    blocks: &'static mut [*mut u8],
    /// Index of the slot, and the size of its next block.
    steps: &'static [(u32, u32)],
}

impl Slots {
    fn new(
        blocks: usize,
        mut pick: impl FnMut(usize) -> u32,
        mut size: impl FnMut() -> u32,
        alloc: impl Fn(usize) -> *mut u8,
    ) -> Slots {
        Slots {
            blocks: table(blocks, |_| alloc(size() as usize)),
            steps: table(STEPS, |step| (pick(step), size())),
        }
    }

    fn random(
        seed: u64,
        blocks: usize,
        size: impl Fn(&mut fastrand::Rng) -> u32,
        alloc: impl Fn(usize) -> *mut u8,
    ) -> Slots {
        let mut picks = fastrand::Rng::with_seed(seed);
        let mut sizes = fastrand::Rng::with_seed(!seed);
        Slots::new(blocks, |_| picks.u32(..blocks as u32), || size(&mut sizes), alloc)
    }

    /// Replaces blocks, freeing the old one first, in chunks of `pairs` (a divisor of `STEPS`).
    /// Frees them all at the end.
    #[inline(always)]
    fn run<H: Heap>(
        self,
        budget: Duration,
        pairs: usize,
        alloc: impl Fn(usize) -> *mut u8,
    ) -> Samples {
        let mut chunks = self.steps.chunks_exact(pairs).cycle();
        let samples = sample(budget, pairs, || {
            for &(slot, size) in chunks.next().expect("STEPS is at least one chunk") {
                let slot = &mut self.blocks[slot as usize];
                // SAFETY: every slot holds a live block.
                unsafe { H::free(*slot) };
                *slot = alloc(size as usize);
            }
        });
        for block in self.blocks {
            // SAFETY: every slot holds a live block, and the slots are not used again.
            unsafe { H::free(*block) };
        }
        samples
    }
}

fn fifo<H: Heap>(budget: Duration) -> Samples {
    const BLOCKS: usize = 10_000;
    let mut rng = fastrand::Rng::with_seed(2);
    // The circle of steps is no multiple of the slots: at its end the order jumps once.
    let pick = |step: usize| (step % BLOCKS) as u32;
    Slots::new(BLOCKS, pick, || uniform(&mut rng, 16, 512), H::alloc).run::<H>(
        budget,
        4096,
        H::alloc,
    )
}

fn random_small<H: Heap>(budget: Duration) -> Samples {
    Slots::random(3, 20_000, geometric, H::alloc).run::<H>(budget, 4096, H::alloc)
}

fn random_mixed<H: Heap>(budget: Duration) -> Samples {
    let size = |rng: &mut _| log_uniform(rng, 16, 64 << 10);
    Slots::random(4, 5_000, size, H::alloc_touched).run::<H>(budget, 1024, H::alloc_touched)
}

fn large<H: Heap>(budget: Duration) -> Samples {
    let size = |rng: &mut _| log_uniform(rng, 32 << 10, 2 << 20);
    Slots::random(5, 64, size, H::alloc_touched).run::<H>(budget, 512, H::alloc_touched)
}

fn calloc_mixed<H: Heap>(budget: Duration) -> Samples {
    let size = |rng: &mut _| log_uniform(rng, 16, 64 << 10);
    Slots::random(6, 1_000, size, H::zeroed).run::<H>(budget, 1024, H::zeroed)
}

fn realloc_grow<H: Heap>(budget: Duration) -> Samples {
    const BUFFERS: usize = 4;
    const FIRST: usize = 64;
    let steps = || std::iter::successors(Some(FIRST * 3 / 2), |&size| Some(size * 3 / 2));
    let steps = move || steps().take_while(|&size| size <= 1 << 20);
    sample(budget, BUFFERS * steps().count(), || {
        let mut buffers = [FIRST; BUFFERS].map(H::alloc);
        for size in steps() {
            // SAFETY: live until freed below.
            buffers = buffers.map(|buffer| unsafe { H::grow(buffer, size) });
        }
        for buffer in buffers {
            // SAFETY: live, and not used again.
            unsafe { H::free(buffer) };
        }
    })
}

fn two_threads<H: Heap>(budget: Duration) -> Samples {
    let start = Barrier::new(2);
    let run = |seed| {
        let slots = Slots::random(seed, 20_000, geometric, H::alloc);
        start.wait();
        slots.run::<H>(budget, 4096, H::alloc)
    };
    thread::scope(|scope| {
        let other = scope.spawn(|| run(7));
        let mut samples = run(8);
        samples.append(other.join().expect("the other thread found a fault"));
        samples
    })
}

/// A bounded queue without locks, for batches on their way from one thread to the other.
struct Queue {
    batches: [UnsafeCell<Batch>; Queue::LENGTH],
    pushed: Position,
    popped: Position,
}

type Batch = [*mut u8; 64];

/// A position on a cache line of its own, as only one side writes it.
#[repr(align(128))]
struct Position(AtomicUsize);

// SAFETY: a batch belongs to the producer until `pushed` passes it, then to the consumer until
// `popped` does.
unsafe impl Sync for Queue {}

impl Queue {
    const LENGTH: usize = 64;

    fn new() -> Queue {
        Queue {
            batches: [const { UnsafeCell::new([ptr::null_mut(); 64]) }; Queue::LENGTH],
            pushed: Position(AtomicUsize::new(0)),
            popped: Position(AtomicUsize::new(0)),
        }
    }

    /// Waits until `position` is no longer `stuck`: spins first, then yields the CPU.
    fn wait(position: &Position, stuck: usize) {
        let mut spins = 0;
        while position.0.load(Ordering::Acquire) == stuck {
            spins += 1;
            if spins < 2000 { std::hint::spin_loop() } else { thread::yield_now() }
        }
    }

    fn push(&self, batch: Batch) {
        let position = self.pushed.0.load(Ordering::Relaxed);
        Queue::wait(&self.popped, position.wrapping_sub(Queue::LENGTH));
        // SAFETY: the consumer has left this batch; there is one producer.
        unsafe { *self.batches[position % Queue::LENGTH].get() = batch };
        self.pushed.0.store(position + 1, Ordering::Release);
    }

    fn pop(&self) -> Batch {
        let position = self.popped.0.load(Ordering::Relaxed);
        Queue::wait(&self.pushed, position);
        // SAFETY: the producer has filled this batch; there is one consumer.
        let batch = unsafe { *self.batches[position % Queue::LENGTH].get() };
        self.popped.0.store(position + 1, Ordering::Release);
        batch
    }
}

fn producer_consumer<H: Heap>(budget: Duration) -> Samples {
    const PAIRS: usize = 8192;
    const END: Batch = [ptr::null_mut(); 64];
    let mut rng = fastrand::Rng::with_seed(9);
    let sizes = table(PAIRS, |_| geometric(&mut rng));
    let queue = Queue::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            loop {
                let batch = queue.pop();
                if batch == END {
                    break;
                }
                for block in batch {
                    // SAFETY: a live block of the producer, which has given it to this thread.
                    unsafe { H::free(block) };
                }
            }
        });
        let samples = sample(budget, PAIRS, || {
            for sizes in sizes.chunks_exact(END.len()) {
                let mut batch = END;
                for (block, size) in batch.iter_mut().zip(sizes) {
                    *block = H::alloc(*size as usize);
                }
                queue.push(batch);
            }
        });
        queue.push(END);
        samples
    })
}

fn threads_churn<H: Heap>(budget: Duration) -> Samples {
    const BLOCKS: usize = 512;
    let mut rng = fastrand::Rng::with_seed(10);
    let sizes = table(BLOCKS, |_| geometric(&mut rng));
    let slots = table(BLOCKS, |_| AtomicPtr::new(ptr::null_mut()));
    // SAFETY: a block allocated below; one of the two loops that call this frees it.
    let free = |slot: &AtomicPtr<u8>| unsafe { H::free(slot.load(Ordering::Relaxed)) };
    sample(budget, BLOCKS, || {
        thread::scope(|scope| {
            scope.spawn(|| {
                for (slot, size) in slots.iter().zip(&*sizes) {
                    slot.store(H::alloc(*size as usize), Ordering::Relaxed);
                }
                slots.iter().step_by(2).for_each(free);
            });
        });
        slots.iter().skip(1).step_by(2).for_each(free);
    })
}

fn mixed_run<H: Heap>(_: Duration) -> Samples {
    const PHASE_BYTES: usize = 10 << 20;
    const CYCLES: usize = 4;
    let mut rng = fastrand::Rng::with_seed(11);
    let mut phases =
        [(16, 128), (128, 2 << 10), (2 << 10, 32 << 10), (32 << 10, 1 << 20)].map(|(low, high)| {
            let sizes = table(4096, |_| log_uniform(&mut rng, low, high));
            let mean = sizes.iter().map(|&size| size as usize).sum::<usize>() / sizes.len();
            (sizes, table(PHASE_BYTES / mean, |_| ptr::null_mut()))
        });
    let replace = |slot: &mut *mut u8, block| {
        let old = std::mem::replace(slot, block);
        if !old.is_null() {
            // SAFETY: a slot is null or holds a live block.
            unsafe { H::free(old) };
        }
    };
    // Each phase fills its slots, replaces twice as many at random, and frees seven of eight.
    let pairs = CYCLES * 3 * phases.iter().map(|(_, slots)| slots.len()).sum::<usize>();
    let samples = sample_once(pairs, || {
        for _ in 0..CYCLES {
            for (sizes, slots) in &mut phases {
                let fill = 0..slots.len();
                let shuffle = (0..2 * slots.len()).map(|_| rng.usize(..fill.end));
                for (slot, size) in fill.clone().chain(shuffle).zip(sizes.iter().cycle()) {
                    replace(&mut slots[slot], H::alloc_touched(*size as usize));
                }
                for (index, slot) in slots.iter_mut().enumerate() {
                    if index % 8 != 0 {
                        replace(slot, ptr::null_mut());
                    }
                }
            }
        }
    });
    for (_, slots) in &mut phases {
        slots.iter_mut().for_each(|slot| replace(slot, ptr::null_mut()));
    }
    samples
}
