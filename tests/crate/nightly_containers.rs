//! Containers that need more than the stable traits: maps, and clones of `Arc`.
#![feature(btreemap_alloc, allocator_ext)]

use std::collections::BTreeMap;
use std::sync::Arc;

use ebbmalloc::{EbbMalloc, Heap};

fn main() {
    let heap = Heap::new();
    let mut squares = BTreeMap::new_in(heap.clone());
    squares.extend((0..1000u64).map(|n| (n, n * n)));
    assert!(heap.used() >= 16_000 && squares[&999] == 998_001);
    drop(squares);
    assert_eq!(heap.used(), 0);

    let shared = Arc::new_in([1u64; 1000], EbbMalloc);
    let other = shared.clone();
    let sum = std::thread::spawn(move || other.iter().sum::<u64>()).join().unwrap();
    assert_eq!((sum, Arc::strong_count(&shared)), (1000, 1));
    println!("Hello, world!");
}
