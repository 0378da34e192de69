//! Counts the words of its standard input, on ebbmalloc.
//!
//!     EBB_STATS=1 cargo run --release -p ebbmalloc --example words < README.md

use std::collections::HashMap;
use std::io;

#[global_allocator]
static GLOBAL: ebbmalloc::EbbMalloc = ebbmalloc::EbbMalloc;

fn main() -> io::Result<()> {
    let mut counts = HashMap::new();
    for line in io::stdin().lines() {
        for word in line?.split_whitespace() {
            *counts.entry(word.to_owned()).or_insert(0) += 1;
        }
    }
    let mut words: Vec<(String, u32)> = counts.into_iter().collect();
    words.sort_by(|(a, m), (b, n)| n.cmp(m).then(a.cmp(b)));
    for (word, count) in words.iter().take(10) {
        println!("{count:6} {word}");
    }
    Ok(())
}
