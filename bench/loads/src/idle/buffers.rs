//! Two threads replace buffers of 64 to 256 KiB at random, and then only keep the last ones.

use std::sync::Mutex;

use fastrand::Rng;

use super::watch::Watch;
use crate::block::{self, Block};
use crate::crew;
use crate::report::Report;

const THREADS: usize = 2;
/// Of each thread: about 60 MiB.
const BUFFERS: usize = 500;
const TIMES: usize = 20_000;
const LEAST: usize = 64 << 10;

pub fn run(watch: &Watch) -> Report {
    let kept = Mutex::new(Vec::new());
    let work = |index: usize| {
        let mut rng = Rng::with_seed(index as u64);
        let buffer = |rng: &mut Rng| {
            let buffer = Block::new(block::any_size(rng, LEAST, 2));
            watch.live(buffer.size() as isize);
            buffer
        };
        let mut buffers: Vec<_> = (0..BUFFERS).map(|_| buffer(&mut rng)).collect();
        for _ in 0..TIMES {
            let old = &mut buffers[rng.usize(..BUFFERS)];
            watch.live(-(old.size() as isize));
            *old = buffer(&mut rng);
        }
        kept.lock().unwrap().push(buffers);
    };
    crew::run(THREADS, work, || watch.rest()).1
}
