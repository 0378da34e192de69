//! The page heap: runs of units, handed out by address-ordered best fit, joined when they come
//! back, and purged (returned to the kernel) when too much free memory stays resident.
//!
//! Free runs are of three kinds, which do not join: *dirty* ones are resident and hold old
//! contents; *clean* ones are mapped, cost nothing and read as zero; *unmapped* ones are addresses
//! only, as the host would otherwise see more address space in use than there is memory. They are
//! handed out in this order. And there are runs of no use, where another mapping lies.

use core::iter;
use core::num::NonZeroUsize;
use core::ops::Range;
use core::sync::atomic::{Ordering, fence};

use crate::backend::guard_pages::Guards;
use crate::backend::page_map::MapEntry;
use crate::backend::region::Region;
use crate::backend::retention::{PageCounts, Retention};
use crate::backend::run::{Marks, Run, State, Tail};
use crate::backend::run_tree::RunTree;
use crate::backend::tuning::{
    CLEAN_SHARE, CLEAN_UNITS_MAX, MOVED_MAPPINGS_MAX, SKIP_UNITS_MIN, SKIPS_MAX, UNMAP_UNITS_MIN,
    UNMAPPED_RUNS_MAX,
};
use crate::backend::units::{UnitIndex, UnitRange, Units};
use crate::platform::os::{Os, Refusal};
use crate::size_class::{SizeClass, UNIT};

/// A run that was handed out.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub(crate) struct Granted {
    pub first: UnitIndex,
    /// The memory reads as zero.
    pub zeroed: bool,
}

/// Everything free, and the frontier behind which nothing was ever used.
pub(crate) struct PageHeap {
    dirty: RunTree,
    clean: RunTree,
    unmapped: RunTree,
    /// Units that were ever handed out, unit 0 included.
    frontier: UnitIndex,
    /// Units that may be in use or dirty, if not as many as there are.
    pub limit: Option<NonZeroUsize>,
    pub retention: Retention,
    pub guards: Guards,
    pub counts: PageCounts,
    /// Mappings to which pages have moved: units marked as the beginning of one.
    mappings: usize,
}

impl PageHeap {
    /// A page heap that has handed out nothing.
    pub const fn new() -> Self {
        Self {
            dirty: RunTree::new(),
            clean: RunTree::new(),
            unmapped: RunTree::new(),
            frontier: 0,
            limit: None,
            retention: Retention::new(),
            guards: Guards::new(),
            counts: PageCounts::NONE,
            mappings: 0,
        }
    }

    /// Hands out `units` units that begin at a multiple of `align` units, a power of two.
    /// `None` if the region or the kernel has not so much, or the limit forbids it.
    pub fn alloc(
        &mut self,
        region: &Region,
        os: &impl Os,
        units: Units,
        align: Units,
    ) -> Option<Granted> {
        let in_use = self.counts.in_use + units.get() as usize;
        if in_use > self.most() || !self.could_hold(region, units, align) {
            return None;
        }
        let longer = if align == Units::ONE { self.take_longer(region, os, units) } else { None };
        let (granted, grown) = match longer {
            Some((first, grown)) => (Granted { first, zeroed: false }, grown),
            None => {
                let granted = self.take(region, os, units, align).or_else(|| {
                    // Dirty and clean neighbours do not join; purged, they do. And what nobody uses may be what
                    // the limit of address space lacks.
                    self.purge(region, os, 0);
                    self.unmap(region, os, 0);
                    self.take(region, os, units, align)
                });
                let Some(granted) = granted else {
                    self.retention.refuse(in_use);
                    return None;
                };
                (granted, if granted.zeroed { units.get() } else { 0 })
            }
        };
        self.count_use(units.get());
        self.make_up_for_growth(region, os, grown);
        Some(granted)
    }

    /// Units that may be in use or dirty.
    fn most(&self) -> usize {
        self.limit.map_or(usize::MAX, NonZeroUsize::get)
    }

    /// So many units became resident: where much is already, some that is free goes.
    fn make_up_for_growth(&mut self, region: &Region, os: &impl Os, units: u32) {
        if units > 0
            && let Some(keep) = self.retention.after_growth(&self.counts, units)
        {
            self.purge(region, os, keep);
        }
    }

