//! Tests sizes and alignments that no process can have, from Rust: each way to ask returns an
//! error, the block stays as it was, and the heap stays valid, in each mode.

use std::alloc::{GlobalAlloc, Layout};
use std::collections::VecDeque;
use std::env;
use std::process::Command;
use std::ptr::NonNull;

use ebbmalloc::internals::ENGINE;
use ebbmalloc::{EbbMalloc, Heap};

#[global_allocator]
static GLOBAL: EbbMalloc = EbbMalloc;

const UNIT: usize = 64 << 10;
/// The largest size of a layout. The callers' contract forbids more, but the allocator must survive
/// it.
const LAYOUT_MOST: usize = isize::MAX as usize;

/// Sizes around each power of two from 2^47 on, and sizes with which a block would end near the
/// largest unit number or, at this address, near the end of all addresses.
fn absurd(address: usize) -> impl Iterator<Item = usize> {
    let steps = [0, 1, 24, 4096, UNIT - 1, UNIT, UNIT + 1];
    let powers = (47..=64).map(|bit| (1u128 << bit) as usize);
    let places = powers.chain([0usize.wrapping_sub(address), (1 << 63) - address]);
    let around = move |at: usize| {
        steps.into_iter().flat_map(move |by| [at.wrapping_sub(by), at.wrapping_add(by)])
    };
    let units = (0..64).map(|unit| (1 << 48) - unit * UNIT);
    // Check mode reads some thousand bytes of a block in each call about it.
    let step = if env::var_os("EBB_CHECK").is_some() { 11 } else { 1 };
    let all = places.flat_map(around).chain(units).filter(|&size| size >= 1 << 47);
    all.step_by(step)
}

/// Ways to ask for memory, all of which return null for an error.
trait Source {
    fn new_block(&self, layout: Layout) -> *mut u8;
    fn new_zeroed(&self, layout: Layout) -> *mut u8;
    /// # Safety
    /// As for `GlobalAlloc::realloc`.
    unsafe fn resize(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8;
    /// # Safety
    /// As for `GlobalAlloc::dealloc`.
    unsafe fn put(&self, block: *mut u8, layout: Layout);
}

impl Source for EbbMalloc {
    fn new_block(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the layout is not empty.
        unsafe { self.alloc(layout) }
    }

    fn new_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the layout is not empty.
        unsafe { self.alloc_zeroed(layout) }
    }

    unsafe fn resize(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller guarantees it.
        unsafe { self.realloc(block, layout, size) }
    }

    unsafe fn put(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller guarantees it.
        unsafe { self.dealloc(block, layout) }
    }
}

fn or_null(block: Option<NonNull<u8>>) -> *mut u8 {
    block.map_or(std::ptr::null_mut(), NonNull::as_ptr)
}

impl Source for Heap {
    fn new_block(&self, layout: Layout) -> *mut u8 {
        or_null(self.alloc(layout))
    }

    fn new_zeroed(&self, layout: Layout) -> *mut u8 {
        or_null(self.alloc_zeroed(layout))
    }

    unsafe fn resize(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let (Some(block), Ok(new)) =
            (NonNull::new(block), Layout::from_size_align(size, layout.align()))
        else {
            return std::ptr::null_mut();
        };
        // SAFETY: the caller guarantees it.
        or_null(unsafe { self.realloc(block, new) })
    }

    unsafe fn put(&self, block: *mut u8, _: Layout) {
        // SAFETY: the caller guarantees it.
        NonNull::new(block).into_iter().for_each(|block| unsafe { self.dealloc(block) });
    }
}

/// Sizes and alignments of blocks of all sorts.
const SORTS: [(usize, usize); 11] = [
    (1, 1),
    (100, 8),
    (4096, 16),
    (40_000, 1),
    (UNIT, 1),
    (UNIT + 1, 1),
    (1 << 20, 1),
    (100, 4096),
    (100, 2 * UNIT),
    (200_000, 1 << 20),
    (600_000, UNIT),
];

fn filled(source: &impl Source, layout: Layout) -> *mut u8 {
    let block = source.new_block(layout);
    assert!(!block.is_null());
    // SAFETY: the block is live and has `layout.size()` bytes.
    unsafe { block.write_bytes(7, layout.size()) };
    block
}

fn is_filled(block: *mut u8, layout: Layout) -> bool {
    // SAFETY: the block is live and has `layout.size()` bytes.
    let bytes = unsafe { std::slice::from_raw_parts(block, layout.size()) };
    bytes.iter().all(|&byte| byte == 7)
}

