//! Tests what holds on every target: where the engine runs, and where the system's allocator
//! serves. `cargo xtask targets` runs it on those for which a machine or an emulator is there.

use std::alloc::{GlobalAlloc, Layout, alloc, alloc_zeroed, dealloc, realloc};
use std::fs;
use std::ptr::NonNull;

use ebbmalloc::{EbbMalloc, Global, Heap, ModeChoice, SetError, profile};

#[global_allocator]
static GLOBAL: EbbMalloc = EbbMalloc;

const SIZES: [usize; 8] = [1, 15, 16, 100, 1024, 5000, 65_536, 70_000];
/// Miri takes a thousand times as long.
const ROUNDS: usize = if cfg!(miri) { 3 } else { 200 };
const STEP: usize = if cfg!(miri) { 61 } else { 1 };

fn layout(size: usize, align: usize) -> Layout {
    Layout::from_size_align(size, align).unwrap()
}

fn fill(block: NonNull<u8>, bytes: usize, value: u8) {
    // SAFETY: every caller passes a block of at least this length.
    unsafe { block.write_bytes(value, bytes) }
}

fn holds(block: NonNull<u8>, bytes: usize, value: u8) -> bool {
    // SAFETY: as for `fill`, and the bytes were written.
    (0..bytes).step_by(STEP).all(|at| unsafe { block.add(at).read() } == value)
}

/// Resident bytes of this process, where `/proc` tells them. Miri looks for leaks itself.
fn resident_bytes() -> Option<usize> {
    if cfg!(miri) {
        return None;
    }
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.split_whitespace().next()?.parse::<usize>().unwrap() << 10)
}

#[test]
fn statistics_say_who_serves() {
    let is_ours = cfg!(all(
        any(
            target_os = "linux",
            all(target_os = "macos", feature = "macos"),
            all(target_os = "freebsd", feature = "freebsd"),
            all(target_os = "android", feature = "android"),
            all(windows, target_arch = "x86_64")
        ),
        target_pointer_width = "64",
        target_endian = "little",
        not(ebbmalloc_forward)
    ));
    assert_eq!(EbbMalloc::is_active(), is_ours);
    let kept = vec![1u8; 1 << 20];
    let stats = EbbMalloc::stats();
    let mut text = String::new();
    stats.write_text(&mut text).unwrap();
    assert_eq!(stats.live_bytes > 0, is_ours, "{text}");
    assert_eq!(stats.choice.mode == "system", !is_ours, "{text}");
    let first = text.lines().next().unwrap();
    assert_eq!(first.contains("the system's allocator serves"), !is_ours, "{first}");
    for format in [
        ebbmalloc::Stats::write_json,
        ebbmalloc::Stats::write_openmetrics,
        ebbmalloc::Stats::write_prometheus,
    ] {
        let mut text = String::new();
        format(&stats, &mut text).unwrap();
        assert!(text.contains(stats.choice.why), "{text}");
    }
    drop(kept);
    EbbMalloc::trim();
    EbbMalloc::idle();
}

/// Where the engine runs, it has its options already when this allocator is used.
#[test]
fn options_have_an_effect_where_the_engine_runs() {
    const OTHER: EbbMalloc = EbbMalloc::new().mode(ModeChoice::Slot).limit(1 << 20).fixed();
    for allocator in [&OTHER as &dyn GlobalAlloc, &EbbMalloc::default(), &Global] {
        let large = layout(4 << 20, 8);
        // SAFETY: the block is used as its layout says, and freed once.
        unsafe {
            let block = NonNull::new(allocator.alloc_zeroed(large)).unwrap();
            assert!(holds(block, 100, 0));
            allocator.dealloc(block.as_ptr(), large);
        }
    }
    let (known, unknown) = match EbbMalloc::is_active() {
        true => (Ok(()), Err(SetError::UnknownName)),
        false => (Err(SetError::NotHere), Err(SetError::NotHere)),
    };
    assert_eq!(EbbMalloc::set("limit", "off"), known);
    assert_eq!(EbbMalloc::set("limits", "off"), unknown);
    assert!(SetError::NotHere.to_string().contains("the system's allocator serves"));
    EbbMalloc::on_refusal(None);
    EbbMalloc::on_pressure(90, None);
}

