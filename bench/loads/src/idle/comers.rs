//! Short threads run, some at a time; each leaves some blocks behind that stay.

use std::sync::Mutex;
use std::thread;

use fastrand::Rng;

use super::blocks;
use super::watch::Watch;
use crate::crew;
use crate::report::Report;

const WAVES: u64 = 625;
const THREADS: u64 = 16;
/// Of each thread: about 125 KiB, of which a fiftieth stays.
const BLOCKS: usize = 500;
const KEEP: usize = 50;

pub fn run(watch: &Watch) -> Report {
    let left = Mutex::new(Vec::with_capacity((WAVES * THREADS) as usize));
    for wave in 0..WAVES {
        thread::scope(|scope| {
            for index in 0..THREADS {
                let left = &left;
                crew::start(scope, move || {
                    let mut rng = Rng::with_seed(wave * THREADS + index);
                    let all = blocks::fill(watch, &mut rng, BLOCKS, 6);
                    let kept = blocks::free(watch, all, Some(KEEP));
                    left.lock().unwrap().push(kept);
                });
            }
        });
    }
    watch.rest()
}
