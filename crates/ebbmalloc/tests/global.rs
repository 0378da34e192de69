//! Runs a whole Rust test program on ebbmalloc, threads and collections included.

use std::collections::{BTreeMap, HashMap};
use std::thread;

#[global_allocator]
static GLOBAL: ebbmalloc::EbbMalloc = ebbmalloc::EbbMalloc;

#[test]
fn collections_on_threads() {
    let before = ebbmalloc::internals::ENGINE.stats().live_bytes;
    let threads: Vec<_> = (0..8usize)
        .map(|seed| {
            thread::spawn(move || {
                let mut map = HashMap::new();
                let mut tree = BTreeMap::new();
                for i in 0..20_000 {
                    let value = vec![seed as u8; (i * 37 + seed) % 700];
                    map.insert(i % 5000, value.clone());
                    tree.insert(i % 3000, value);
                }
                (map, tree)
            })
        })
        .collect();
    let kept: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    let bytes: usize = kept.iter().flat_map(|(map, _)| map.values()).map(Vec::len).sum();
    let live = ebbmalloc::internals::ENGINE.stats().live_bytes - before;
    assert!(live as usize >= bytes, "{live} bytes live, {bytes} held");
    for (seed, (map, tree)) in kept.iter().enumerate() {
        assert!(map.values().chain(tree.values()).flatten().all(|&byte| byte == seed as u8));
    }
    drop(kept);
    assert!(ebbmalloc::internals::ENGINE.stats().live_bytes < before + live / 2);
}

#[test]
fn layouts_of_every_alignment() {
    use std::alloc::{Layout, alloc_zeroed, dealloc, realloc};
    for shift in 0..=22 {
        for size in [0, 1, 24, 100, 5000, 40_000, 200_000] {
            let layout = Layout::from_size_align(size.max(1), 1 << shift).unwrap();
            // SAFETY: layouts are not empty, and each block is freed with its own layout.
            unsafe {
                let block = alloc_zeroed(layout);
                assert!(!block.is_null() && block.addr().is_multiple_of(1 << shift));
                assert!((0..layout.size()).all(|i| block.add(i).read() == 0));
                block.write(7);
                let grown = realloc(block, layout, layout.size() * 3);
                assert!(grown.read() == 7 && grown.addr().is_multiple_of(1 << shift));
                let layout = Layout::from_size_align(layout.size() * 3, 1 << shift).unwrap();
                dealloc(grown, layout);
            }
        }
    }
}