    /// Whether there could be so many units, at a multiple of `align`, if nothing else were there:
    /// if not, it is of no use to make room, and so nothing is given up.
    pub fn could_hold(&self, region: &Region, units: Units, align: Units) -> bool {
        let first = region.align_unit(1, align.get());
        let all = first.and_then(|first| UnitRange::new(first, units));
        all.is_some_and(|all| all.end() as usize <= region.units())
            && units.get() as usize <= self.most()
    }

    /// Whether a run of so many units would take memory that is not resident, and it is time to look
    /// whether caches keep too much: [`Retention::is_reclaim_due`].
    pub fn would_grow(&mut self, region: &Region, units: Units) -> bool {
        self.could_hold(region, units, Units::ONE)
            && self.dirty.best_fit(region, units.get()).is_none()
            && self.retention.is_reclaim_due(&self.counts, units.get())
    }

    /// Caches were emptied, or asked in vain: [`Retention::postpone_reclaim`].
    pub fn postpone_reclaim(&mut self) {
        self.retention.postpone_reclaim(&self.counts);
    }

    /// How many units a span of this class is to have: one where there is a gap of one, since no large block
    /// fits into that; else as many as usual.
    pub fn span_units(&self, region: &Region, class: SizeClass) -> u32 {
        let shortest = self.dirty.best_fit(region, 1);
        // SAFETY: the run is in a tree, so its record is current.
        let is_gap = |first: UnitIndex| unsafe { (*region.run(first)).units == 1 };
        if shortest.is_some_and(is_gap) { 1 } else { class.span_units() }
    }

    fn count_use(&mut self, units: u32) {
        self.counts.in_use += units as usize;
        self.retention.count(&self.counts);
    }

    /// As [`PageHeap::alloc`], but for the pages of a run of `from` units that are to be moved there: takes memory
    /// that is not resident, and none where resident memory would do, into which copying is quicker than to let
    /// both be purged.
    pub fn alloc_to_move(
        &mut self,
        region: &Region,
        os: &impl Os,
        run: UnitRange,
        units: Units,
        align: Units,
    ) -> Option<Granted> {
        if !self.could_hold(region, units, align)
            || !self.may_move(region, run.first()..run.end())
            || self.dirty.best_fit(region, units.get()).is_some()
        {
            return None;
        }
        let from = run.length().get();
        // The limit is for pages, and those of `from` only change their place.
        self.counts.in_use -= from as usize;
        let granted = self.take(region, os, units, align);
        self.counts.in_use += from as usize;
        let granted = granted?;
        self.count_use(units.get());
        Some(granted)
    }

    /// Takes a run back whose pages were moved away, and its addresses with them.
    pub fn free_moved(&mut self, region: &Region, os: &impl Os, first: UnitIndex, units: u32) {
        self.disown(region, first);
        self.counts.in_use -= units as usize;
        self.retention.patience.count_gone(os.now_ms(), units);
        if self.counts.unmapped_runs < UNMAPPED_RUNS_MAX {
            self.insert(region, first, units, State::Unmapped);
            return;
        }
        // SAFETY: nothing is mapped there.
        let state = match unsafe { region.map_again(os, first, units, false) } {
            Ok(()) => State::Clean,
            Err(Refusal::Memory) => State::Unmapped,
            Err(Refusal::Addresses) => return self.give_up(region, first, units),
        };
        self.insert(region, first, units, state);
    }

    /// Takes a run back whose pages nobody has touched, as far as anybody knows, or that went back to the kernel since.
    pub fn free_untouched(&mut self, region: &Region, os: &impl Os, first: UnitIndex, units: u32) {
        self.disown(region, first);
        self.counts.in_use -= units as usize;
        self.insert(region, first, units, State::Clean);
        self.unmap_surplus(region, os);
    }

