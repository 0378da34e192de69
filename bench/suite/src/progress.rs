//! Prints the progress of a run on standard error.

use std::time::Instant;

use crate::plan::Plan;
use crate::results::Results;

/// Prints a line for each case and round.
pub struct Progress {
    total: usize,
    done: usize,
    ran: usize,
    begin: Instant,
    last: String,
}

impl Progress {
    pub fn new(plan: &Plan, rounds: u32, results: &Results) -> Self {
        let mut total = 0;
        let mut done = 0;
        for case in &plan.cases {
            let rounds = rounds.min(case.most_rounds);
            for allocator in plan.contenders(case) {
                total += rounds as usize;
                done +=
                    (1..=rounds).filter(|&r| results.has(&case.name, &allocator.name, r)).count();
            }
        }
        Self { total, done, ran: 0, begin: Instant::now(), last: String::new() }
    }

    pub fn begin(&mut self, case: &str, round: u32) {
        let label = format!("round {round}, {case}");
        if label == self.last {
            return;
        }
        let left = match self.ran {
            0 => String::new(),
            ran => {
                let each = self.begin.elapsed().as_secs_f64() / ran as f64;
                let seconds = each * (self.total - self.done) as f64;
                format!(", about {:.0} min left", (seconds / 60.0).ceil())
            }
        };
        eprintln!("[{}/{}] {label}{left}", self.done, self.total);
        self.last = label;
    }

    pub fn end(&mut self) {
        self.done += 1;
        self.ran += 1;
    }
}
