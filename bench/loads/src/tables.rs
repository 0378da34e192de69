//! Counts for each of many words how often each other word follows it, in tables that grow
//! together. All tables double at about the same time, and free blocks of a size that is not needed
//! any more.

use std::collections::HashMap;

use anyhow::{Result, ensure};

use crate::report::Report;

/// Words of the text, each as frequent as the others.
const WORDS: u32 = 5_000;
const LENGTH: usize = 600_000;

pub fn run() -> Result<Report> {
    let mut random = fastrand::Rng::with_seed(1);
    let mut followers: HashMap<String, HashMap<String, usize>> = HashMap::new();
    let mut before = String::new();
    for _ in 0..LENGTH {
        let word = format!("word {}", random.u32(..WORDS));
        *followers.entry(before).or_default().entry(word.clone()).or_default() += 1;
        before = word;
    }
    let counted: usize = followers.values().flat_map(HashMap::values).sum();
    ensure!(counted == LENGTH, "{counted} words of {LENGTH} were counted");
    Ok(Report::new())
}