    /// Takes a run back whose pages went back to the kernel.
    pub fn free_clean(&mut self, region: &Region, os: &impl Os, first: UnitIndex, units: u32) {
        self.disown(region, first);
        self.counts.in_use -= units as usize;
        self.insert(region, first, units, State::Clean);
        self.retention.patience.count_gone(os.now_ms(), units);
        self.unmap_surplus(region, os);
    }

    /// Takes runs back that are out of reach, as far as there is room for them now: [`Guards::restore`]. False if there were none.
    fn restore(&mut self, region: &Region, os: &impl Os) -> bool {
        // SAFETY: in use, so the record is current.
        let units_of = |first: UnitIndex| unsafe { (*region.run(first)).units };
        let mut some = false;
        while let Some((first, units)) = self.guards.restore(region, os, units_of) {
            self.free_clean(region, os, first, units);
            some = true;
        }
        some
    }

    /// Takes a run back, and purges if too much free memory is resident for too long.
    #[inline(never)]
    pub fn free(&mut self, region: &Region, os: &impl Os, first: UnitIndex, units: u32) {
        self.disown(region, first);
        self.counts.in_use -= units as usize;
        self.insert(region, first, units, State::Dirty);
        if let Some(keep) = self.retention.after_free(os, &self.counts) {
            self.purge(region, os, keep);
        }
    }

    /// Makes a run in use longer, up to `longer` units, if what follows it is free: dirty, clean,
    /// behind the frontier, or one after the other.
    pub fn extend(&mut self, region: &Region, os: &impl Os, run: UnitRange, longer: Units) -> bool {
        let (Some(all), Some(more)) = (run.resized(longer), longer.minus(run.length())) else {
            return false;
        };
        let (next, end, more) = (run.end(), all.end(), more.get());
        if end as usize > region.units() {
            return false;
        }
        let Some(dirty) = self.dirty_of_free(region, next, end) else {
            return false;
        };
        if dirty < more && !self.admit(region, os, more) {
            return false;
        }
        let taken = self.take_free(region, os, next, end);
        if taken {
            self.mark_in_use(region, run.first(), longer.get());
            self.count_use(more);
            self.make_up_for_growth(region, os, more - dirty);
        }
        taken
    }

    /// Where no dirty run is long enough: the longest and what follows it, if that is free and no more than it itself. What
    /// is dirty for nobody would be resident beside a clean run as long. Where it begins, and how many units become resident.
    fn take_longer(
        &mut self,
        region: &Region,
        os: &impl Os,
        units: Units,
    ) -> Option<(UnitIndex, u32)> {
        let (first, longest) = self.dirty.longest(region)?;
        let (end, units) = (UnitRange::new(first, units)?.end(), units.get());
        if longest >= units || longest < units - longest {
            return None;
        }
        let grown = units - self.dirty_of_free(region, first, end)?;
        // Not where something has to be purged first, which might be this run, and it would be no run any more.
        let resident = self.counts.in_use + self.counts.dirty + grown as usize;
        if resident > self.most() || !self.take_free(region, os, first, end) {
            return None;
        }
        self.mark_in_use(region, first, units);
        Some((first, grown))
    }

    /// How many units from `next` to `end` are dirty, if all of them are free. What is behind the frontier is.
    fn dirty_of_free(&self, region: &Region, next: UnitIndex, end: UnitIndex) -> Option<u32> {
        let (mut at, mut dirty) = (next, 0);
        while at < end.min(self.frontier) {
            // SAFETY: below the frontier, hence committed; a run begins there, and runs are ours under the lock.
            let run = unsafe { *region.run(at) };
            match run.state {
                State::InUse | State::Foreign => return None,
                State::Dirty => dirty += run.units.min(end - at),
                State::Clean | State::Unmapped => {}
            }
            at += run.units;
        }
        Some(dirty)
    }

