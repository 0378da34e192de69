//! Guard pages: inaccessible pages behind usable memory, which stop a program that writes beyond
//! its end.
//!
//! A guard is a gap between mappings, and a process may have about 65,000 mappings
//! (vm.max_map_count). So there are at most [`GUARDS_MAX`] gaps. Linux 6.13 has guard pages within
//! a mapping, as many as one likes, which serve from then on. They come second because a debugger
//! that dumps the process (`gcore`) gives up a mapping at the first page that it cannot read. On
//! older kernels, later memory has no guard page, and works as well otherwise.
//!
//! The removal of a gap may be refused, where the process may not have more writable memory
//! (RLIMIT_DATA). Then the whole run is made inaccessible, which leaves memory for others.
//! [`Guards::restore`] returns it once the kernel allows it.

use crate::backend::region::{Region, UnitIndex};
use crate::backend::tuning::{GUARDS_MAX, RESTORES_PER_CALL_MAX};
use crate::platform::os::Os;
use crate::size_class::UNIT;

/// The number of guard pages, and the runs that could not be made accessible again.
pub(crate) struct Guards {
    count: usize,
    /// Whether the kernel has guard pages within a mapping.
    within_mapping: bool,
    /// Units that cannot be used: those of inaccessible runs, and those that the kernel would not
    /// even decommit.
    pub lost: usize,
    /// The first inaccessible run. The others are linked by the records of their spans.
    first_inaccessible: UnitIndex,
}

impl Guards {
    pub const fn new() -> Self {
        Self { count: 0, within_mapping: false, lost: 0, first_inaccessible: 0 }
    }

    /// Finds out whether the kernel has guard pages within a mapping, by a try with a committed
    /// page that is not in use.
    pub fn set_up(&mut self, os: &impl Os, page: *mut u8) {
        self.within_mapping = os.can_hide(page);
    }

    /// Whether another guard page may be placed.
    pub fn are_left(&self) -> bool {
        self.within_mapping || self.count < GUARDS_MAX
    }

    /// Makes pages inaccessible. Returns false if there are too many guard pages, or if the kernel
    /// refuses; the contents are unspecified then.
    ///
    /// # Safety
    /// The range is committed, and no thread uses it.
    pub unsafe fn place(&mut self, os: &impl Os, start: *mut u8, bytes: usize) -> bool {
        // SAFETY: the caller guarantees that the range is committed and not in use.
        let placed = unsafe {
            self.count < GUARDS_MAX && os.decommit(start, bytes)
                || self.within_mapping && os.hide(start, bytes)
        };
        self.count += placed as usize;
        placed
    }

    /// Makes a guard page, or part of it, accessible. It reads as zero. Returns false if the kernel
    /// refuses.
    ///
    /// # Safety
    /// The range is a guard, or the first part of one.
    pub unsafe fn lift(&self, os: &impl Os, start: *mut u8, bytes: usize) -> bool {
        // SAFETY: the caller guarantees that the range is a gap, or else hidden in its mapping. The
        // first call tells: it fails where something is mapped.
        unsafe { os.commit(start, bytes).is_ok() || self.within_mapping && os.show(start, bytes) }
    }

    /// Makes a run accessible again that is guarded from byte `usable_bytes` on. `hidden` tells
    /// whether the bytes before that were decommitted. Returns false if the kernel refuses. No
    /// thread may use the run then, until [`Guards::restore`] returns it.
    ///
    /// # Safety
    /// The caller owns the run, and no thread uses its contents.
    pub unsafe fn remove(
        &mut self,
        region: &Region,
        os: &impl Os,
        (first, units): (UnitIndex, u32),
        usable_bytes: usize,
        hidden: bool,
    ) -> bool {
        let (start, bytes) = (region.address(first), units as usize * UNIT);
        // SAFETY: the caller owns the run and its records. The first `usable_bytes` bytes are
        // decommitted if `hidden` is set, and the rest is a guard.
        unsafe {
            let is_accessible =
                !hidden || usable_bytes == 0 || os.commit(start, usable_bytes).is_ok();
            if is_accessible && self.lift(os, start.add(usable_bytes), bytes - usable_bytes) {
                self.count -= 1;
                return true;
            }
            self.lost += units as usize;
            // Decommit everything that counts as writable memory, which a guard within a mapping
            // does too.
            let (from, to) = (
                if is_accessible { 0 } else { usable_bytes },
                if self.within_mapping { bytes } else { usable_bytes },
            );
            if from < to && !os.decommit(start.add(from), to - from) {
                return false;
            }
            (*region.span(first)).next = self.first_inaccessible;
            self.first_inaccessible = first;
        }
        false
    }

    /// Makes an inaccessible run accessible again, and subtracts its units from [`Guards::lost`].
    /// Returns the run, which reads as zero, and its length in units, which `units_of` tells.
    /// `None` if no run became accessible.
    pub fn restore(
        &mut self,
        region: &Region,
        os: &impl Os,
        units_of: impl Fn(UnitIndex) -> u32,
    ) -> Option<(UnitIndex, u32)> {
        let mut link = &raw mut self.first_inaccessible;
        for _ in 0..RESTORES_PER_CALL_MAX {
            // SAFETY: `link` points to `self.first_inaccessible` or to the `next` of a listed run's
            // span record, which nothing else writes.
            let first = unsafe { *link };
            if first == 0 {
                break;
            }
            let (units, start) = (units_of(first), region.address(first));
            let bytes = units as usize * UNIT;
            // SAFETY: the run is inaccessible as a whole, and no thread uses it.
            unsafe {
                let next = &raw mut (*region.span(first)).next;
                if os.commit(start, bytes).is_ok() {
                    *link = *next;
                    self.count -= 1;
                    self.lost -= units as usize;
                    return Some((first, units));
                }
                // A later run may be shorter, and its commit may succeed.
                link = next;
            }
        }
        None
    }
}
