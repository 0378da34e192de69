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
//! [`Guards::restore`] returns it once the kernel allows it. If a foreign mapping has come to lie
//! in a gap, the run is given up.

use crate::backend::region::{Region, UnitIndex};
use crate::backend::span::GuardKind;
use crate::backend::tuning::{GUARDS_MAX, RESTORES_PER_CALL_MAX};
use crate::platform::os::{Os, Refusal};
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
    /// tells whether the bytes before that were. No thread may use the run if this fails: if memory
    /// is short, until [`Guards::restore`] returns it; otherwise the caller gives it up.
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
            let refusal = match committed
                .and_then(|()| Self::lift(os, guard, start.add(usable_bytes), bytes - usable_bytes))
            {
                Ok(()) => {
                    self.count -= 1;
                    return Ok(());
                }
                Err(refusal) => refusal,
            };
            // Decommit everything that counts as writable memory, which a guard within a mapping
            // does too. A gap may be foreign by now.
            let (from, to) = (
                if committed.is_ok() { 0 } else { usable_bytes },
                if guard == GuardKind::Hidden { bytes } else { usable_bytes },
            );
            let is_inaccessible = from >= to || os.decommit(start.add(from), to - from);
            match refusal {
                Refusal::Addresses => self.count -= 1,
                Refusal::Memory => {
                    self.lost += units as usize;
                    if is_inaccessible {
                        (*region.span(first)).next = self.first_inaccessible;
                        self.first_inaccessible = first;
                    }
                }
            }
            Err(refusal)
        }
    }

    /// Makes an inaccessible run accessible again, and subtracts its units from [`Guards::lost`].
    /// Returns the run, which reads as zero, and its length in units, which `units_of` tells.
    /// `None` if no run became accessible. A run in which a foreign mapping lies is returned too,
    /// with [`Refusal::Addresses`]: the caller gives it up.
    pub fn restore(
        &mut self,
        region: &Region,
        os: &impl Os,
        units_of: impl Fn(UnitIndex) -> u32,
    ) -> Option<(UnitIndex, u32, Result<(), Refusal>)> {
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
                let committed = os.commit(start, bytes);
                if committed != Err(Refusal::Memory) {
                    *link = *next;
                    self.count -= 1;
                    self.lost -= units as usize;
                    return Some((first, units, committed));
                }
                // A later run may be shorter, and its commit may succeed.
                link = next;
            }
        }
        None
    }
}
