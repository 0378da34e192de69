//! Sets up and tears down the guard page at the end of each hardened span (`EBB_HARDEN`).

use crate::backend::page_heap::{Granted, Memory, Pages};
use crate::backend::region::UnitIndex;
use crate::backend::span::GuardKind;
use crate::platform::os::Os;
use crate::size_class::{SizeClass, UNIT};

/// Returns address and length of a span's guard, its last OS page. The guard has no bytes if OS
/// pages are larger than a quarter of a unit.
fn guard(memory: &Memory<'_, impl Os>, first: UnitIndex, units: u32) -> (*mut u8, usize) {
    let (bytes, page) = (units as usize * UNIT, memory.os.page_size());
    let page = if page * 4 > UNIT { 0 } else { page };
    // SAFETY: the address lies in the span, or at its end.
    (unsafe { memory.region.address(first).add(bytes - page) }, page)
}

/// Sets up a hardened span in a new run, which no other thread can know: places its guard and
/// zeroes the rest.
pub(super) fn harden(
    memory: &Memory<'_, impl Os>,
    class: SizeClass,
    Granted { first, zeroed, .. }: Granted,
    units: u32,
) {
    let region = memory.region;
    let (start, page) = guard(memory, first, units);
    // SAFETY: the run and its records are the caller's alone; all writes stay in the run.
    unsafe {
        let guard = match page {
            0 => GuardKind::None,
            _ => memory.lock().guards.place(memory.os, start, page),
        };
        let guard_bytes = if guard == GuardKind::None { 0 } else { page };
        if !zeroed {
            region.address(first).write_bytes(0, units as usize * UNIT - guard_bytes);
        } else if guard == GuardKind::None {
            // The refused guard may have left any contents.
            start.write_bytes(0, page);
        }
        let span = &mut *region.span(first);
        span.set_up_hardened(class, units, !zeroed, guard_bytes);
        span.guard = guard;
    }
}

/// Makes all of a retiring span accessible again. False if the kernel refuses:
/// [`Pages::unguard`].
pub(super) fn unguard<O: Os>(
    memory: &Memory<'_, O>,
    pages: &mut Pages<'_, O>,
    first: UnitIndex,
    units: u32,
) -> bool {
    let region = memory.region;
    let (start, _) = guard(memory, first, units);
    let reach = start.addr() - region.address(first).addr();
    // SAFETY: the span is the caller's, and no block of it is in use.
    unsafe {
        match (*region.span(first)).guard {
            GuardKind::None => true,
            _ => pages.unguard((first, units), reach, false),
        }
    }
}
