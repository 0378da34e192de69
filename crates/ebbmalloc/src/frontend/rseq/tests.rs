//! The sequences against the plain code on the same stacks, instruction by instruction the same in effect,
//! with the calling thread's area filled by hand. So also where the kernel has no rseq, as under qemu: then
//! nothing is restarted, and nothing needs to be, since only one thread uses these slabs.

use core::ptr;
use std::vec::Vec;

use super::*;
use crate::frontend::slab::{self as cache, Header, OwnedStack, Slab, bottom_of, mark_of};
use crate::frontend::tuning::MARKS;
use crate::platform::os::RseqArea;
use crate::platform::os::own_area;
use crate::size_class::SizeClass;

/// Slabs, and the own area of this thread, in which no kernel writes.
struct Emulated {
    slabs: *mut Slab,
    place: PerCpuBase,
    area: *mut u32,
}

const SLABS: usize = 256;

impl Emulated {
    fn new(count: usize) -> Self {
        let slabs = std::alloc::Layout::array::<Slab>(SLABS).unwrap();
        let layout = slabs.align_to(size_of::<Slab>()).unwrap();
        // SAFETY: the size is not 0. Left to the process, which ends soon.
        let slabs: *mut Slab = unsafe { std::alloc::alloc_zeroed(layout) }.cast();
        let (offset, area) = own_area();
        let area_of_all =
            RseqArea { offset, id_at: offset + RseqArea::MM_CID, id: "by hand", ours: true };
        Self { slabs, place: PerCpuBase::new(area_of_all, slabs, count), area }
    }

    /// From now on this thread is on that virtual CPU, and registered.
    fn on(&self, id: u32) -> OwnedStackOf {
        self.fill(0, id);
        OwnedStackOf(self.slabs.wrapping_add(id as usize))
    }

    /// As the kernel leaves the area of a thread that has unregistered.
    fn unregistered(&self) {
        self.fill(u32::MAX, 0);
    }

    fn fill(&self, cpu_id: u32, mm_cid: u32) {
        // SAFETY: the area is this thread's, and as long.
        unsafe {
            self.area.byte_offset(RseqArea::CPU_ID).write_volatile(cpu_id);
            self.area.byte_offset(RseqArea::MM_CID).write_volatile(mm_cid);
        }
    }
}

struct OwnedStackOf(*mut Slab);

impl OwnedStackOf {
    fn class(&self, class: SizeClass) -> OwnedStack {
        // SAFETY: the slabs are this thread's alone.
        unsafe { OwnedStack::new(self.0, class) }
    }

    fn mark_local(&self, block: *mut u8) {
        // SAFETY: as above.
        unsafe { cache::mark_local(self.0, block) }
    }
}

fn block(number: usize) -> *mut u8 {
    ptr::without_provenance_mut(16 * number)
}

