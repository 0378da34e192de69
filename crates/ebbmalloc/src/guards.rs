//! Guard pages: pages out of reach behind what may be used, so that whoever writes on is stopped.
//!
//! Each is a gap in what is mapped, which makes two mappings of one, of which a process has some 65,000
//! (vm.max_map_count). So their number is bounded; what comes later has none, and is as good as without but for that.

use crate::os::Os;

/// The most guards: with what moved pages take (`pages.rs`) they leave some mappings to the program.
const MOST: usize = 12_000;

/// How many there are.
pub(crate) struct Guards {
    placed: usize,
    /// Units that cannot be used any more, as the kernel refused to make them accessible again.
    pub lost: usize,
}

impl Guards {
    pub const fn new() -> Self {
        Self { placed: 0, lost: 0 }
    }

    /// Whether there may be more.
    pub fn are_left(&self) -> bool {
        self.placed < MOST
    }

    /// Puts pages out of reach. False if there are too many already, or the kernel refuses; the contents are
    /// unspecified then.
    ///
    /// # Safety
    /// The range is committed, and nobody uses it.
    pub unsafe fn place(&mut self, os: &impl Os, start: *mut u8, bytes: usize) -> bool {
        // SAFETY: the caller's.
        let placed = self.are_left() && unsafe { os.decommit(start, bytes) };
        self.placed += placed as usize;
        placed
    }

    /// Undoes that; or else books the units that it was for as lost.
    ///
    /// # Safety
    /// The range is out of reach, by [`Guards::place`] or more of it by now.
    pub unsafe fn remove(
        &mut self,
        os: &impl Os,
        start: *mut u8,
        bytes: usize,
        units: u32,
    ) -> bool {
        // SAFETY: the caller's.
        let removed = unsafe { os.commit(start, bytes) }.is_ok();
        self.placed -= removed as usize;
        self.lost += if removed { 0 } else { units as usize };
        removed
    }
}
