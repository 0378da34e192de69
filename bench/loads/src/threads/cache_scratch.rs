//! Tests passive false sharing: one thread allocates small objects side by side and gives one to
//! each worker. The workers free them, and go on allocating and writing. If an allocator keeps a
//! freed object for the thread that freed it, two threads write to one cache line for ever.

use std::sync::Mutex;

use crate::block::{Block, LEAST};
use crate::crew;
use crate::report::Report;
use crate::resident;
use crate::threads::Scale;

/// Objects allocated, written and freed, by all threads together.
const OBJECTS: usize = 1_000_000;
/// Writes to each object.
const WRITES: usize = 1000;

pub fn run(Scale { threads, times }: Scale) -> Report {
    let handed: Vec<_> = (0..threads).map(|_| Mutex::new(Some(Block::new(LEAST)))).collect();
    let work = |index: usize| {
        drop(handed[index].lock().unwrap().take());
        for _ in 0..crew::share(OBJECTS * times, threads, index) {
            Block::new(LEAST).rewrite(WRITES);
        }
    };
    let (seconds, freed) = crew::run(threads, work, resident::kib);
    crew::report(seconds, freed)
}
