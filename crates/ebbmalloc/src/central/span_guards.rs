//! A guard page ends each span of hardened heaps (`EBB_HARDEN`), and its free blocks are zero.

use crate::backend::page_heap::{Granted, PageHeap};
use crate::backend::region::{Region, UnitIndex};
use crate::platform::os::Os;
use crate::platform::sync::Lock;
use crate::size_class::{SizeClass, UNIT};

/// The guard of a span of so many units: its last page; none where pages are too large for that.
fn guard(region: &Region, os: &impl Os, first: UnitIndex, units: u32) -> (*mut u8, usize) {
    let (bytes, page) = (units as usize * UNIT, os.page_size());
    let page = if page * 4 > UNIT { 0 } else { page };
    // SAFETY: in the span.
    (unsafe { region.address(first).add(bytes - page) }, page)
}

/// Sets a span up in a run of the class that nobody else knows.
pub(super) fn harden(
    region: &Region,
    os: &impl Os,
    pages: &Lock<PageHeap>,
    class: SizeClass,
    Granted { first, zeroed }: Granted,
    units: u32,
) {
    let (start, page) = guard(region, os, first, units);
    // SAFETY: the run is the caller's alone, with its records.
    unsafe {
        let guarded = page > 0 && pages.lock().guards.place(os, start, page);
        let lost = if guarded { page } else { 0 };
        if !zeroed {
            region.address(first).write_bytes(0, units as usize * UNIT - lost);
        } else if !guarded {
            // Unspecified.
            start.write_bytes(0, page);
        }
        let span = &mut *region.span(first);
        span.set_up_hardened(class, units, !zeroed, lost);
        span.guarded = guarded;
    }
}

/// Makes all of a span accessible again that is about to be given back. False if it must not be.
pub(super) fn unguard(
    region: &Region,
    os: &impl Os,
    pages: &mut PageHeap,
    first: UnitIndex,
    units: u32,
) -> bool {
    let (start, _) = guard(region, os, first, units);
    let reach = start.addr() - region.address(first).addr();
    // SAFETY: the span's, which is the caller's.
    unsafe {
        !(*region.span(first)).guarded
            || pages.guards.remove(region, os, (first, units), reach, false)
    }
}
