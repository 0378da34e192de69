//! Maps and strings that all CPUs build and drop at once.

use std::collections::HashMap;

use rayon::prelude::*;

type Map = HashMap<String, Vec<usize>>;

const MAPS: usize = 64;
const ROUNDS: usize = 5;

/// Returns the number of keys in all rounds, and the lengths of the first ones.
pub fn run(entries: usize) -> usize {
    (0..ROUNDS).map(|round| run_round(entries, round)).sum()
}

fn run_round(entries: usize, round: usize) -> usize {
    let maps: Vec<Map> = (0..MAPS).into_par_iter().map(|map| fill(entries, map + round)).collect();
    let merged = maps.into_par_iter().reduce(Map::new, merge);
    let mut lines: Vec<String> =
        merged.par_iter().map(|(key, values)| format!("{key}:{}", values.len())).collect();
    lines.par_sort();
    lines.len() + lines[0].len()
}

fn fill(entries: usize, offset: usize) -> Map {
    let mut map = Map::new();
    for i in 0..entries {
        let key = format!("key{}", (i * 7919 + offset) % (entries / 4));
        map.entry(key).or_default().push(i);
    }
    map
}

fn merge(mut into: Map, from: Map) -> Map {
    for (key, mut values) in from {
        into.entry(key).or_default().append(&mut values);
    }
    into
}
