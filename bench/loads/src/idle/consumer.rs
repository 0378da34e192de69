//! One thread allocates, and another only frees; both stay alive, idle, after the work.

use std::sync::{Mutex, mpsc};

use fastrand::Rng;

use super::blocks;
use super::watch::Watch;
use crate::crew;
use crate::report::Report;

const BATCHES: usize = 10;
/// In each batch: about 50 MiB.
const BLOCKS: usize = 200_000;

pub fn run(watch: &Watch) -> Report {
    // One batch is freed while the next is made.
    let (sender, receiver) = mpsc::sync_channel(0);
    let receiver = Mutex::new(receiver);
    let work = |index: usize| {
        if index == 0 {
            let mut rng = Rng::with_seed(1);
            for _ in 0..BATCHES {
                let batch = blocks::fill(watch, &mut rng, BLOCKS, 6);
                sender.send(batch).expect("the consumer lives as long");
            }
        } else {
            let receiver = receiver.lock().unwrap();
            for batch in receiver.iter().take(BATCHES) {
                blocks::free(watch, batch, None);
            }
        }
    };
    crew::run(2, work, || watch.rest()).1
}
