//! Passes batches of objects from producers, which only allocate, to consumers, which only free.
//! The allocator has to bring the memory back.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crossbeam_channel::{Receiver, Sender};
use fastrand::Rng;

use crate::block::{self, Block};
use crate::crew;
use crate::report::Report;
use crate::resident;
use crate::threads::Scale;

/// Of all producers together.
const BATCHES: usize = 40_000;
/// Objects in a batch.
const BATCH: usize = 100;
/// Maximum number of batches that wait in the channel.
const WAITING: usize = 100;

/// Draws the size of an object.
type Size = fn(&mut Rng) -> usize;

/// Runs with objects of one size in bytes, so that all threads use one size class.
pub fn run_alike(scale: Scale) -> Report {
    run(scale, |_| 1024)
}

pub fn run_mixed(scale: Scale) -> Report {
    run(scale, block::small_size)
}

fn run(Scale { threads, times }: Scale, size: Size) -> Report {
    let batches = BATCHES * times;
    let producers = (threads / 2).max(1);
    let consumers = (threads - producers).max(1);
    let (sender, receiver) = crossbeam_channel::bounded(WAITING);
    let (sent, received) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let work = |index: usize| {
        if index < producers {
            sent.fetch_add(
                produce(&sender, crew::share(batches, producers, index), index, size),
                Relaxed,
            );
        } else {
            let batches = crew::share(batches, consumers, index - producers);
            received.fetch_add(consume(&receiver, batches), Relaxed);
        }
    };
    let (seconds, freed) = crew::run(producers + consumers, work, resident::kib);
    assert_eq!(sent.into_inner(), received.into_inner(), "bytes sent and received");
    crew::report(seconds, freed)
}

/// Sends batches. Returns the bytes of all objects.
fn produce(sender: &Sender<Vec<Block>>, batches: usize, seed: usize, size: Size) -> usize {
    let mut rng = Rng::with_seed(seed as u64);
    let mut bytes = 0;
    for _ in 0..batches {
        let batch: Vec<_> = (0..BATCH).map(|_| Block::new(size(&mut rng))).collect();
        bytes += batch.iter().map(Block::size).sum::<usize>();
        sender.send(batch).expect("the receiver lives as long");
    }
    bytes
}

fn consume(receiver: &Receiver<Vec<Block>>, batches: usize) -> usize {
    let batch = || receiver.recv().expect("the sender lives as long");
    (0..batches).map(|_| batch().iter().map(Block::size).sum::<usize>()).sum()
}
