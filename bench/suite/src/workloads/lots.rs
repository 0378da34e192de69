//! Cases with loads that are drawn by lot: sizes, lifetimes, threads and pauses that no one chose
//! (`loads lot`). They show kinds of loads that an allocator is bad at.
//!
//! `--draw N` draws N of them, `--only lots/NUMBER` asks for one.

use anyhow::Result;

use crate::case::{Case, Job};
use crate::kit::Kit;
use crate::workloads::drawn::Draw;

pub const GROUP: &str = "lots";
/// Loads to draw from.
const LOADS: u64 = 1_000_000;

pub fn cases(kit: &Kit) -> Result<Vec<Case>> {
    let numbers = numbers(&kit.draw);
    if numbers.is_empty() {
        return Ok(Vec::new());
    }
    let loads = kit.build("loads", "")?.join("loads");
    let case = |number: &u64| {
        let number = number.to_string();
        let about = format!("what `loads lot --show --seed {number}` tells");
        let job = Job::new(&loads).args(["lot", "--seed", &number]);
        Case::new(format!("{GROUP}/{number}"), &about, job).quick()
    };
    Ok(numbers.iter().map(case).collect())
}

/// The loads asked for, or else those drawn.
fn numbers(draw: &Draw) -> Vec<u64> {
    let prefix = format!("{GROUP}/");
    let asked = draw.only.iter().filter_map(|part| part.strip_prefix(&prefix)?.parse().ok());
    let mut numbers: Vec<u64> = asked.collect();
    if numbers.is_empty() {
        let mut rng = fastrand::Rng::with_seed(draw.seed);
        numbers = (0..draw.count).map(|_| rng.u64(..LOADS)).collect();
    }
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_are_drawn_or_asked_for() {
        let drawn = |count, seed| numbers(&Draw { count, seed, only: Vec::new() });
        assert!(drawn(0, 1).is_empty());
        assert_eq!(drawn(20, 1).len(), 20);
        assert_eq!(drawn(20, 1), drawn(20, 1));
        assert_ne!(drawn(20, 1), drawn(20, 2));
        let only = ["lots/7", "basic", "lots/7", "lots/3"].map(str::to_string).to_vec();
        assert_eq!(numbers(&Draw { count: 20, seed: 1, only }), [3, 7]);
    }
}
