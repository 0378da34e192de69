//! Tests each sequence against the plain code on the same stacks.
//!
//! The tests fill the calling thread's rseq area by hand, so they also run where the kernel has no
//! rseq, as under qemu. Nothing is restarted then, and nothing needs to be: only one thread uses
//! these slabs.

use core::ptr;
use std::vec::Vec;

use super::*;
use crate::frontend::owned_stack::OwnedStack;
use crate::frontend::slab::{Header, Slab, SlabMemory, bottom_of, mark_of};
use crate::frontend::tuning::MARKS;
use crate::platform::os::{RseqArea, own_area};
use crate::size_class::SizeClass;

/// Slabs, and this thread's own rseq area, which no kernel writes.
struct Emulated {
    slabs: *mut SlabMemory,
    base: PerCpuBase,
    area: *mut u32,
}

const SLABS: usize = 256;

impl Emulated {
    fn new(count: usize) -> Self {
        let slabs = std::alloc::Layout::array::<SlabMemory>(SLABS).unwrap();
        let layout = slabs.align_to(size_of::<SlabMemory>()).unwrap();
        // SAFETY: the size is not 0. Never freed: the process ends soon.
        let slabs: *mut SlabMemory = unsafe { std::alloc::alloc_zeroed(layout) }.cast();
        let (offset, area) = own_area();
        let area_of_all =
            RseqArea { offset, id_at: offset + RseqArea::MM_CID, id: "by hand", ours: true };
        Self { slabs, base: PerCpuBase::new(area_of_all, slabs, count), area }
    }

    /// Fills the area as for a registered thread on this virtual CPU. Returns the slab.
    fn on(&self, id: u32) -> OwnedStackOf {
        self.fill(0, id);
        // SAFETY: no slab of a number beyond the last is used.
        OwnedStackOf(unsafe { Slab::new(self.slabs.wrapping_add(id as usize)) })
    }

    /// Fills the area as the kernel does for a thread that has unregistered.
    fn unregistered(&self) {
        self.fill(u32::MAX, 0);
    }

    fn fill(&self, cpu_id: u32, mm_cid: u32) {
        // SAFETY: the area is this thread's, and has these fields.
        unsafe {
            self.area.byte_offset(RseqArea::CPU_ID).write_volatile(cpu_id);
            self.area.byte_offset(RseqArea::MM_CID).write_volatile(mm_cid);
        }
    }
}

/// A slab of this thread's, for the plain code.
struct OwnedStackOf(Slab);

impl OwnedStackOf {
    fn class(&self, class: SizeClass) -> OwnedStack {
        // SAFETY: the slabs are this thread's alone, and have marks.
        unsafe { OwnedStack::marked(self.0, class) }
    }

    fn mark_local(&self, block: *mut u8) {
        // SAFETY: the slabs are this thread's alone, and have marks.
        unsafe { self.0.mark_local(block) }
    }
}

fn block(number: usize) -> *mut u8 {
    ptr::without_provenance_mut(16 * number)
}