    /// Takes the units from `next` to `end`, at which a free run begins and all of which are free, out of what is free; none of
    /// them if they cannot be committed.
    fn take_free(
        &mut self,
        region: &Region,
        os: &impl Os,
        next: UnitIndex,
        end: UnitIndex,
    ) -> bool {
        if region.commit_up_to(os, end as usize).is_err() {
            return false;
        }
        let mut at = next;
        while at < end.min(self.frontier) {
            // SAFETY: as in `dirty_of_free`.
            let run = unsafe { *region.run(at) };
            if run.state == State::Unmapped {
                if self.map_again(region, os, at, at, end.min(at + run.units)).is_err() {
                    return false;
                }
                // It may have joined the one before it.
                at = next;
                continue;
            }
            at += run.units;
        }
        let mut at = next;
        while at < end.min(self.frontier) {
            // SAFETY: as above.
            let run = unsafe { *region.run(at) };
            self.remove(region, at);
            let taken = run.units.min(end - at);
            if run.state == State::Clean {
                self.retention.patience.count_back(os.now_ms(), taken);
            }
            self.mark_in_use(region, at, taken);
            if taken < run.units {
                self.insert(region, end, run.units - taken, run.state);
            }
            at += run.units;
        }
        self.frontier = self.frontier.max(end);
        true
    }

    /// Gives the end of a run back, so that `keep` of its units remain, if it has more.
    pub fn shrink(&mut self, region: &Region, os: &impl Os, run: UnitRange, keep: Units) {
        if let Some(rest) = run.behind(keep) {
            self.mark_in_use(region, run.first(), keep.get());
            self.free(region, os, rest.first(), rest.length().get());
        }
    }

    /// Notes what a run in use was asked for with, and which heap it belongs to: [`Run::note`].
    pub fn note(&mut self, region: &Region, first: UnitIndex, bytes: usize, heap: UnitIndex) {
        // SAFETY: in use, so committed; runs are ours under the lock.
        unsafe { (*region.run(first)).note(bytes, heap) }
    }

    /// The same where nothing of the run is resident yet.
    pub fn record_clean_block(
        &mut self,
        region: &Region,
        first: UnitIndex,
        bytes: usize,
        heap: UnitIndex,
    ) {
        self.note(region, first, bytes, heap);
        // SAFETY: as above.
        unsafe { (*region.run(first)).marks = (*region.run(first)).marks.with_tail(Tail::Gone) }
    }

    /// Returns the OS pages behind the end of a large block to the kernel, once for each size that it has: nobody may
    /// use them. Where `only_quiet`, not before the block had its size for two looks. Bytes that went.
    pub fn purge_tail(
        &mut self,
        region: &Region,
        os: &impl Os,
        first: UnitIndex,
        only_quiet: bool,
    ) -> usize {
        let run = region.run(first);
        // SAFETY: as above.
        let (units, tail, usable) =
            unsafe { ((*run).units, (*run).marks.tail(), Run::usable(run, os.page_size())) };
        let looked = match tail {
            Tail::Gone => return 0,
            Tail::New if only_quiet => Tail::Digests,
            Tail::New | Tail::Digests => Tail::Gone,
        };
        // SAFETY: as above; the block's owner, who may read the record without the lock, does not read this.
        unsafe { (*run).marks = (*run).marks.with_tail(looked) };
        let bytes = (units as usize * UNIT).saturating_sub(usable);
        if looked == Tail::Digests || bytes == 0 {
            return 0;
        }
        // SAFETY: whole pages of the run, all behind what may be used of the block.
        if unsafe { os.purge(region.address(first).add(usable), bytes) } { bytes } else { 0 }
    }

    /// Notes that a run in use was handed out as zeros.
    pub fn mark_zeroed(&mut self, region: &Region, first: UnitIndex) {
        // SAFETY: as above.
        unsafe { (*region.run(first)).marks = (*region.run(first)).marks.with_zeros() }
    }

    /// Whether it was.
    pub fn is_marked_zeroed(&self, region: &Region, first: UnitIndex) -> bool {
        self.marks(region, first).zeros()
    }

    fn marks(&self, region: &Region, unit: UnitIndex) -> Marks {
        // SAFETY: a committed unit, whose record is ours under the lock.
        unsafe { (*region.run(unit)).marks }
    }