fn refuses(source: &impl Source) {
    for (size, align) in SORTS {
        let layout = Layout::from_size_align(size, align).unwrap();
        let block = filled(source, layout);
        // Stands in the way of growth, and is memory that the engine could give up.
        let behind = filled(source, Layout::new::<[u8; 100_000]>());
        for size in absurd(block.addr()) {
            // SAFETY: a live block, which stays valid when this fails.
            let resized = unsafe { source.resize(block, layout, size) };
            assert!(resized.is_null(), "{size:#x} bytes in place of {layout:?}");
            if let Ok(layout) = Layout::from_size_align(size, align) {
                assert!(source.new_block(layout).is_null(), "{layout:?}");
                assert!(source.new_zeroed(layout).is_null(), "{layout:?}");
            }
        }
        assert!(is_filled(block, layout));
        // The block still works after the errors.
        // SAFETY: a live block; the result is freed with its own layout.
        unsafe {
            let grown = source.resize(block, layout, size + 300_000);
            assert!(!grown.is_null() && is_filled(grown, layout));
            source.put(grown, Layout::from_size_align(size + 300_000, align).unwrap());
            source.put(behind, Layout::new::<[u8; 100_000]>());
        }
    }
    for bit in 47..63 {
        for size in [1, 100, 100_000, LAYOUT_MOST - (1 << bit)] {
            let layout = Layout::from_size_align(size, 1 << bit).unwrap();
            assert!(source.new_block(layout).is_null() && source.new_zeroed(layout).is_null());
        }
    }
}

/// Requests that safe code can make.
fn containers() {
    for len in [0, 100, UNIT, UNIT + 1, 1 << 20, 5 << 20] {
        let mut bytes = vec![7u8; len];
        let _behind = vec![7u8; 1 << 20];
        for size in absurd(bytes.as_ptr().addr()) {
            assert!(bytes.try_reserve_exact(size.saturating_sub(len)).is_err(), "{size:#x} bytes");
            assert!(bytes.try_reserve(size).is_err());
        }
        assert!(bytes.iter().all(|&byte| byte == 7));
        bytes.push(7);
        let mut words: VecDeque<u64> = (0..len as u64 / 8).collect();
        for size in absurd(len) {
            assert!(words.try_reserve_exact(size / 8).is_err());
        }
        assert!(words.iter().copied().eq(0..len as u64 / 8));
        let mut text = "ebb".repeat(len / 3);
        assert!(text.try_reserve(LAYOUT_MOST - text.len()).is_err());
    }
}

/// Asks through the trait for single containers, which can also change a block's alignment.
#[cfg(feature = "allocator-api2")]
fn by_the_trait(source: &impl allocator_api2::alloc::Allocator) {
    for (size, align) in SORTS {
        let layout = Layout::from_size_align(size, align).unwrap();
        let block = source.allocate(layout).unwrap().cast::<u8>();
        // SAFETY: the block has `size` bytes.
        unsafe { block.as_ptr().write_bytes(7, size) };
        for more in absurd(block.as_ptr().addr()) {
            for align in [align, 1, 4096, 1 << 20] {
                let Ok(wanted) = Layout::from_size_align(more, align) else { continue };
                assert!(
                    source.allocate(wanted).is_err() && source.allocate_zeroed(wanted).is_err()
                );
                // SAFETY: a live block, which stays valid when this fails.
                unsafe {
                    assert!(source.grow(block, layout, wanted).is_err(), "{wanted:?}");
                    assert!(source.grow_zeroed(block, layout, wanted).is_err(), "{wanted:?}");
                }
            }
        }
        for bit in 47..63 {
            let wanted = Layout::from_size_align(size, 1 << bit).unwrap();
            // SAFETY: a live block, which stays valid when this fails.
            unsafe {
                assert!(source.grow(block, layout, wanted).is_err());
                assert!(source.shrink(block, layout, wanted).is_err());
            }
        }
        assert!(is_filled(block.as_ptr(), layout));
        // SAFETY: a live block, freed once.
        unsafe { source.deallocate(block, layout) };
    }
}

fn all() {
    refuses(&EbbMalloc);
    containers();
    for heap in [Heap::new(), Heap::with_limit(usize::MAX - 1), Heap::with_limit(8 << 20)] {
        refuses(&heap);
        #[cfg(feature = "allocator-api2")]
        by_the_trait(&heap);
    }
    #[cfg(feature = "allocator-api2")]
    by_the_trait(&EbbMalloc);
    // No other thread runs meanwhile.
    ENGINE.check();
}

/// Runs in a process of its own for each mode, which has this variable.
#[test]
fn what_no_process_can_have_is_an_error() {
    const OWN: &str = "SIZES_OF_THIS_PROCESS";
    const SET: [(&str, &str); 7] = [
        ("EBB_MODE", "auto"),
        ("EBB_MODE", "percpu"),
        ("EBB_MODE", "thread"),
        ("EBB_MODE", "slot"),
        ("EBB_CHECK", "1"),
        ("EBB_HARDEN", "1"),
        ("EBB_SAMPLE", "1"),
    ];
    if env::var_os(OWN).is_some() {
        return all();
    }
    for (name, value) in SET {
        let mut command = Command::new(env::current_exe().unwrap());
        let output = command.env(OWN, "1").env(name, value).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}={value}: {}\n{said}", output.status);
    }
}
