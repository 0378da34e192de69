//! Frees bursts of small objects of mixed sizes in mixed orders: the oldest first, the latest
//! first, every other one first, at random, and by another thread.

use std::mem;
use std::sync::Mutex;

use fastrand::Rng;

use crate::block::{self, Block};
use crate::crew;
use crate::report::Report;
use crate::resident;
use crate::threads::Scale;

/// Of all threads together.
const BURSTS: usize = 6400;
/// Objects in a burst.
const BURST: usize = 1000;

type Burst = Vec<Block>;

pub fn run(Scale { threads, times }: Scale) -> Report {
    // Bursts that a thread frees for its neighbour.
    let left: Vec<_> = (0..threads).map(|_| Mutex::new(Burst::new())).collect();
    let take = |index: usize| mem::take(&mut *left[index % threads].lock().unwrap());
    let work = |index: usize| {
        let mut rng = Rng::with_seed(index as u64);
        for round in 0..crew::share(BURSTS * times, threads, index) {
            let burst = (0..BURST).map(|_| Block::new(block::small_size(&mut rng))).collect();
            if round % 5 < 4 {
                free(burst, round % 5, &mut rng);
            } else {
                // Frees what the neighbour has not taken.
                drop(take(index + 1));
                *left[(index + 1) % threads].lock().unwrap() = burst;
                drop(take(index));
            }
        }
    };
    let after = || {
        (0..threads).for_each(|index| drop(take(index)));
        resident::kib()
    };
    let (seconds, freed) = crew::run(threads, work, after);
    crew::report(seconds, freed)
}

fn free(mut burst: Burst, order: usize, rng: &mut Rng) {
    match order {
        0 => {}
        1 => burst.reverse(),
        2 => {
            let mut every_other = false;
            burst.retain(|_| {
                every_other = !every_other;
                every_other
            });
        }
        _ => rng.shuffle(&mut burst),
    }
    drop(burst);
}