#[test]
fn every_sequence_does_what_the_plain_code_does() {
    let emulated = Emulated::new(SLABS);
    let base = emulated.base;
    let mut random = 1u64;
    let mut next = |below: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) as usize % below
    };
    // No block twice: the marks of blocks that were in other stacks stay.
    let mut made = 1;
    for id in [0, 1, 2, 77, 255] {
        let slab = emulated.on(id);
        // By mark, the block that was put into the cache last.
        let mut marked = [ptr::null_mut(); MARKS];
        for class in [1, 2, 40, 79].map(|index| SizeClass::from_index(index).unwrap()) {
            let mut cached: Vec<*mut u8> = Vec::new();
            // SAFETY: `base` is set up; blocks are only numbers, which caches do not access.
            unsafe {
                assert!(base.slab() == Some(slab.0));
                assert!(pop(base, class).is_null() && !push(base, class, block(1)));
                assert_eq!(push_batch(base, class, &[block(1)]), 0);
                let unset = Header::default();
                let first = unset.grown(class);
                let other = first.grown(class);
                assert_eq!(replace_header(base, class, other, first), Some(unset));
                assert_eq!(replace_header(base, class, unset, first), Some(unset));
                assert_eq!(replace_header(base, class, unset, first), Some(first));
            }
            for _ in 0..5000 {
                let header = slab.class(class).header();
                let capacity = header.capacity(class);
                assert_eq!(header.len(class), cached.len());
                // SAFETY: `base` is set up; blocks are only numbers.
                let holds = |block| unsafe { slab.0.holds(class, block) };
                assert!(cached.last().is_none_or(|&newest| holds(newest)) && !holds(block(made)));
                if let Some(&some) = cached.get(next(cached.len() + 1)) {
                    let known = marked[mark_of(some)] == some;
                    // SAFETY: `base` is set up; blocks are only numbers.
                    assert!(!known || holds(some) && !unsafe { push(base, class, some) });
                }
                let some = marked[next(MARKS)];
                assert!(!holds(some) || cached.contains(&some));
                assert_eq!(slab.class(class).holds(some), holds(some));
                // SAFETY: `base` is set up; blocks are only numbers.
                unsafe {
                    match next(6) {
                        0 => assert_eq!(pop(base, class), cached.pop().unwrap_or_default()),
                        1 | 2 => {
                            let mark = mark_of(block(made));
                            let pushed = push(base, class, block(made));
                            // A block that was certainly never there is refused too.
                            assert_eq!(pushed, cached.len() < capacity && !marked[mark].is_null());
                            if pushed {
                                cached.push(block(made));
                                marked[mark] = block(made);
                            }
                            // A second push is refused, whether the stack is full or not.
                            assert!(!pushed || !push(base, class, block(made)));
                            made += 1;
                        }
                        3 => {
                            let blocks: Vec<_> = (0..next(70)).map(|n| block(made + n)).collect();
                            made += 70;
                            let taken = push_batch(base, class, &blocks);
                            assert_eq!(taken, blocks.len().min(capacity - cached.len()));
                            cached.extend(&blocks[..taken]);
                            for &block in &blocks[..taken] {
                                marked[mark_of(block)] = block;
                            }
                        }
                        4 => {
                            for _ in 0..next(65) {
                                assert_eq!(pop(base, class), cached.pop().unwrap_or_default());
                            }
                        }
                        _ => {
                            let new = header.grown(class);
                            assert_eq!(replace_header(base, class, header, new), Some(header));
                            assert_eq!(slab.class(class).header(), new);
                        }
                    }
                }
            }
            // SAFETY: `base` is set up; blocks are only numbers. A closed stack is empty to a pop
            // and full to a push.
            unsafe {
                let header = slab.class(class).header();
                slab.class(class).set_header(header.closed(class));
                assert!(pop(base, class).is_null() && !push(base, class, block(1)));
                assert_eq!(push_batch(base, class, &[block(1)]), 0);
                assert_eq!(slab.class(class).header(), header.closed(class));
            }
        }
    }
    emulated.unregistered();
}

/// A block has lain in the stack of one class, and its slot and mark still say so. Since then its
/// span has become one of another class. `push` takes a free of it for a double free, `holds` does
/// not, and then the mark is replaced.
#[test]
fn a_slot_of_another_class_is_no_double_free() {
    let emulated = Emulated::new(SLABS);
    let (base, slab) = (emulated.base, emulated.on(3));
    let [before, now] = [2, 40].map(|index| SizeClass::from_index(index).unwrap());
    assert!(bottom_of(before) < bottom_of(now));
    for class in [before, now] {
        slab.class(class).set_header(Header::default().grown(class));
    }
    slab.mark_local(block(5));
    slab.mark_local(block(8));
    // SAFETY: `base` is set up; blocks are only numbers.
    unsafe {
        let holds = |class| slab.0.holds(class, block(5));
        assert!(push(base, before, block(5)) && holds(before));
        assert_eq!(pop(base, before), block(5));
        assert!(!push(base, now, block(5)) && !holds(now) && !holds(before));
        let mut plain = slab.class(now);
        assert!(!plain.push(block(5)) && !plain.holds(block(5)));
        assert_eq!(push_batch(base, now, &[block(5)]), 1);
        assert!(holds(now) && !push(base, now, block(5)));
        assert_eq!(pop(base, now), block(5));
        assert!(push(base, now, block(5)) && holds(now));
        assert!(plain.holds(block(5)) && !plain.push(block(5)));
        // The plain code and the sequences use the same marks.
        assert_eq!((plain.pop(), plain.push_batch(&[block(6), block(7)])), (block(5), 2));
        assert!(!push(base, now, block(6)) && plain.push(block(8)) && !push(base, now, block(8)));
    }
    emulated.unregistered();
}

