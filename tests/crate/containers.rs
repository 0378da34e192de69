//! Containers of several crates in ebbmalloc and in a heap, while the program uses the system's
//! malloc.

use std::alloc::Layout;

use allocator_api2::alloc::Allocator;
use allocator_api2::boxed::Box;
use allocator_api2::vec::Vec;
use bump_scope::Bump;
use bump_scope::alloc::compat::AllocatorApi2V02Compat;
use ebbmalloc::{EbbMalloc, Heap};
use hashbrown::{DefaultHashBuilder, HashMap};

fn resident_kib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// Pages that were never touched stay so when a block gets another alignment.
fn sparse() {
    let layout = |mib: usize, align| Layout::from_size_align(mib << 20, align).unwrap();
    let (old, new) = (layout(200, 8), layout(300, 64));
    let before = resident_kib();
    // SAFETY: the block is used as its layout says, and freed once.
    unsafe {
        let block = EbbMalloc.allocate(old).unwrap().cast::<u8>();
        block.write(7);
        let block = EbbMalloc.grow(block, old, new).unwrap().cast::<u8>();
        assert_eq!(block.read(), 7);
        assert!(resident_kib() < before + (20 << 10), "{} KiB", resident_kib());
        EbbMalloc.deallocate(block, new);
    }
}

fn live() -> u64 {
    EbbMalloc::stats().live_bytes
}

fn main() {
    sparse();
    let before = live();
    let mut bytes = Vec::new_in(EbbMalloc);
    bytes.resize(100_000, 7u8);
    let boxed = Box::new_in([1u64; 1000], EbbMalloc);
    let mut squares = HashMap::with_hasher_in(DefaultHashBuilder::default(), EbbMalloc);
    squares.extend((0..10_000u64).map(|n| (n, n * n)));
    let used = live() - before;
    assert!(used >= 100_000 + 8_000 + 160_000, "{used} bytes live");
    assert!(bytes.iter().all(|&byte| byte == 7) && boxed[999] == 1 && squares[&99] == 9801);
    drop((bytes, boxed, squares));
    assert_eq!(live(), before);

    let heap = Heap::with_limit(1 << 20);
    let mut words = Vec::new_in(&heap);
    words.extend((0..1000).map(|n: u64| n * n));
    let mut lengths = HashMap::with_hasher_in(DefaultHashBuilder::default(), &heap);
    lengths.extend((0..1000u64).map(|n| (n, n)));
    let bump: Bump<_> = Bump::new_in(AllocatorApi2V02Compat(&heap));
    assert_eq!(&*bump.alloc_str("ebb"), "ebb");
    let used = heap.used();
    assert!(used >= 8_000 + 16_000 + 3, "{used} bytes in the heap");
    assert_eq!((words[999], lengths[&999]), (998_001, 999));

    // All containers share the limit.
    assert!(words.try_reserve(1 << 20).is_err() && lengths.try_reserve(1 << 20).is_err());
    assert_eq!(heap.used(), used);
    drop((bump, words, lengths));
    assert_eq!(heap.used(), 0);

    // Containers that own the heap, on another thread.
    let mut owned = Vec::new_in(heap.clone());
    owned.push(1);
    drop(heap);
    assert_eq!(std::thread::spawn(move || owned.len()).join().unwrap(), 1);
    assert_eq!(live(), before);
    println!("Hello, world!");
}
