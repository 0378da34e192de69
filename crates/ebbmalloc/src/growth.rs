//! Before the heap grows: caches let go of what keeps spans from going back.
//!
//! A program that frees most of what it has, and goes on with blocks of other sizes, leaves spans behind
//! that are nearly free, each held by a few blocks in caches. A cache is worth little to classes that nobody
//! asks for, but their spans may be more than the program has in use. So where most of the memory of spans is
//! free, caches are emptied before more memory becomes resident; and else those stacks that hold most of what
//! is left of their class, if that may free much (decisions/0017).

use crate::drain::Which;
use crate::engine::Engine;
use crate::os::Os;
use crate::size_class::{CLASSES, SizeClass, UNIT};

/// Much is one part in so many of what is in use.
const MUCH_SHARE: usize = 32;

impl<O: Os> Engine<O> {
    /// Empties caches if a run of so many units would have to come from memory that is not resident, and
    /// that may help. Looks now and then only.
    #[inline]
    pub(crate) fn reuse_before_growth(&self, units: u32) {
        if self.pages.lock().would_grow(&self.region, units)
            && let Some(which) = self.held_by_caches(units)
        {
            self.let_go(which);
            self.pages.lock().put_off_look();
        }
    }

    /// Which stacks to empty: all if of the memory of spans more is free than is with the program and in caches, and
    /// as much as so many units; those that hold at least half of what is not free of their class, if that is less than
    /// what is free of it, and if together that is much.
    #[cold]
    fn held_by_caches(&self, units: u32) -> Option<Which> {
        let (mut free, mut claimed, mut held) = (0, 0, 0);
        let mut holders = [false; CLASSES];
        for class in SizeClass::all() {
            let counts = self.centrals[class.index()].spans().lock().counts;
            free += counts.free() * class.size();
            claimed += counts.claimed * class.size();
            if counts.free() > counts.claimed && self.held(class) * 2 >= counts.claimed {
                holders[class.index()] = true;
                held += counts.free() * class.size();
            }
        }
        let wanted = units as usize * UNIT;
        let in_use = self.pages.lock().counts.in_use * UNIT;
        if free > claimed && free >= wanted {
            Some(Which::All)
        } else if held >= wanted.max(in_use / MUCH_SHARE) {
            Some(Which::These(holders))
        } else {
            None
        }
    }
}