    /// Notes that these units are a mapping of their own, to which pages were `moved`; or of the region's again.
    pub fn record_mapping(&mut self, region: &Region, units: Range<UnitIndex>, moved: bool) {
        if !moved && self.mappings == 0 {
            return;
        }
        let (start, end) = (units.start, units.end);
        for unit in units {
            self.mark_mapping(region, unit, moved, moved && unit == start);
        }
        // What is left of one that began before.
        if (end as usize) < region.committed() / UNIT && self.marks(region, end).moved() {
            self.mark_mapping(region, end, true, true);
        }
    }

    fn mark_mapping(&mut self, region: &Region, unit: UnitIndex, moved: bool, begins: bool) {
        let old = self.marks(region, unit);
        self.mappings = self.mappings + begins as usize - old.begins() as usize;
        // SAFETY: as in `marks`.
        unsafe { (*region.run(unit)).marks = old.with_mapping(moved, begins) }
    }

    /// Whether pages have moved to some of these units.
    fn has_moved(&self, region: &Region, mut units: Range<UnitIndex>) -> bool {
        self.mappings > 0 && units.any(|unit| self.marks(region, unit).moved())
    }

    /// The units at which mappings begin, behind the first of these.
    fn later_mappings(
        &self,
        region: &Region,
        units: Range<UnitIndex>,
    ) -> impl Iterator<Item = UnitIndex> {
        let later = if self.mappings == 0 { 0..0 } else { units.start + 1..units.end };
        later.filter(move |&unit| {
            let marks = self.marks(region, unit);
            marks.begins() || marks.moved() != self.marks(region, unit - 1).moved()
        })
    }

    /// Where the mapping ends that the first of these units lies in, or all of them do.
    pub fn mapping_end(&self, region: &Region, units: Range<UnitIndex>) -> UnitIndex {
        self.later_mappings(region, units.clone()).next().unwrap_or(units.end)
    }

    /// Whether pages of these units may move, one mapping after the other.
    fn may_move(&self, region: &Region, units: Range<UnitIndex>) -> bool {
        self.mappings + self.later_mappings(region, units).count() < MOVED_MAPPINGS_MAX
    }

    /// Takes the note back: a run that joins the one before it keeps its old record.
    fn disown(&mut self, region: &Region, first: UnitIndex) {
        self.note(region, first, 0, 0);
    }

    /// The heap of which a run begins at this committed unit, by that note; 0 for none.
    pub fn heap_of(&self, region: &Region, first: UnitIndex) -> UnitIndex {
        // SAFETY: as above.
        let run = unsafe { *region.run(first) };
        if run.state == State::InUse { run.heap() } else { 0 }
    }

    /// How many units to purge because nobody needed them of late: [`Retention::surplus`].
    pub fn surplus(&mut self, os: &impl Os, watched: bool) -> usize {
        self.retention.surplus(os, &self.counts, watched)
    }

    /// Returns free memory to the kernel, longest runs first, until at most `keep` units of it
    /// are resident.
    #[inline(never)]
    pub fn purge(&mut self, region: &Region, os: &impl Os, keep: usize) {
        while self.counts.dirty > keep {
            let Some((first, units)) = self.dirty.longest(region) else {
                break;
            };
            let excess = (self.counts.dirty - keep).min(units as usize) as u32;
            let start = first + (units - excess);
            self.remove(region, first);
            self.mark_in_use(region, start, excess);
            if excess < units {
                self.insert(region, first, units - excess, State::Dirty);
            }
            let all = start..start + excess;
            // Where pages have moved, the mapping goes with them: so their number follows the blocks that live.
            // SAFETY: the run is free and out of the trees, so nobody uses it.
            let unmapped = self.counts.unmapped_runs < UNMAPPED_RUNS_MAX
                && self.has_moved(region, all.clone())
                && unsafe { region.unmap(os, start, excess) };
            // SAFETY: as above.
            if !unmapped && !unsafe { os.purge(region.address(start), excess as usize * UNIT) } {
                // The kernel refuses (locked memory, say): the rest would fare no better.
                self.insert(region, start, excess, State::Dirty);
                break;
            }
            region.purge_spans(os, start, excess);
            self.counts.purged += excess as usize;
            self.counts.purges += 1;
            self.retention.patience.count_gone(os.now_ms(), excess);
            if unmapped {
                self.record_mapping(region, all, false);
            }
            let state = if unmapped { State::Unmapped } else { State::Clean };
            self.insert(region, start, excess, state);
        }
        self.retention.count(&self.counts);
        self.unmap_surplus(region, os);
    }