#[test]
fn a_profile_is_there_where_the_engine_runs() {
    assert_eq!(profile::start(profile::MEAN_BYTES), EbbMalloc::is_active());
    assert_eq!(profile::snapshot().is_some(), EbbMalloc::is_active());
    profile::stop();
}

#[test]
fn blocks_keep_their_bytes_and_alignment() {
    for size in SIZES {
        for align in [1, 8, 16, 64, 4096] {
            let (old, new) = (layout(size, align), layout(size * 2, align));
            // SAFETY: each block is used as its layout says, and freed once.
            unsafe {
                let block = NonNull::new(alloc_zeroed(old)).unwrap();
                assert!(holds(block, size, 0) && block.addr().get().is_multiple_of(align));
                fill(block, size, 7);
                let block = NonNull::new(realloc(block.as_ptr(), old, new.size())).unwrap();
                assert!(holds(block, size, 7) && block.addr().get().is_multiple_of(align));
                dealloc(block.as_ptr(), new);
                let block = alloc(old);
                assert!(!block.is_null());
                dealloc(block, old);
            }
        }
    }
}

#[test]
fn blocks_of_a_heap_keep_their_bytes_and_alignment() {
    let heap = Heap::new();
    let mut blocks = Vec::new();
    for (nth, size) in SIZES.into_iter().cycle().take(3 * SIZES.len()).enumerate() {
        let align = [1, 16, 128, 4096][nth % 4];
        let block = heap.alloc_zeroed(layout(size, align)).unwrap();
        assert!(holds(block, size, 0) && block.addr().get().is_multiple_of(align));
        fill(block, size, nth as u8);
        blocks.push((block, size));
    }
    let used = heap.used();
    assert!(used >= blocks.iter().map(|(_, size)| size).sum());
    // Each block once grows, shrinks, or gets another alignment; its neighbours stay.
    for (nth, (block, size)) in blocks.iter_mut().enumerate() {
        let new = [*size * 3, *size / 2 + 1, *size][nth % 3];
        let align = [1, 64, 8192][nth / 3 % 3];
        // SAFETY: the block is the heap's, and only the new address is used.
        *block = unsafe { heap.realloc(*block, layout(new, align)) }.unwrap();
        assert!(block.addr().get().is_multiple_of(align));
        *size = new.min(*size);
    }
    for (nth, &(block, size)) in blocks.iter().enumerate() {
        assert!(holds(block, size, nth as u8), "block {nth}");
        // SAFETY: the block is the heap's, and is not used any more.
        unsafe { heap.dealloc(block) };
    }
    assert_eq!(heap.used(), 0);
}

#[test]
fn a_heap_counts_size_classes_and_units() {
    let heap = Heap::new();
    for (size, align, counted) in [
        (0, 1, 16),
        (1, 1, 16),
        (100, 1, 112),
        (100, 64, 128),
        (65_536, 1, 65_536),
        (65_537, 1, 131_072),
    ] {
        let block = heap.alloc(layout(size, align)).unwrap();
        assert_eq!(heap.used(), counted, "{size} bytes");
        // SAFETY: the block is the heap's, and is not used any more.
        unsafe { heap.dealloc(block) };
    }
    assert_eq!(heap.used(), 0);
}

