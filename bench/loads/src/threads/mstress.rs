//! Threads allocate objects, keep some, and pass some on through shared slots. Generation by
//! generation the threads end and new ones begin, while the objects in the slots stay.

use std::sync::atomic::{AtomicPtr, Ordering::AcqRel};

use fastrand::Rng;

use crate::block::{self, Block};
use crate::crew;
use crate::report::Report;
use crate::resident;
use crate::threads::Scale;

const GENERATIONS: usize = 2;
/// Of all threads together, in each generation.
const OBJECTS: usize = 1_280_000;
/// Kept by all threads together.
const KEPT: usize = 16_000;
/// Shared by all threads.
const SLOTS: usize = 4_000;

pub fn run(Scale { threads, times }: Scale) -> Report {
    let slots = Slots::new();
    let mut seconds = 0.0;
    let mut freed = 0.0;
    for generation in 0..GENERATIONS {
        let last = generation + 1 == GENERATIONS;
        let work = |index| {
            let objects = crew::share(OBJECTS * times, threads, index);
            work(&slots, objects, KEPT / threads, generation * threads + index)
        };
        let after = || {
            slots.clear(if last { 1 } else { 2 });
            resident::kib()
        };
        let time;
        (time, freed) = crew::run(threads, work, after);
        seconds += time;
    }
    crew::report(seconds, freed)
}

fn work(slots: &Slots, objects: usize, keeps: usize, seed: usize) {
    let mut rng = Rng::with_seed(seed as u64);
    let mut kept: Vec<Option<Block>> = Vec::new();
    kept.resize_with(keeps.max(1), || None);
    for _ in 0..objects {
        let mut object = Some(Block::new(size(&mut rng)));
        if rng.u32(..4) == 0 {
            object = slots.swap(rng.usize(..SLOTS), object);
        }
        let at = rng.usize(..kept.len());
        // This frees the object that was kept there.
        kept[at] = object;
    }
}

/// Returns a size; one in a thousand is large.
fn size(rng: &mut Rng) -> usize {
    if rng.u32(..1000) == 0 { block::any_size(rng, 2 << 10, 6) } else { block::small_size(rng) }
}

/// Places for objects, shared by all threads.
struct Slots(Vec<AtomicPtr<u8>>);

impl Slots {
    fn new() -> Self {
        Self((0..SLOTS).map(|_| AtomicPtr::default()).collect())
    }

    fn swap(&self, at: usize, object: Option<Block>) -> Option<Block> {
        let start = object.map_or(std::ptr::null_mut(), Block::into_raw);
        // SAFETY: each pointer in a slot is from `into_raw`, and only one swap takes it out.
        unsafe { Block::from_raw(self.0[at].swap(start, AcqRel)) }
    }

    /// Frees every `step`-th.
    fn clear(&self, step: usize) {
        for at in (0..SLOTS).step_by(step) {
            self.swap(at, None);
        }
    }
}