    /// Unmaps clean runs where they are much beside what is in use.
    fn unmap_surplus(&mut self, region: &Region, os: &impl Os) {
        let resident = self.counts.in_use + self.counts.dirty;
        let kept = CLEAN_UNITS_MAX.max(resident / CLEAN_SHARE);
        if self.counts.clean > kept {
            self.unmap(region, os, kept / 2);
        }
    }

    /// Gives the addresses of clean runs back to the kernel, longest runs first, until at most `keep` units of them are mapped, or
    /// what is left is too short.
    #[inline(never)]
    fn unmap(&mut self, region: &Region, os: &impl Os, keep: usize) {
        while self.counts.clean > keep && self.counts.unmapped_runs < UNMAPPED_RUNS_MAX {
            let Some((first, units)) = self.clean.longest(region) else {
                break;
            };
            let excess = (self.counts.clean - keep).min(units as usize) as u32;
            let excess = excess.max(UNMAP_UNITS_MIN);
            if excess > units {
                break;
            }
            let start = first + (units - excess);
            self.remove(region, first);
            self.mark_in_use(region, start, excess);
            if excess < units {
                self.insert(region, first, units - excess, State::Clean);
            }
            // SAFETY: the run is free and out of the trees, so nobody uses it.
            if !unsafe { region.unmap(os, start, excess) } {
                self.insert(region, start, excess, State::Clean);
                break;
            }
            self.record_mapping(region, start..start + excess, false);
            self.insert(region, start, excess, State::Unmapped);
        }
    }

    /// Maps the units from `start` to `end` of the unmapped run at `first`, and some more: the clean run that they lie in then. Where
    /// another mapping lies there, they are of no use any more.
    fn map_again(
        &mut self,
        region: &Region,
        os: &impl Os,
        first: UnitIndex,
        start: UnitIndex,
        end: UnitIndex,
    ) -> Result<UnitIndex, Refusal> {
        // SAFETY: the run is in a tree, so its record is current.
        let run_end = first + unsafe { (*region.run(first)).units };
        let end = end.max(start + UNMAP_UNITS_MIN).min(run_end);
        self.remove(region, first);
        self.mark_in_use(region, start, end - start);
        if start > first {
            self.insert(region, first, start - first, State::Unmapped);
        }
        if run_end > end {
            self.insert(region, end, run_end - end, State::Unmapped);
        }
        // SAFETY: below the frontier, hence committed.
        let before = unsafe { (*region.run(start - 1)).state };
        let joins = matches!(before, State::InUse | State::Dirty | State::Clean);
        // SAFETY: they were unmapped, and what is before is ours where its record says so.
        let mapped = unsafe { region.map_again(os, start, end - start, joins) };
        match mapped {
            Ok(()) => return Ok(self.insert(region, start, end - start, State::Clean)),
            Err(Refusal::Memory) => {
                self.insert(region, start, end - start, State::Unmapped);
            }
            Err(Refusal::Addresses) => self.give_up(region, start, end - start),
        }
        mapped.map(|()| start)
    }

    /// Takes a run back that is of no use any more.
    pub fn lose(&mut self, region: &Region, first: UnitIndex, units: u32) {
        self.disown(region, first);
        self.counts.in_use -= units as usize;
        // The map goes on saying that a block was freed here.
        self.set_aside(region, first, units);
    }

    /// Leaves units to the mapping of another that lies there.
    fn give_up(&mut self, region: &Region, first: UnitIndex, units: u32) {
        self.set_aside(region, first, units);
        // `Region::units_in` reads the record without the lock.
        fence(Ordering::Release);
        region.set_entry(first, MapEntry::OTHERS);
    }

    /// Takes units out of use for good.
    fn set_aside(&mut self, region: &Region, first: UnitIndex, units: u32) {
        self.mark(region, first, units, State::Foreign);
        self.counts.foreign += units as usize;
    }

