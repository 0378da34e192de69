//! A load drawn by lot: a number chooses sizes, lifetimes, threads and pauses, so that an allocator
//! meets what no person has chosen.

use std::collections::VecDeque;
use std::mem;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;

use crate::block::{self, Block, LEAST};
use crate::report::Report;
use crate::{crew, resident};

#[derive(clap::Args)]
pub struct Args {
    /// The number that chooses the load
    #[arg(long)]
    seed: u64,
    /// Print to standard error what the load does
    #[arg(long)]
    show: bool,
}

/// The most blocks that a stage allocates, and the most bytes.
const BLOCKS_MAX: usize = 1_500_000;
const BYTES_MAX: usize = 2 << 30;
/// Blocks up to this size are written whole, others on each page.
const FILLED_BYTES_MAX: usize = 1024;
/// Places where threads leave blocks for others to free, and how many wait there at most.
const PLACES: usize = 16;
const WAITING_MAX: usize = 64;

/// Part of a load.
#[derive(Debug)]
struct Stage {
    /// Threads that work; 0: the first thread does.
    threads: usize,
    sizes: Sizes,
    order: Order,
    /// What all threads together hold at most, and allocate.
    live_bytes: usize,
    total_bytes: usize,
    /// How many of 100 blocks stay at the end, and at the end of a wave or frame.
    kept_percent: u32,
    /// Blocks are left in shared places; the thread that fills one frees all there.
    crosses: bool,
    /// How often a vector grows to the size of a block and goes, per 100 blocks.
    vectors_percent: u32,
    pause_ms: u64,
}

/// Sizes of blocks, in bytes.
#[derive(Debug)]
enum Sizes {
    /// `Doublings(least, n)`: one of `n` doublings from `least` on, then a size in it.
    Doublings(usize, u32),
    OneOf(Vec<usize>),
}

impl Sizes {
    fn draw(rng: &mut Rng) -> Self {
        let mut some = |most, doublings| {
            let count = rng.usize(1..=most);
            Self::OneOf((0..count).map(|_| block::any_size(rng, LEAST, doublings)).collect())
        };
        let of_few = [some(5, 8), some(3, 14)];
        let ranges = [(16, 4), (16, 7), (16, 10), (256, 5), (4096, 5), (64 << 10, 4), (1 << 20, 4)];
        let ranges = ranges.map(|(least, doublings)| Self::Doublings(least, doublings));
        let mut all: Vec<_> = of_few.into_iter().chain(ranges).collect();
        all.swap_remove(rng.usize(..all.len()))
    }

    fn next(&self, rng: &mut Rng) -> usize {
        match self {
            Self::Doublings(least, doublings) => block::any_size(rng, *least, *doublings),
            Self::OneOf(sizes) => sizes[rng.usize(..sizes.len())],
        }
    }

    fn mean(&self) -> usize {
        match self {
            Self::Doublings(least, doublings) => {
                ((least << doublings) - least) * 3 / 2 / *doublings as usize
            }
            Self::OneOf(sizes) => sizes.iter().sum::<usize>() / sizes.len(),
        }
    }
}

/// Which blocks go once a thread holds as much as it may.
#[derive(Clone, Copy, Debug)]
enum Order {
    /// The newest, until half is left.
    Newest,
    Oldest,
    Random,
    /// All but those kept, in random order.
    Waves,
    /// All but those kept, oldest first.
    Frames,
}

const ORDERS: [Order; 7] = [
    Order::Newest,
    Order::Oldest,
    Order::Random,
    Order::Random,
    Order::Waves,
    Order::Waves,
    Order::Frames,
];

fn draw_stages(rng: &mut Rng) -> Vec<Stage> {
    let threads = [0, 0, 1, 2, 4, 8][rng.usize(..6)];
    let live_bytes = (1 << 20) << rng.u32(..8);
    let count = rng.usize(1..6);
    let draw = |_| {
        let sizes = Sizes::draw(rng);
        let mean = sizes.mean();
        let live_bytes = (live_bytes / 2 + rng.usize(..live_bytes)).min(BLOCKS_MAX / 2 * mean);
        let total_bytes = live_bytes * rng.usize(1..20);
        Stage {
            threads,
            order: ORDERS[rng.usize(..ORDERS.len())],
            live_bytes,
            total_bytes: total_bytes.min(BLOCKS_MAX * mean).min(BYTES_MAX),
            kept_percent: [0, 0, 1, 5, 20][rng.usize(..5)],
            crosses: threads > 1 && rng.u32(..3) == 0,
            vectors_percent: [0, 0, 0, 1, 5][rng.usize(..5)],
            pause_ms: [0, 0, 0, 10, 100][rng.usize(..5)],
            sizes,
        }
    };
    (0..count).map(draw).collect()
}

