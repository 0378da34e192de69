//! Before the heap grows: caches let go of what keeps spans from going back.
//!
//! A program that frees most of what it has, and goes on with blocks of other sizes, leaves spans behind
//! that are nearly free, each held by a few blocks in caches. A cache is worth little to classes that nobody
//! asks for, but their spans may be more than the program has in use. So where most of the memory of spans is
//! free, caches are emptied before more memory becomes resident; and else those stacks that hold most of what
//! is left of their class, if that may free much (decisions/0017).

use crate::cache;
use crate::central::CentralCounts;
use crate::drain::Which;
use crate::engine::Engine;
use crate::os::Os;
use crate::size_class::{CLASSES, SizeClass, UNIT};
use crate::sync::Ordering;

/// Much is one part in so many of what is in use.
const MUCH_SHARE: usize = 32;

impl<O: Os> Engine<O> {
    /// Empties caches if a run of so many units would have to come from memory that is not resident, and
    /// that may help. Looks now and then only.
    #[inline]
    pub(crate) fn reuse_before_growth(&self, units: u32) {
        if self.pages.lock().would_grow(&self.region, units) {
            self.look_for(units);
        }
    }

    /// Empties all caches if of the memory of spans more is free than is with the program and in caches, and as
    /// much as so many units. Else those stacks that hold at least half of what is not free of their class, if that is
    /// less than what is free of it, and if together that is much.
    #[cold]
    #[inline(never)]
    fn look_for(&self, units: u32) {
        let (mut free, mut claimed, mut left) = (0, 0, 0);
        let mut mostly_free = [None; CLASSES];
        for class in SizeClass::all() {
            let counts = self.centrals[class.index()].spans().lock().counts;
            free += counts.free() * class.size();
            claimed += counts.claimed * class.size();
            if counts.free() > counts.claimed {
                left += counts.free() * class.size();
                mostly_free[class.index()] = Some(counts);
            }
        }
        let wanted = units as usize * UNIT;
        let in_use = self.pages.lock().counts.in_use * UNIT;
        let much = wanted.max(in_use / MUCH_SHARE);
        if free > claimed && free >= wanted {
            self.let_go(Which::All);
        } else if left < much {
            return;
        } else if let Some(these) = self.held_by_caches(&mostly_free, much) {
            self.let_go(Which::These(these));
        }
        // Also where that looked at all caches in vain.
        self.pages.lock().put_off_look();
    }

    /// Of these classes those of which caches hold at least half of what is not free, if of them so many bytes are free.
    fn held_by_caches(
        &self,
        mostly_free: &[Option<CentralCounts>; CLASSES],
        much: usize,
    ) -> Option<[bool; CLASSES]> {
        let mut held = [0; CLASSES];
        let mut count = |slab: *mut cache::Slab| {
            for class in SizeClass::all().filter(|class| mostly_free[class.index()].is_some()) {
                // SAFETY: a slab of this engine, all of which live as long.
                held[class.index()] += unsafe { cache::held(slab, class) };
            }
        };
        // Where a stack was ever set up: most CPUs may have none, and to ask each of their stacks takes long.
        // SAFETY: as above.
        let used = |slab| unsafe { cache::history_of(slab) }.used.load(Ordering::Relaxed);
        self.slabs().filter(|&slab| used(slab)).for_each(&mut count);
        self.thread_slabs.for_each(count);
        let (mut these, mut bytes) = ([false; CLASSES], 0);
        for class in SizeClass::all() {
            if let Some(counts) = &mostly_free[class.index()]
                && held[class.index()] * 2 >= counts.claimed
            {
                these[class.index()] = true;
                bytes += counts.free() * class.size();
            }
        }
        (bytes >= much).then_some(these)
    }
}