    /// Goes on behind a mapping that lies behind what is committed. False where memory or addresses end.
    fn skip(&mut self, region: &Region, os: &impl Os, units: usize) -> bool {
        let Some(left) = region.skip(os, units) else {
            return false;
        };
        let frontier = self.frontier.max(1);
        self.frontier = left.end;
        self.give_up(region, left.start, left.end - left.start);
        if frontier < left.start {
            self.insert(region, frontier, left.start - frontier, State::Clean);
        }
        true
    }

    /// Pages of a run in use went back to the kernel, as many as so many units have.
    pub fn count_purge(&mut self, units: usize) {
        self.counts.purged += units;
        self.counts.purges += 1;
    }

    /// True if `more` units may become resident; purges as much as that takes.
    fn admit(&mut self, region: &Region, os: &impl Os, more: u32) -> bool {
        let Some(keep) = self.most().checked_sub(self.counts.in_use + more as usize) else {
            return false;
        };
        self.purge(region, os, keep);
        self.counts.dirty <= keep
    }

    #[inline(never)]
    fn take(
        &mut self,
        region: &Region,
        os: &impl Os,
        length: Units,
        align: Units,
    ) -> Option<Granted> {
        let (units, align) = (length.get(), align.get());
        let roomy = units.checked_add(align - 1)?;
        let dirty = self.dirty.best_fit(region, roomy);
        if dirty.is_none() && !self.admit(region, os, units) {
            return None;
        }
        if let Some(first) = dirty.or_else(|| self.clean.best_fit(region, roomy)) {
            return self.cut(region, os, first, length, align);
        }
        while let Some(first) = self.unmapped.best_fit(region, roomy) {
            let start = region.align_unit(first, align)?;
            let end = UnitRange::new(start, length)?.end();
            match self.map_again(region, os, first, start, end) {
                Ok(first) => return self.cut(region, os, first, length, align),
                Err(Refusal::Memory) => return None,
                Err(Refusal::Addresses) => {}
            }
        }
        if self.restore(region, os) {
            return self.take(region, os, length, Units::new(align)?);
        }
        for nth in 0..=SKIPS_MAX {
            let old_frontier = self.frontier.max(1);
            let start = region.align_unit(old_frontier, align)?;
            let end = UnitRange::new(start, length)?.end();
            match region.commit_up_to(os, end as usize) {
                Ok(()) => {
                    self.frontier = end;
                    self.mark_in_use(region, start, units);
                    if start > old_frontier {
                        self.insert(region, old_frontier, start - old_frontier, State::Clean);
                    }
                    return Some(Granted { first: start, zeroed: true });
                }
                Err(Refusal::Memory) => return None,
                Err(Refusal::Addresses) => {
                    if !self.skip(region, os, SKIP_UNITS_MIN << nth) {
                        return None;
                    }
                }
            }
        }
        None
    }

    /// Hands out units of the free run at `first`, which has room for them at any alignment.
    fn cut(
        &mut self,
        region: &Region,
        os: &impl Os,
        first: UnitIndex,
        length: Units,
        align: u32,
    ) -> Option<Granted> {
        // SAFETY: the run is in a tree, so its record is current.
        let run = unsafe { *region.run(first) };
        let start = region.align_unit(first, align)?;
        let (end, units) = (UnitRange::new(start, length)?.end(), length.get());
        self.remove(region, first);
        self.mark_in_use(region, start, units);
        if start > first {
            self.insert(region, first, start - first, run.state);
        }
        if first + run.units > end {
            self.insert(region, end, first + run.units - end, run.state);
        }
        let zeroed = run.state == State::Clean;
        if zeroed {
            self.retention.patience.count_back(os.now_ms(), units);
        }
        Some(Granted { first: start, zeroed })
    }

