//! Containers of the standard library in ebbmalloc and in a heap, by traits stable since Rust
//! 1.100.

use ebbmalloc::{EbbMalloc, Heap};

fn main() {
    let before = EbbMalloc::stats().live_bytes;
    let mut bytes = Vec::new_in(EbbMalloc);
    bytes.resize(100_000, 7u8);
    let boxed = Box::new_in([1u64; 1000], EbbMalloc);
    let used = EbbMalloc::stats().live_bytes - before;
    assert!(used >= 100_000 + 8_000, "{used} bytes live");
    assert!(bytes.iter().all(|&byte| byte == 7) && boxed[999] == 1);
    drop((bytes, boxed));
    assert_eq!(EbbMalloc::stats().live_bytes, before);

    let heap = Heap::with_limit(1 << 20);
    let mut words = Vec::new_in(&heap);
    words.extend((0..1000).map(|n: u64| n * n));
    assert!(heap.used() >= 8_000, "{} bytes in the heap", heap.used());
    assert!(words.try_reserve(1 << 20).is_err() && words[999] == 998_001);
    drop(words);
    assert_eq!(heap.used(), 0);

    let mut owned = Vec::new_in(heap.clone());
    owned.push(1);
    drop(heap);
    assert_eq!(std::thread::spawn(move || owned.len()).join().unwrap(), 1);
    println!("Hello, world!");
}
