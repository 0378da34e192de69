//! Before the heap grows: what was left behind is given up.
//!
//! A program that frees most of what it has, and goes on with blocks of other sizes, leaves spans behind
//! that are nearly free. Some are held by a few blocks in caches. A cache is worth little to classes that nobody
//! asks for, but their spans may be more than the program has in use. So where most of the resident memory of spans is
//! free, caches are emptied before more memory becomes resident; and else those stacks that hold most of what
//! is left of their class, if that may free much. Others are held by blocks in use: of those of classes that nobody
//! asks for, OS pages without such blocks go back to the kernel, as many as are to become resident (decisions/0017).

use crate::backend::tuning::RECLAIM_SHARE;
use crate::backend::units::Units;
use crate::engine::Engine;
use crate::engine::caches::drain::DrainScope;
use crate::engine::tuning::{RECLAIM_PURGE_BYTES_MAX, RECLAIM_WORTH_SHARE};
use crate::frontend::slab as cache;
use crate::platform::os::Os;
use crate::platform::sync::Ordering;
use crate::size_class::{CLASSES, SizeClass, UNIT};

/// A class of which more is free than not.
#[derive(Clone, Copy)]
struct MostlyFree {
    /// Bytes that are free and resident; 0 for a class of which they are not.
    free: usize,
    /// Blocks with the program and in caches.
    claimed: usize,
    /// Whether nobody has asked for any of late.
    is_abandoned: bool,
}

impl<O: Os> Engine<O> {
    /// Gives up what was left behind if a run of so many units would have to come from memory that is not resident.
    /// Looks now and then only.
    #[inline(never)]
    pub(crate) fn reclaim_before_growth(&self, units: u32) {
        if let Some(length) = Units::new(units)
            && self.pages.lock().would_grow(&self.region, length)
        {
            self.reclaim(units);
        }
    }

    /// Empties all caches if of the resident memory of spans more is free than is with the program and in caches, and as
    /// much as so many units. Else, where much is free of classes of which more is free than not: empties those stacks
    /// that hold at least half of what is not free of their class, and digs in the spans of classes that are left.
    #[cold]
    fn reclaim(&self, units: u32) {
        let (mut free, mut claimed, mut left) = (0, 0, 0);
        let mut classes = [MostlyFree { free: 0, claimed: 0, is_abandoned: false }; CLASSES];
        for class in SizeClass::all() {
            let mut spans = self.centrals[class.index()].spans().lock();
            let (counts, is_abandoned) = (spans.counts, spans.is_abandoned());
            drop(spans);
            let bytes = counts.free_resident(class);
            free += bytes;
            claimed += counts.claimed * class.size();
            if bytes > counts.claimed * class.size() {
                left += bytes;
                classes[class.index()] =
                    MostlyFree { free: bytes, claimed: counts.claimed, is_abandoned };
            }
        }
        let wanted = units as usize * UNIT;
        let in_use = self.pages.lock().counts.in_use * UNIT;
        let much = wanted.max(in_use / RECLAIM_WORTH_SHARE);
        let mut purged = 0;
        if free > claimed && free >= wanted {
            self.try_drain(DrainScope::All);
        } else if left < much {
            return;
        } else {
            if let Some(these) = self.held_by_caches(&classes, much) {
                self.try_drain(DrainScope::Classes(these));
            }
            let most = (in_use / RECLAIM_SHARE).max(wanted).min(RECLAIM_PURGE_BYTES_MAX);
            for class in SizeClass::all().filter(|class| classes[class.index()].is_abandoned) {
                let mut spans = self.centrals[class.index()].spans().lock();
                purged += spans.purge_free_pages_up_to(
                    &self.region,
                    &self.os,
                    class,
                    most.saturating_sub(purged),
                );
            }
            self.counters.count_page_purges(purged);
        }
        // Also where caches were asked in vain. But what is left goes bit by bit.
        if purged == 0 {
            self.pages.lock().postpone_reclaim();
        }
    }

    /// Of these classes those of which caches hold at least half of what is not free, if of them so many bytes are free.
    fn held_by_caches(
        &self,
        classes: &[MostlyFree; CLASSES],
        much: usize,
    ) -> Option<[bool; CLASSES]> {
        let mut held = [0; CLASSES];
        let mut count = |slab: *mut cache::Slab| {
            for class in SizeClass::all().filter(|class| classes[class.index()].free > 0) {
                // SAFETY: a slab of this engine, all of which live as long.
                held[class.index()] += unsafe { cache::cached_blocks(slab, class) };
            }
        };
        // Where a stack was ever set up: most CPUs may have none, and to ask each of their stacks takes long.
        // SAFETY: as above.
        let used = |slab| unsafe { cache::history_of(slab) }.used.load(Ordering::Relaxed);
        self.slabs().filter(|&slab| used(slab)).for_each(&mut count);
        self.thread_slabs.for_each(count);
        let (mut these, mut bytes) = ([false; CLASSES], 0);
        for (nth, class) in classes.iter().enumerate() {
            these[nth] = class.free > 0 && held[nth] * 2 >= class.claimed;
            bytes += if these[nth] { class.free } else { 0 };
        }
        (bytes >= much).then_some(these)
    }
}