#[test]
fn the_limit_of_a_heap_holds() {
    let heap = Heap::with_limit(64 << 10);
    let one = layout(1024, 8);
    let blocks: Vec<_> = (0..64).map(|_| heap.alloc(one).unwrap()).collect();
    assert_eq!(heap.used(), 64 << 10);
    assert_eq!((heap.alloc(one), heap.alloc_zeroed(layout(1, 1))), (None, None));
    fill(blocks[0], 1024, 9);
    // SAFETY: the blocks are the heap's. Those that could not be resized stay as they are.
    unsafe {
        assert_eq!(heap.realloc(blocks[0], layout(1025, 8)), None);
        assert_eq!(heap.realloc(blocks[0], layout(1024, 4096)), None);
        assert!(holds(blocks[0], 1024, 9));
        heap.dealloc(blocks[1]);
        heap.dealloc(blocks[2]);
        let grown = heap.realloc(blocks[0], layout(2048, 8)).unwrap();
        assert!(holds(grown, 1024, 9));
        assert_eq!(heap.used(), 63 << 10);
        assert_eq!(heap.realloc(grown, layout(usize::MAX / 2, 1)), None);
    }
    assert_eq!(heap.alloc(layout(usize::MAX / 2, 1)), None);
    assert_eq!(Heap::new().alloc(layout(usize::MAX / 2, 1)), None);
}

/// The blocks of all rounds together would not fit into 32 bits, and 0.5 GB would be resident.
#[test]
fn dropping_a_heap_frees_its_blocks() {
    let (blocks, bytes) = if cfg!(miri) { (20, 2000) } else { (80, 300_000) };
    const FILLED: usize = 32 << 10;
    let before = resident_bytes();
    for round in 0..ROUNDS {
        let heap = Heap::new();
        for nth in 0..blocks {
            // One large block in ten.
            let size = if nth % 10 == 0 { bytes } else { 1 + bytes / 50 };
            let block = heap.alloc(layout(size, 1 << (nth % 8))).unwrap();
            fill(block, size.min(FILLED), round as u8);
        }
        let other = heap.clone();
        drop(heap);
        assert!(other.used() >= bytes);
        for _ in 0..blocks {
            fill(other.alloc(layout(bytes, 16)).unwrap(), bytes.min(FILLED), round as u8);
        }
    }
    if let (Some(before), Some(after)) = (before, resident_bytes()) {
        assert!(after < before + (200 << 20), "{before} bytes before, {after} after");
    }
}

#[test]
#[cfg_attr(target_family = "wasm", ignore = "there are no threads")]
fn threads_share_a_heap() {
    let heap = Heap::new();
    let threads: Vec<_> = (0..4u8)
        .map(|thread| {
            let heap = heap.clone();
            std::thread::spawn(move || {
                let mut kept = Vec::new();
                for round in 0..10 * ROUNDS {
                    let size = 1 + round * 37 % 900;
                    let block = heap.alloc(layout(size, 8)).unwrap();
                    fill(block, size, thread);
                    kept.push((block, size));
                    if round % 3 == 0 {
                        let (block, size) = kept.swap_remove(round / 2 % kept.len());
                        assert!(holds(block, size, thread));
                        // SAFETY: the block is the heap's, and is not used any more.
                        unsafe { heap.dealloc(block) };
                    }
                }
                assert!(kept.iter().all(|&(block, size)| holds(block, size, thread)));
                kept.len()
            })
        })
        .collect();
    let kept: usize = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    assert!(heap.used() >= 16 * kept && kept > 0);
}

#[cfg(feature = "allocator-api2")]
#[test]
fn containers_live_in_a_heap() {
    use allocator_api2::boxed::Box;
    use allocator_api2::vec::Vec;

    let heap = Heap::with_limit(1 << 20);
    let mut numbers = Vec::new_in(&heap);
    numbers.extend(0..10_000u32);
    let boxed = Box::new_in([numbers[9999]; 100], &heap);
    assert!(numbers.try_reserve(1 << 20).is_err());
    assert_eq!((numbers.iter().sum::<u32>(), boxed[99]), (49_995_000, 9999));
    drop(boxed);
    // What is not dropped is freed with the heap.
    std::mem::forget(numbers);
    let mut words = Vec::new_in(Global);
    words.resize(1000, "ebb");
    assert_eq!(words.concat().len(), 3000);
}
