//! Before the heap grows: caches let go of what keeps spans from going back.
//!
//! A program that frees most of what it has, and goes on with blocks of other sizes, leaves spans behind
//! that are nearly free, each held by a few blocks in caches. A cache is worth little to classes that nobody
//! asks for, but their spans may be more than the program has in use. So where most of the memory of spans is
//! free, caches are emptied before more memory becomes resident (decisions/0017).

use crate::engine::Engine;
use crate::os::Os;
use crate::size_class::{SizeClass, UNIT};

impl<O: Os> Engine<O> {
    /// Empties caches if a run of so many units would have to come from memory that is not resident, and most
    /// of what spans have is free. Looks now and then only.
    #[inline]
    pub(crate) fn reuse_before_growth(&self, units: u32) {
        if self.pages.lock().would_grow(&self.region, units) && self.is_mostly_free(units) {
            self.flush_all();
            self.pages.lock().put_off_look();
        }
    }

    /// Whether of the memory of spans more is free than is with the program and in caches, and as
    /// much as so many units.
    #[cold]
    fn is_mostly_free(&self, units: u32) -> bool {
        let (mut free, mut claimed) = (0, 0);
        for class in SizeClass::all() {
            let counts = self.centrals[class.index()].spans().lock().counts;
            free += counts.free() * class.size();
            claimed += counts.claimed * class.size();
        }
        free > claimed && free >= units as usize * UNIT
    }
}