#[test]
fn every_sequence_does_what_the_plain_code_does() {
    let emulated = Emulated::new(SLABS);
    let place = emulated.place;
    let mut random = 1u64;
    let mut next = |below: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) as usize % below
    };
    // No number twice: marks of what was in other stacks stay.
    let mut made = 1;
    for id in [0, 1, 2, 77, 255] {
        let slab = emulated.on(id);
        // What was put there last with each mark is known of.
        let mut marked = [ptr::null_mut(); MARKS];
        for class in [1, 2, 40, 79].map(|index| SizeClass::from_index(index).unwrap()) {
            let mut held: Vec<*mut u8> = Vec::new();
            // SAFETY: the place is set up, and blocks are numbers that nobody looks at.
            unsafe {
                assert_eq!(super::slab(place), slab.0);
                assert!(pop(place, class).is_null() && !push(place, class, block(1)));
                assert_eq!(push_batch(place, class, &[block(1)]), 0);
                let unset = Header::default();
                let first = unset.grown(class);
                let other = first.grown(class);
                assert_eq!(replace_header(place, class, other, first), Some(unset));
                assert_eq!(replace_header(place, class, unset, first), Some(unset));
                assert_eq!(replace_header(place, class, unset, first), Some(first));
            }
            for _ in 0..5000 {
                let header = slab.class(class).header();
                let room = header.room(class);
                assert_eq!(header.held(class), held.len());
                // SAFETY: as above.
                let holds = |block| unsafe { holds(place, class, bottom_of(class), block) };
                assert!(held.last().is_none_or(|&newest| holds(newest)) && !holds(block(made)));
                if let Some(&some) = held.get(next(held.len() + 1)) {
                    let known = marked[mark_of(some)] == some;
                    // SAFETY: as above.
                    assert!(!known || holds(some) && !unsafe { push(place, class, some) });
                }
                let some = marked[next(MARKS)];
                assert!(!holds(some) || held.contains(&some));
                assert_eq!(slab.class(class).holds(some), holds(some));
                // SAFETY: as above.
                unsafe {
                    match next(6) {
                        0 => assert_eq!(pop(place, class), held.pop().unwrap_or_default()),
                        1 | 2 => {
                            let mark = mark_of(block(made));
                            let pushed = push(place, class, block(made));
                            // What certainly was never there is refused too.
                            assert_eq!(pushed, held.len() < room && !marked[mark].is_null());
                            if pushed {
                                held.push(block(made));
                                marked[mark] = block(made);
                            }
                            // Twice is refused, room or not.
                            assert!(!pushed || !push(place, class, block(made)));
                            made += 1;
                        }
                        3 => {
                            let blocks: Vec<_> = (0..next(70)).map(|n| block(made + n)).collect();
                            made += 70;
                            let taken = push_batch(place, class, &blocks);
                            assert_eq!(taken, blocks.len().min(room - held.len()));
                            held.extend(&blocks[..taken]);
                            for &block in &blocks[..taken] {
                                marked[mark_of(block)] = block;
                            }
                        }
                        4 => {
                            let mut blocks = [block(7); 64];
                            let wanted = next(65);
                            let (out, rest) = blocks.split_at_mut(wanted);
                            let taken = pop_batch(place, class, bottom_of(class), out);
                            assert_eq!(taken, wanted.min(held.len()));
                            for popped in &out[..taken] {
                                assert_eq!(Some(*popped), held.pop());
                            }
                            assert!(rest.iter().all(|&kept| kept == block(7)));
                        }
                        _ => {
                            let new = header.grown(class);
                            assert_eq!(replace_header(place, class, header, new), Some(header));
                            assert_eq!(slab.class(class).header(), new);
                        }
                    }
                }
            }
            // SAFETY: as above. A closed stack is empty to a pop and full to a push.
            unsafe {
                let header = slab.class(class).header();
                slab.class(class).set_header(header.closed(class));
                assert!(pop(place, class).is_null() && !push(place, class, block(1)));
                assert_eq!(push_batch(place, class, &[block(1)]), 0);
                assert_eq!(pop_batch(place, class, bottom_of(class), &mut [block(1)]), 0);
                assert_eq!(slab.class(class).header(), header.closed(class));
            }
        }
    }
    emulated.unregistered();
}

/// A block has lain in the stack of one class, whose slot and mark still say so; since then its span has become one of
/// another class. The quick look takes it for one that is freed twice, the closer one does not, and then it is forgotten.
#[test]
fn a_slot_of_another_class_is_no_double_free() {
    let emulated = Emulated::new(SLABS);
    let (place, slab) = (emulated.place, emulated.on(3));
    let [before, now] = [2, 40].map(|index| SizeClass::from_index(index).unwrap());
    assert!(bottom_of(before) < bottom_of(now));
    for class in [before, now] {
        slab.class(class).set_header(Header::default().grown(class));
    }
    slab.mark_local(block(5));
    slab.mark_local(block(8));
    // SAFETY: as above.
    unsafe {
        let holds = |class| holds(place, class, bottom_of(class), block(5));
        assert!(push(place, before, block(5)) && holds(before));
        assert_eq!(pop(place, before), block(5));
        assert!(!push(place, now, block(5)) && !holds(now) && !holds(before));
        let mut plain = slab.class(now);
        assert!(!plain.push_marked(block(5)) && !plain.holds(block(5)));
        assert_eq!(push_batch(place, now, &[block(5)]), 1);
        assert!(holds(now) && !push(place, now, block(5)));
        assert_eq!(pop(place, now), block(5));
        assert!(push(place, now, block(5)) && holds(now));
        assert!(plain.holds(block(5)) && !plain.push_marked(block(5)));
        // The plain code's marks are those of sequences.
        assert_eq!((plain.pop(), plain.push_batch_marked(&[block(6), block(7)])), (block(5), 2));
        assert!(
            !push(place, now, block(6))
                && plain.push_marked(block(8))
                && !push(place, now, block(8))
        );
    }
    emulated.unregistered();
}

