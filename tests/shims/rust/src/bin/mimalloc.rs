//! Uses mimalloc's crate as the allocator of a program, and its functions on heaps.

use libmimalloc_sys as mi;
use std::collections::HashMap;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let maps: Vec<_> = (0..4).map(|seed| std::thread::spawn(move || fill(seed))).collect();
    assert_eq!(maps.into_iter().map(|map| map.join().unwrap().len()).sum::<usize>(), 40_000);
    let text = String::from("a text");
    assert!(mimalloc::MiMalloc.version() > 0);
    // SAFETY: the block is in use; the heap and its blocks are not used after it is destroyed.
    unsafe {
        assert!(ALLOCATOR.usable_size(text.as_ptr()) >= text.len());
        let heap = mi::mi_heap_new();
        let block = mi::mi_heap_zalloc(heap, 1000);
        let grown = mi::mi_heap_rezalloc(heap, block, 100_000).cast::<u8>();
        assert!((0..100_000).all(|at| *grown.add(at) == 0));
        mi::mi_heap_destroy(heap);
        mi::mi_collect(true);
    }
    println!("served by ebbmalloc 0.1.0");
}

fn fill(seed: u32) -> HashMap<u32, Vec<u8>> {
    (0..10_000).map(|key| (key ^ seed, vec![0; (key % 500) as usize])).collect()
}