/// A block that was never in the cache gets there by a batch, or after `mark_local`.
#[test]
fn a_block_from_elsewhere_is_refused() {
    let emulated = Emulated::new(2);
    let class = SizeClass::of(16).unwrap();
    let slab = emulated.on(1);
    slab.class(class).set_header(Header::default().grown(class));
    // SAFETY: `base` is set up; blocks are only numbers.
    let push = |block| unsafe { push(emulated.base, class, block) };
    assert!(!push(block(1)) && !slab.class(class).push(block(1)), "it is not known");
    slab.mark_local(block(1));
    assert!(push(block(1)) && !push(block(1)), "once");
    assert!(!push(block(2)));
    // SAFETY: `base` is set up; blocks are only numbers.
    assert_eq!(unsafe { push_batch(emulated.base, class, &[block(2)]) }, 1);
    assert!(!push(block(2)) && slab.class(class).pop() == block(2));
    slab.mark_local(block(2));
    assert!(push(block(2)) && slab.class(class).holds(block(2)), "what was known stays so");
    // Another cache has marks of its own.
    let slab = emulated.on(0);
    slab.class(class).set_header(Header::default().grown(class));
    assert!(!push(block(1)));
    emulated.unregistered();
}

/// Threads that are not registered, and those on a virtual CPU that has no cache.
#[test]
fn threads_without_a_cache_are_refused() {
    let emulated = Emulated::new(1);
    let (base, class) = (emulated.base, SizeClass::from_index(3).unwrap());
    let refused = || {
        // SAFETY: `base` is set up; blocks are only numbers.
        unsafe {
            let header = Header::default();
            assert!(base.slab().is_none());
            assert!(pop(base, class).is_null() && !push(base, class, block(1)));
            assert_eq!(push_batch(base, class, &[block(1)]), 0);
            assert_eq!(replace_header(base, class, header, header), None);
        }
    };
    for id in [1, 2, 255, 8191, u32::MAX - 1, u32::MAX] {
        emulated.on(id);
        refused();
    }
    let slab = emulated.on(0);
    // SAFETY: `base` is set up; blocks are only numbers.
    assert!(unsafe { base.slab() } == Some(slab.0));
    emulated.unregistered();
    refused();
}

#[test]
fn a_push_where_nothing_is_set_up_refuses() {
    let class = SizeClass::of(64).unwrap();
    let emulated = Emulated::new(1);
    let slab = emulated.on(0);
    slab.class(class).set_header(Header::default().grown(class));
    slab.mark_local(block(7));
    // Only the area is missing. If `push` did not look at it, it would put the block into the slab,
    // and overwrite a word of the C library's.
    let unset = PerCpuBase { area: 0, ..emulated.base };
    // SAFETY: `push` accepts bases from before set-up and after it; no one else uses the block.
    unsafe {
        assert!(!push(unset, class, block(7)));
        assert!(!push(PerCpuBase::UNSET, class, block(7)));
        assert!(push(emulated.base, class, block(7)));
    }
}

/// A push loads the header, and then the limit again. A drainer may close the stack in between:
/// then the push sees the top from before the closing, and the limit from after it.
#[test]
fn a_push_that_saw_a_stack_before_it_was_closed_refuses() {
    let emulated = Emulated::new(1);
    let slab = emulated.on(0);
    slab.mark_local(block(7));
    for class in SizeClass::all() {
        let new = Header::default();
        let empty = Header { top: bottom_of(class), limit: bottom_of(class) + 16 };
        let full = Header { top: empty.limit, ..empty };
        for before in [new, empty, full] {
            let closed = before.closed(class);
            assert!(closed.is_closed() && !before.is_closed());
            assert_eq!((closed.len(class), closed.capacity(class)), (before.len(class), 0));
            assert_eq!(closed.grown(class), closed);
            let seen = Header { limit: closed.limit, ..before };
            slab.class(class).set_header(seen);
            // SAFETY: `base` is set up; no one else uses the block.
            assert!(!unsafe { push(emulated.base, class, block(7)) }, "{class:?}: {before:?}");
            assert_eq!(slab.class(class).header(), seen);
        }
    }
}
