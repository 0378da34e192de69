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
//! (RLIMIT_DATA). Then the whole run is unmapped, which leaves memory for others. If a foreign
//! mapping has come to lie in a gap, the run is given up.

use crate::backend::region::{Region, UnitIndex};
use crate::backend::span::GuardKind;
use crate::backend::tuning::GUARDS_MAX;
use crate::platform::os::{Os, Refusal};
use crate::size_class::UNIT;

/// The number of guard pages.
pub(crate) struct Guards {
    count: usize,
    /// Whether the kernel has guard pages within a mapping.
    within_mapping: bool,
}

impl Guards {
    pub const fn new() -> Self {
        Self { count: 0, within_mapping: false }
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

    /// Makes pages inaccessible. There is no guard if there are too many, or if the kernel refuses;
    /// the contents are unspecified then.
    ///
    /// # Safety
    /// The range is committed, and no thread uses it.
    pub unsafe fn place(&mut self, os: &impl Os, start: *mut u8, bytes: usize) -> GuardKind {
        // SAFETY: the caller guarantees that the range is committed and not in use.
        let guard = unsafe {
            if self.count < GUARDS_MAX && os.decommit(start, bytes) {
                GuardKind::Gap
            } else if self.within_mapping && os.hide(start, bytes) {
                GuardKind::Hidden
            } else {
                return GuardKind::None;
            }
        };
        self.count += 1;
        guard
    }

    /// Makes a guard, or part of it, accessible. It reads as zero.
    ///
    /// # Safety
    /// The range is such a guard, or the first part of one.
    pub unsafe fn lift(
        os: &impl Os,
        guard: GuardKind,
        start: *mut u8,
        bytes: usize,
    ) -> Result<(), Refusal> {
        // SAFETY: the caller guarantees that the range is a gap, or else hidden in its mapping.
        unsafe {
            match guard {
                GuardKind::Gap => os.commit(start, bytes),
                GuardKind::Hidden if !os.show(start, bytes) => Err(Refusal::Memory),
                _ => Ok(()),
            }
        }
    }

    /// Makes a run accessible again that is guarded from byte `usable_bytes` on. `decommitted`
    /// tells whether the bytes before that were. If memory is too short for that, the run is
    /// unmapped afterwards. [`Refusal::Addresses`]: it cannot be used again.
    ///
    /// # Safety
    /// The caller owns the run, and no thread uses its contents.
    pub unsafe fn remove(
        &mut self,
        region: &Region,
        os: &impl Os,
        (first, units): (UnitIndex, u32),
        usable_bytes: usize,
        decommitted: bool,
    ) -> Result<(), Refusal> {
        let (start, bytes) = (region.address(first), units as usize * UNIT);
        // SAFETY: the caller owns the run and its records. The first `usable_bytes` bytes are
        // not mapped if `decommitted` is set, and the rest is a guard.
        unsafe {
            let guard = (*region.span(first)).guard;
            let committed = match decommitted && usable_bytes > 0 {
                true => os.commit(start, usable_bytes),
                false => Ok(()),
            };
            self.count -= 1;
            let lifted = committed.and_then(|()| {
                Self::lift(os, guard, start.add(usable_bytes), bytes - usable_bytes)
            });
            if lifted.is_ok() {
                return Ok(());
            }
            // Decommit everything that counts as writable memory, which a guard within a mapping
            // does too. A gap may be foreign by now.
            let (from, to) = (
                if committed.is_ok() { 0 } else { usable_bytes },
                if guard == GuardKind::Hidden { bytes } else { usable_bytes },
            );
            let is_unmapped = from >= to || os.decommit(start.add(from), to - from);
            if is_unmapped { lifted } else { Err(Refusal::Addresses) }
        }
    }
}
