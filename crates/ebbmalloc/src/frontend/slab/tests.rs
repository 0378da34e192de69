//! Tests the layout of slabs, their headers and their miss histories.

use core::ptr;
use std::collections::HashSet;

use super::*;
use crate::frontend::tuning::STREAK_MISSES;

#[test]
fn what_two_cpus_write_lies_a_page_apart() {
    assert!(used_bytes() + 4096 <= size_of::<SlabMemory>(), "{:#x}", used_bytes());
}

#[test]
fn neighbours_have_marks_of_their_own() {
    for class in SizeClass::all() {
        for start in [0, 0x7f12_3456_0000, 0xffff_0000] {
            let block = |nth: usize| ptr::without_provenance_mut(start + nth * class.size());
            let marks: HashSet<_> = (0..190).map(|nth| mark_of(block(nth))).collect();
            assert_eq!(marks.len(), 190, "blocks of {} bytes from {start:#x} on", class.size());
            assert!(marks.iter().all(|&mark| mark < MARKS));
        }
    }
}

#[test]
fn a_stack_that_is_closed_opens_where_it_was() {
    for class in SizeClass::all() {
        for index in 0..EXTENTS {
            let Extent { bottom, max_blocks, .. } = Extent::of(index, class);
            for cached in [0, 1, max_blocks] {
                let top = bottom + 8 * cached;
                let closed = Header { top, limit: bottom + 8 * max_blocks }.closed(class);
                assert!(closed.is_closed() && closed.limit <= closed.top);
                assert_eq!((closed.len(class), closed.capacity(class)), (cached as usize, 0));
                let opened = Header { top, limit: top };
                assert_eq!((closed.closed(class), closed.opened(class)), (closed, opened));
                assert_eq!(closed.reopened(class), Some(opened));
                let taken = closed.taken().expect("no thread has opened it");
                assert!(taken.is_closed() && taken.is_taken() && taken.limit <= taken.top);
                assert_eq!((taken.len(class), taken.capacity(class)), (cached as usize, 0));
                assert_eq!((taken.closed(class), taken.opened(class)), (taken, opened));
                assert_eq!((taken.taken(), taken.reopened(class)), (None, None));
                assert_eq!((opened.taken(), opened.reopened(class)), (None, None));
            }
            let slots = bottom..=bottom + 8 * max_blocks;
            let apart = |top| !slots.contains(&top);
            assert!(apart(CLOSED) && apart(TAKEN), "a slot of {class:?} is that of closed stacks");
        }
    }
    let new = Header::default();
    let class = SizeClass::of(1).unwrap();
    assert!(new.closed(class).is_closed() && new.closed(class).is_new());
    assert_eq!(new.closed(class).opened(class), new);
    let large = SizeClass::of(16 << 10).unwrap();
    let waiting = new.grown(large).grown(large);
    assert!(waiting.waits(large) && waiting.closed(large).is_closed());
    assert_eq!(waiting.closed(large).opened(large), new);
}

/// It grows in steps of its first capacity, so that little capacity is unused.
#[test]
fn a_stack_grows_by_what_it_begins_with() {
    for class in SizeClass::all().filter(|class| class.size() <= LATE_BLOCK_BYTES) {
        let Extent { max_blocks, step_blocks, .. } = Extent::of(FULL, class);
        let max_blocks = max_blocks as usize;
        let mut header = Header::default();
        for misses in 1.. {
            header = header.grown(class);
            assert_eq!(header.capacity(class), (misses * step_blocks as usize).min(max_blocks));
            if header.capacity(class) == max_blocks {
                break;
            }
        }
        assert_eq!(header.grown(class), header);
    }
}

fn history() -> History {
    // SAFETY: all zero bytes are an empty history.
    unsafe { core::mem::zeroed() }
}

#[test]
fn a_streak_is_of_one_class_and_lasts_until_the_cache_turns() {
    let (class, other) = (SizeClass::of(100).unwrap(), SizeClass::of(1).unwrap());
    let history = history();
    for kind in [MissKind::Underflow, MissKind::Overflow, MissKind::Underflow] {
        for before in 0..1000 {
            assert_eq!(history.note(class, kind), before.min(FLOW_MISSES as u32) as u8);
        }
        assert_eq!(history.note(other, kind), 0, "another class's counts");
    }
}

/// As with threads that free and allocate at random, each its own blocks.
#[test]
fn a_cache_that_keeps_turning_has_no_streak() {
    let (class, history) = (SizeClass::of(100).unwrap(), history());
    for round in 0..1000 {
        let kind = if round / 2 % 2 == 0 { MissKind::Underflow } else { MissKind::Overflow };
        assert!(history.note(class, kind) < STREAK_MISSES, "round {round}");
    }
}