pub fn run(args: &Args) -> Report {
    let mut rng = Rng::with_seed(args.seed);
    let stages = draw_stages(&mut rng);
    let began = Instant::now();
    let mut held: Vec<_> = (0..stages[0].threads.max(1)).map(|_| VecDeque::new()).collect();
    let places: [Place; PLACES] = Default::default();
    for stage in &stages {
        let mut workers: Vec<_> = held
            .iter_mut()
            .map(|held| Worker { stage, held, live: 0, rng: rng.fork(), places: &places })
            .collect();
        match stage.threads {
            0 => workers[0].work(),
            _ => thread::scope(|scope| {
                workers.iter_mut().for_each(|worker| crew::start(scope, || worker.work()));
            }),
        }
        if args.show {
            let (seconds, mib) = (began.elapsed().as_secs_f64(), resident::kib() / 1024.0);
            eprintln!("{stage:?}: {seconds:.2} s so far, {mib:.0} MiB resident");
        }
        thread::sleep(Duration::from_millis(stage.pause_ms));
    }
    drop((held, places));
    crew::report(began.elapsed().as_secs_f64(), resident::kib())
}

/// Where blocks wait for another thread to free them.
type Place = Mutex<Vec<Block>>;

/// A thread's part of a stage.
struct Worker<'a> {
    stage: &'a Stage,
    held: &'a mut VecDeque<Block>,
    /// Bytes in the blocks held.
    live: usize,
    rng: Rng,
    places: &'a [Place; PLACES],
}

impl Worker<'_> {
    fn work(&mut self) {
        let stage = self.stage;
        let share = |bytes| bytes / stage.threads.max(1);
        let (live_max, mut left) = (share(stage.live_bytes), share(stage.total_bytes));
        self.live = self.held.iter().map(Block::size).sum();
        while left > 0 {
            let size = stage.sizes.next(&mut self.rng);
            if self.rng.u32(..100) < stage.vectors_percent {
                self.grow_vector(size);
            }
            let mut block = Block::new(size);
            if size <= FILLED_BYTES_MAX {
                block.fill();
            }
            self.held.push_back(block);
            self.live += size;
            left = left.saturating_sub(size);
            if self.live > live_max {
                self.free_some(live_max);
            }
        }
        self.shrink();
    }

    fn grow_vector(&self, bytes: usize) {
        let mut vector = Vec::new();
        (0..bytes / size_of::<usize>()).for_each(|nth| vector.push(nth));
        std::hint::black_box(&vector);
    }

    fn free_some(&mut self, live_max: usize) {
        match self.stage.order {
            Order::Newest => self.free_down_to(live_max / 2, |held, _| held.pop_back()),
            Order::Oldest => self.free_down_to(live_max, |held, _| held.pop_front()),
            Order::Random => self
                .free_down_to(live_max, |held, rng| held.swap_remove_back(rng.usize(..held.len()))),
            Order::Waves => {
                self.rng.shuffle(self.held.make_contiguous());
                self.shrink();
            }
            Order::Frames => self.shrink(),
        }
    }

    fn free_down_to(
        &mut self,
        live: usize,
        next: impl Fn(&mut VecDeque<Block>, &mut Rng) -> Option<Block>,
    ) {
        while self.live > live && !self.held.is_empty() {
            let block = next(self.held, &mut self.rng).expect("a block is held");
            self.free(block);
        }
    }

    /// Frees all blocks but those kept.
    fn shrink(&mut self) {
        for _ in 0..self.held.len() {
            let block = self.held.pop_front().expect("a block is held");
            match self.rng.u32(..100) < self.stage.kept_percent {
                true => self.held.push_back(block),
                false => self.free(block),
            }
        }
    }

    /// Frees a block, or leaves it to another thread.
    fn free(&mut self, block: Block) {
        self.live -= block.size();
        if !self.stage.crosses {
            return;
        }
        let place = &self.places[self.rng.usize(..PLACES)];
        let mut waiting = place.lock().expect("no thread panics");
        waiting.push(block);
        if waiting.len() > WAITING_MAX {
            let taken = mem::take(&mut *waiting);
            drop(waiting);
            drop(taken);
        }
    }
}
