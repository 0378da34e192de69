//! Reclaims memory before the heap grows: drains caches.
//!
//! A program that frees most of its memory and goes on with blocks of other sizes leaves spans
//! behind that are nearly free. A few blocks hold each of them (decisions/0017).
//!
//! A cache is worth little to a class that the program no longer allocates, but the class's spans may
//! be larger than all memory in use. So where most of the resident memory of spans is free, reclaim
//! empties caches before more memory becomes resident.
//!
//! With several threads (decisions/0032), reclaim empties only the calling thread's cache, the
//! caches of ended threads, and slabs with a lock: transfer caches and shared caches. Stacks in
//! caches of other CPUs and threads stay as they are, unless a round has closed them long enough
//! ago (`drain.rs`).

use crate::backend::units::Units;
use crate::engine::Engine;
use crate::platform::os::Os;
use crate::size_class::{SizeClass, UNIT};

impl<O: Os> Engine<O> {
    /// Reclaims memory if a run of `units` would take memory that is not resident. Does so only
    /// each time that enough memory has become resident since the last look.
    #[inline(never)]
    pub(crate) fn reclaim_before_growth(&self, units: u32) {
        if let Some(length) = Units::new(units)
            && self.pages.lock().would_grow(&self.region, length)
        {
            self.reclaim(units);
        }
    }

    /// Empties caches if the spans have more free resident bytes than claimed ones, and enough for
    /// `units`.
    #[cold]
    fn reclaim(&self, units: u32) {
        let (mut free_bytes, mut claimed_bytes) = (0, 0);
        for class in SizeClass::all() {
            let counts = self.centrals[class.index()].spans().lock().counts;
            free_bytes += counts.free_resident(class);
            claimed_bytes += counts.claimed * class.size();
        }
        if free_bytes > claimed_bytes && free_bytes >= units as usize * UNIT {
            self.try_flush_all();
            self.pages.lock().postpone_reclaim();
        }
    }
}
