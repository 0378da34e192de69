//! Guard pages: pages out of reach behind what may be used, so that whoever writes on is stopped.
//!
//! Where the kernel has pages out of reach within a mapping (Linux 6.13), there are as many as are wanted. Before, each is a gap in
//! what is mapped, which makes two mappings of one, of which a process has some 65,000 (vm.max_map_count). So there are
//! 12,000 at most; what comes later has none, and is as good as without but for that.
//!
//! There it may also be refused to make a guard accessible again: where so much memory may be written as the process may have
//! (RLIMIT_DATA). Then all of its run is put out of reach, which leaves room for others, and comes back when there is room for it.

use crate::backend::region::{Region, UnitIndex};
use crate::backend::tuning::GUARDS_MAX;
use crate::backend::tuning::RESTORES_PER_CALL_MAX;
use crate::platform::os::Os;
use crate::size_class::UNIT;

/// How many there are.
pub(crate) struct Guards {
    placed: usize,
    /// Whether they split no mappings.
    within: bool,
    /// Units that cannot be used: those of runs that are out of reach as a whole, and those that the kernel refused even that for.
    pub lost: usize,
    /// The first run out of reach; the others are linked by their spans' records.
    first: UnitIndex,
}

impl Guards {
    pub const fn new() -> Self {
        Self { placed: 0, within: false, lost: 0, first: 0 }
    }

    /// Finds out which ones there are, by a page that is committed, and which nobody uses.
    pub fn set_up(&mut self, os: &impl Os, page: *mut u8) {
        self.within = os.can_hide(page);
    }

    /// Whether there may be more.
    pub fn are_left(&self) -> bool {
        self.within || self.placed < GUARDS_MAX
    }

    /// Puts pages out of reach. False if there are too many already, or the kernel refuses; the contents are
    /// unspecified then.
    ///
    /// # Safety
    /// The range is committed, and nobody uses it.
    pub unsafe fn place(&mut self, os: &impl Os, start: *mut u8, bytes: usize) -> bool {
        // SAFETY: the caller's.
        let placed = self.are_left() && unsafe { os.hide(start, bytes) };
        self.placed += placed as usize;
        placed
    }

    /// Makes all of a run accessible again that is guarded from `reach` bytes on. `hidden`: what is before that was decommitted.
    /// False if the kernel refuses: then nobody may use the run until [`Guards::restore`] returns it.
    ///
    /// # Safety
    /// The run is the caller's, and nobody uses what is in it.
    pub unsafe fn remove(
        &mut self,
        region: &Region,
        os: &impl Os,
        (first, units): (UnitIndex, u32),
        reach: usize,
        hidden: bool,
    ) -> bool {
        let (start, bytes) = (region.address(first), units as usize * UNIT);
        // SAFETY: the caller's.
        unsafe {
            let shown = !hidden || reach == 0 || os.commit(start, reach).is_ok();
            if shown && os.show(start.add(reach), bytes - reach) {
                self.placed -= 1;
                return true;
            }
            self.lost += units as usize;
            // All that counts as memory that may be written, also a guard within a mapping.
            let (from, to) =
                (if shown { 0 } else { reach }, if self.within { bytes } else { reach });
            if from < to && !os.decommit(start.add(from), to - from) {
                return false;
            }
            (*region.span(first)).next = self.first;
            self.first = first;
        }
        false
    }

    /// A run of so many units that is accessible again and reads as zero, its units no longer lost; `None` if there is none.
    pub fn restore(
        &mut self,
        region: &Region,
        os: &impl Os,
        units_of: impl Fn(UnitIndex) -> u32,
    ) -> Option<(UnitIndex, u32)> {
        let mut link = &raw mut self.first;
        for _ in 0..RESTORES_PER_CALL_MAX {
            // SAFETY: a link of the list, whose records are kept for it.
            let first = unsafe { *link };
            if first == 0 {
                break;
            }
            let (units, start) = (units_of(first), region.address(first));
            let bytes = units as usize * UNIT;
            // SAFETY: out of reach, and nobody's.
            unsafe {
                let next = &raw mut (*region.span(first)).next;
                if os.commit(start, bytes).is_ok() {
                    if !self.within || os.show(start, bytes) {
                        *link = *next;
                        self.placed -= 1;
                        self.lost -= units as usize;
                        return Some((first, units));
                    }
                    os.decommit(start, bytes);
                }
                // A shorter one may be had.
                link = next;
            }
        }
        None
    }
}
