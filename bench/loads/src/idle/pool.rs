//! A pool of threads has bursts of work with pauses between, and then idles.

use std::thread;
use std::time::Duration;

use fastrand::Rng;

use super::blocks;
use super::watch::Watch;
use crate::crew;
use crate::report::Report;

const THREADS: usize = 8;
const BURSTS: usize = 20;
/// In each burst of a thread: about 5 MiB.
const BLOCKS: usize = 20_000;
const PAUSE: Duration = Duration::from_millis(10);

pub fn run(watch: &Watch) -> Report {
    let work = |index: usize| {
        let mut rng = Rng::with_seed(index as u64);
        for _ in 0..BURSTS {
            let mut burst = blocks::fill(watch, &mut rng, BLOCKS, 6);
            rng.shuffle(&mut burst);
            blocks::free(watch, burst, None);
            thread::sleep(PAUSE);
        }
    };
    crew::run(THREADS, work, || watch.rest()).1
}
