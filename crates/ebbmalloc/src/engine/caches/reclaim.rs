//! Reclaims memory while the heap grows, before the next span or large block: drains caches, and
//! purges free pages of spans.
//!
//! A program that frees most of its memory and goes on with blocks of other sizes leaves spans
//! behind that are nearly free. A few blocks hold each of them (decisions/0017).
//!
//! - Blocks in caches: a cache is worth little to a class that the program no longer allocates. But
//!   the class's spans may be larger than all memory in use. So where most of the resident memory
//!   of spans is free, reclaim empties caches before more memory becomes resident. Otherwise, if
//!   that may free enough, it empties stacks that hold most of the blocks of their class.
//! - Blocks in use: reclaim purges OS pages without such blocks, in spans that are mostly free. It
//!   purges at most as much as is about to become resident, with bounds. Where most of the memory
//!   of spans is in use, it leaves classes alone that have had a refill since the last reclaim.
//!
//! With several threads (decisions/0032), reclaim empties only the calling thread's cache, the
//! caches of ended threads, and slabs with a lock: transfer caches and shared caches. Stacks in
//! caches of other CPUs and threads stay as they are, unless a round has closed them long enough
//! ago (`drain.rs`).

use crate::backend::tuning::RECLAIM_DIVISOR;
use crate::backend::units::Units;
use crate::engine::Engine;
use crate::engine::caches::drain::DrainScope;
use crate::engine::tuning::{RECLAIM_PURGE_BYTES_MAX, RECLAIM_WORTH_DIVISOR};
use crate::frontend::slab::Slab;
use crate::platform::os::Os;
use crate::platform::sync::Ordering;
use crate::size_class::{CLASSES, SizeClass, UNIT};

/// A class whose spans are mostly free: they have more free resident bytes than claimed ones.
#[derive(Clone, Copy)]
struct MostlyFree {
    /// Free resident bytes in its spans; 0 for a class that is not mostly free.
    free_bytes: usize,
    /// Blocks with the program and in caches.
    claimed_blocks: usize,
    /// Whether the class had no refill since the last reclaim.
    is_abandoned: bool,
}

impl<O: Os> Engine<O> {
    /// Reclaims memory if a run of `bytes` bytes at this alignment would take memory that is not
    /// resident. Does so only each time that enough memory has become resident since the last look.
    #[inline(never)]
    pub(crate) fn reclaim_if_due(&self, bytes: usize, align: usize) {
        if let (Some(length), Some(align)) = (Units::for_bytes(bytes), Units::for_bytes(align))
            && self.pages().take_due_reclaim(length, align)
        {
            self.reclaim(length, align);
        }
    }

    /// Empties caches if the spans have more free resident bytes than claimed ones, and at least
    /// `needed_bytes`. Then purges free pages in spans of the mostly free classes.
    ///
    /// Otherwise, if the mostly free classes together have enough free bytes: empties their stacks
    /// where caches hold at least half of the claimed blocks of a class. Then it purges pages, but
    /// only in abandoned classes.
    #[cold]
    fn reclaim(&self, length: Units, align: Units) {
        let needed_bytes = length.bytes();
        let (mut free_bytes, mut claimed_bytes, mut mostly_free_bytes) = (0, 0, 0);
        let mut classes =
            [MostlyFree { free_bytes: 0, claimed_blocks: 0, is_abandoned: false }; CLASSES];
        for class in SizeClass::all() {
            let mut spans = self.centrals[class.index()].spans().lock();
            let (counts, is_abandoned) = (spans.counts, spans.note_abandoned());
            drop(spans);
            let bytes = counts.free_resident(class);
            free_bytes += bytes;
            claimed_bytes += counts.claimed * class.size();
            if bytes > counts.claimed * class.size() {
                mostly_free_bytes += bytes;
                classes[class.index()] =
                    MostlyFree { free_bytes: bytes, claimed_blocks: counts.claimed, is_abandoned };
            }
        }
        let in_use_bytes = self.pages.lock().counts.in_use * UNIT;
        let worth_bytes = needed_bytes.max(in_use_bytes / RECLAIM_WORTH_DIVISOR);
        let mut purged_bytes = 0;
        let spans_are_mostly_free = free_bytes > claimed_bytes && free_bytes >= needed_bytes;
        if spans_are_mostly_free {
            if self.pages().take_due_drain() {
                self.try_drain(DrainScope::All);
            }
        } else if mostly_free_bytes < worth_bytes {
            return;
        } else if let Some(chosen) = self.classes_held_by_caches(&classes, worth_bytes) {
            self.try_drain(DrainScope::Classes(chosen));
        }
        let max_bytes =
            (in_use_bytes / RECLAIM_DIVISOR).max(needed_bytes).min(RECLAIM_PURGE_BYTES_MAX);
        // What the caches had may be enough.
        let would_grow = self.pages().would_grow(length, align);
        let may_go = |class: &SizeClass| {
            let MostlyFree { free_bytes, is_abandoned, .. } = classes[class.index()];
            would_grow && free_bytes > 0 && (spans_are_mostly_free || is_abandoned)
        };
        for class in SizeClass::all().filter(may_go) {
            let mut spans = self.centrals[class.index()].spans().lock();
            purged_bytes += spans.purge_free_pages_up_to(
                &self.memory(),
                class,
                max_bytes.saturating_sub(purged_bytes),
            );
        }
        self.counters.count_page_purges(purged_bytes);
        // Without a purge the next reclaim may wait, also where the caches had nothing to give.
        // After one it may not: each purges only a part.
        if purged_bytes == 0 {
            self.pages().postpone_reclaim();
        }
    }

    /// Chooses the mostly free classes of which caches hold at least half of the claimed blocks.
    /// `None` if these classes have fewer than `worth_bytes` free.
    fn classes_held_by_caches(
        &self,
        classes: &[MostlyFree; CLASSES],
        worth_bytes: usize,
    ) -> Option<[bool; CLASSES]> {
        let mut cached_blocks = [0; CLASSES];
        let mut count = |slab: Slab| {
            for class in SizeClass::all().filter(|class| classes[class.index()].free_bytes > 0) {
                cached_blocks[class.index()] += slab.cached_blocks(class);
            }
        };
        // Only slabs in which a stack was ever set up: most CPUs may have none, and a look at each
        // of their stacks takes long.
        let used = self.slabs().filter(|slab| slab.history().used.load(Ordering::Relaxed));
        used.for_each(&mut count);
        self.thread_slabs.for_each(count);
        let (mut chosen, mut bytes) = ([false; CLASSES], 0);
        for (index, class) in classes.iter().enumerate() {
            chosen[index] =
                class.free_bytes > 0 && cached_blocks[index] * 2 >= class.claimed_blocks;
            bytes += if chosen[index] { class.free_bytes } else { 0 };
        }
        (bytes >= worth_bytes).then_some(chosen)
    }
}