/// A block that was never in the cache is put there by a batch, or once the cache knows it.
#[test]
fn a_block_from_elsewhere_is_refused() {
    let emulated = Emulated::new(2);
    let class = SizeClass::of(16).unwrap();
    let slab = emulated.on(1);
    slab.class(class).set_header(Header::default().grown(class));
    // SAFETY: as above.
    let push = |block| unsafe { push(emulated.place, class, block) };
    assert!(!push(block(1)) && !slab.class(class).push_marked(block(1)), "it is not known");
    slab.mark_local(block(1));
    assert!(push(block(1)) && !push(block(1)), "once");
    assert!(!push(block(2)));
    // SAFETY: as above.
    assert_eq!(unsafe { push_batch(emulated.place, class, &[block(2)]) }, 1);
    assert!(!push(block(2)) && slab.class(class).pop() == block(2));
    slab.mark_local(block(2));
    assert!(push(block(2)) && slab.class(class).holds(block(2)), "what was known stays so");
    // What one cache knows another does not.
    let slab = emulated.on(0);
    slab.class(class).set_header(Header::default().grown(class));
    assert!(!push(block(1)));
    emulated.unregistered();
}

/// Threads that are not registered, and those on a CPU for which there is no cache.
#[test]
fn threads_without_a_cache_are_refused() {
    let emulated = Emulated::new(1);
    let (place, class) = (emulated.place, SizeClass::from_index(3).unwrap());
    let refused = || {
        // SAFETY: as above.
        unsafe {
            let header = Header::default();
            assert!(super::slab(place).is_null());
            assert!(pop(place, class).is_null() && !push(place, class, block(1)));
            assert!(!holds(place, class, bottom_of(class), block(1)));
            assert_eq!(push_batch(place, class, &[block(1)]), 0);
            assert_eq!(pop_batch(place, class, bottom_of(class), &mut [block(1)]), 0);
            assert_eq!(replace_header(place, class, header, header), None);
        }
    };
    for id in [1, 2, 255, 8191, u32::MAX - 1, u32::MAX] {
        emulated.on(id);
        refused();
    }
    let slab = emulated.on(0);
    // SAFETY: as above.
    assert_eq!(unsafe { super::slab(place) }, slab.0);
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
    // All but the area is there: were that not looked at, the block would go to the slab, and a word of the C library's away.
    let unset = PerCpuBase { area: 0, ..emulated.place };
    // SAFETY: places as they are before set-up and after it; the block is nobody's.
    unsafe {
        assert!(!push(unset, class, block(7)));
        assert!(!push(PerCpuBase::UNSET, class, block(7)));
        assert!(push(emulated.place, class, block(7)));
    }
}

/// A push loads the header, and then looks at the limit in memory: an emptying may have closed the stack in between. What it sees is
/// the top from before and the limit from after.
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
            assert_eq!((closed.held(class), closed.room(class)), (before.held(class), 0));
            assert_eq!((closed.grown(class), closed.shrunk(class)), (closed, closed));
            let seen = Header { limit: closed.limit, ..before };
            slab.class(class).set_header(seen);
            // SAFETY: the block is nobody's.
            assert!(!unsafe { push(emulated.place, class, block(7)) }, "{class:?}: {before:?}");
            assert_eq!(slab.class(class).header(), seen);
        }
    }
}
