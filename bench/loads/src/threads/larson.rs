//! Simulates a server: each thread has slots with objects, and replaces random ones by new ones.
//! After a while it hands its slots over to a new thread, its successor, and ends. So objects
//! outlive their threads, and are freed by others.

use std::thread::{self, Scope};

use fastrand::Rng;

use crate::block::{self, Block};
use crate::crew::{self, Stage};
use crate::report::Report;
use crate::resident;
use crate::threads::Scale;

/// Objects replaced, slots, and threads that end: of all threads together.
const OBJECTS: usize = 2_000_000;
const SLOTS: usize = 20_000;
const HANDOVERS: usize = 1000;

pub fn run(scale: Scale) -> Report {
    let Scale { threads, .. } = scale;
    let stage = Stage::new(threads);
    let (seconds, freed) = thread::scope(|scope| {
        for index in 0..threads {
            let stage = &stage;
            crew::start(scope, move || {
                let server = Server::new(scale, index);
                stage.begin();
                server.serve(scope, stage);
            });
        }
        stage.conclude(resident::kib)
    });
    crew::report(seconds, freed)
}

struct Server {
    rng: Rng,
    slots: Vec<Block>,
    /// Objects to replace before each handover, and handovers to come.
    term: usize,
    handovers: usize,
}

impl Server {
    fn new(Scale { threads, times }: Scale, index: usize) -> Self {
        let mut rng = Rng::with_seed(index as u64);
        let slots = crew::share(SLOTS, threads, index).max(1);
        let slots = (0..slots).map(|_| Block::new(block::small_size(&mut rng))).collect();
        let handovers = crew::share(HANDOVERS * times, threads, index);
        let term = crew::share(OBJECTS * times, threads, index) / (handovers + 1);
        Self { rng, slots, term, handovers }
    }

    fn serve<'scope>(mut self, scope: &'scope Scope<'scope, '_>, stage: &'scope Stage) {
        for _ in 0..self.term {
            let at = self.rng.usize(..self.slots.len());
            self.slots[at] = Block::new(block::small_size(&mut self.rng));
        }
        if self.handovers == 0 {
            drop(self);
            return stage.end();
        }
        self.handovers -= 1;
        crew::start(scope, move || self.serve(scope, stage));
    }
}