    /// Adds a free run, joined with its neighbours of the same kind. The neighbours' records must
    /// be current: what is cut off a run is inserted after the rest was marked in use. Where the run begins that it is in now.
    fn insert(
        &mut self,
        region: &Region,
        mut first: UnitIndex,
        mut units: u32,
        state: State,
    ) -> UnitIndex {
        if first > 1 {
            // SAFETY: the unit before was handed out once, so it is committed.
            let before = unsafe { *region.run(first - 1) };
            if before.state == state {
                first -= before.units;
                units += before.units;
                self.remove(region, first);
            }
        }
        let next = first + units;
        if next < self.frontier {
            // SAFETY: below the frontier, hence committed.
            let after = unsafe { *region.run(next) };
            if after.state == state {
                self.remove(region, next);
                units += after.units;
            }
        }
        let run = Run { state, units, ..Run::default() };
        // SAFETY: both units are committed, and nobody else looks: we hold the lock.
        unsafe {
            Run::replace(region.run(first + units - 1), run);
            Run::replace(region.run(first), run);
        }
        self.counts.add(state, units);
        self.tree(state).insert(region, first);
        first
    }

    fn remove(&mut self, region: &Region, first: UnitIndex) {
        // SAFETY: a free run's record is current.
        let run = unsafe { *region.run(first) };
        self.counts.remove(run.state, run.units);
        self.tree(run.state).remove(region, first);
    }

    /// The tree of the free runs of this kind.
    fn tree(&mut self, state: State) -> &mut RunTree {
        match state {
            State::Dirty => &mut self.dirty,
            State::Clean => &mut self.clean,
            State::Unmapped => &mut self.unmapped,
            State::InUse | State::Foreign => unreachable!("no free run"),
        }
    }

    fn mark_in_use(&mut self, region: &Region, first: UnitIndex, units: u32) {
        self.mark(region, first, units, State::InUse);
    }

    /// Writes the records of a run that is in no tree.
    fn mark(&mut self, region: &Region, first: UnitIndex, units: u32, state: State) {
        let run = Run { state, units, ..Run::default() };
        // SAFETY: both units are committed and ours under the lock.
        unsafe {
            Run::replace(region.run(first), run);
            Run::replace(region.run(first + units - 1), run);
        }
    }

    /// All runs by their first units; together they are all units ever used. Panics where they are not: for tests.
    pub fn runs(&self, region: &Region) -> impl Iterator<Item = (UnitIndex, Run)> {
        assert!(self.frontier as usize * UNIT <= region.committed(), "frontier {}", self.frontier);
        let mut next = 1;
        iter::from_fn(move || {
            let unit = (next < self.frontier).then_some(next)?;
            // SAFETY: below the frontier.
            let run = unsafe { *region.run(unit) };
            assert!(run.units > 0 && unit + run.units <= self.frontier, "run at {unit}: {run:?}");
            next += run.units;
            Some((unit, run))
        })
    }

    /// Panics at the first run that is booked wrongly: for tests. Returns how many units are in use.
    pub fn check(&self, region: &Region) -> usize {
        let mut counts = PageCounts::NONE;
        let mut free_runs = 0;
        let mut last_state = State::InUse;
        for (unit, run) in self.runs(region) {
            // SAFETY: as above.
            let end = unsafe { *region.run(unit + run.units - 1) };
            assert_eq!((end.state, end.units), (run.state, run.units), "ends of run at {unit}");
            match run.state {
                State::InUse => counts.in_use += run.units as usize,
                State::Foreign => counts.foreign += run.units as usize,
                state => {
                    assert_ne!(state, last_state, "neighbours at {unit} were not joined");
                    counts.add(state, run.units);
                    free_runs += 1;
                }
            }
            last_state = run.state;
        }
        let PageCounts { purged, purges, .. } = self.counts;
        assert_eq!(PageCounts { purged, purges, ..counts }, self.counts, "unit counts");
        let trees = [&self.dirty, &self.clean, &self.unmapped];
        let in_trees: usize = trees.iter().map(|tree| tree.check(region)).sum();
        assert_eq!(free_runs, in_trees, "tree sizes");
        let units = region.units_in(1..region.committed() / UNIT);
        let begin = units.filter(|&unit| self.marks(region, unit as UnitIndex).begins()).count();
        assert_eq!(begin, self.mappings, "mappings");
        counts.in_use
    }
}
