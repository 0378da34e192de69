//! The page heap: runs of units, handed out by address-ordered best fit, joined when they come
//! back, and purged (returned to the kernel) when too much free memory stays resident.
//!
//! Free runs are of two kinds, which do not join: *dirty* ones are resident and hold old
//! contents; *clean* ones cost nothing and read as zero. Dirty ones are handed out first.

use core::iter;
use core::num::NonZeroUsize;

use crate::guards::Guards;
use crate::os::Os;
use crate::region::{Region, UnitIndex};
use crate::retention::{PageCounts, Retention};
use crate::run::{Run, State, Tail};
use crate::run_tree::RunTree;
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
pub(crate) struct Pages {
    dirty: RunTree,
    clean: RunTree,
    /// Units that were ever handed out, unit 0 included.
    frontier: UnitIndex,
    /// Units that may be in use or dirty, if not as many as there are.
    pub limit: Option<NonZeroUsize>,
    pub retention: Retention,
    pub guards: Guards,
    pub counts: PageCounts,
}

impl Pages {
    /// A page heap that has handed out nothing.
    pub const fn new() -> Self {
        Self {
            dirty: RunTree::new(),
            clean: RunTree::new(),
            frontier: 0,
            limit: None,
            retention: Retention::new(),
            guards: Guards::new(),
            counts: PageCounts { in_use: 0, dirty: 0, purged: 0, purges: 0 },
        }
    }

    /// Hands out `units` units that begin at a multiple of `align` units, a power of two.
    /// `None` if the region or the kernel has not so much, or the limit forbids it.
    pub fn alloc(
        &mut self,
        region: &Region,
        os: &impl Os,
        units: u32,
        align: u32,
    ) -> Option<Granted> {
        if self.counts.in_use + units as usize > self.most() || !self.could_hold(region, units) {
            return None;
        }
        let longer = if align == 1 { self.take_longer(region, os, units) } else { None };
        let (granted, grown) = match longer {
            Some((first, grown)) => (Granted { first, zeroed: false }, grown),
            None => {
                let granted = self.take(region, os, units, align).or_else(|| {
                    // Dirty and clean neighbours do not join; purged, they do.
                    self.purge(region, os, 0);
                    self.take(region, os, units, align)
                })?;
                (granted, if granted.zeroed { units } else { 0 })
            }
        };
        self.count_use(units);
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
            && let Some(keep) = self.retention.after_growth(os, &self.counts, units)
        {
            self.purge(region, os, keep);
        }
    }

    /// Whether there could be so many units if nothing else were there: if not, it is of no use to make room.
    pub fn could_hold(&self, region: &Region, units: u32) -> bool {
        units as usize <= region.units().min(self.most())
    }

    /// Whether a run of so many units would take memory that is not resident, and it is time to look
    /// whether caches keep too much: [`Retention::is_look_due`].
    pub fn would_grow(&mut self, region: &Region, units: u32) -> bool {
        self.dirty.best_fit(region, units).is_none()
            && self.retention.is_look_due(&self.counts, units)
    }

    /// Caches were emptied, or asked in vain: [`Retention::put_off_look`].
    pub fn put_off_look(&mut self) {
        self.retention.put_off_look(&self.counts);
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

    /// As [`Pages::alloc`], but for the pages of a run of `from` units that are to be moved there: takes memory
    /// that is not resident, and none where resident memory would do, into which copying is quicker than to let
    /// both be purged.
    pub fn alloc_clean(
        &mut self,
        region: &Region,
        os: &impl Os,
        (from, units): (u32, u32),
        align: u32,
    ) -> Option<Granted> {
        if self.dirty.best_fit(region, units).is_some() {
            return None;
        }
        // The limit is for pages, and those of `from` only change their place.
        self.counts.in_use -= from as usize;
        let granted = self.take(region, os, units, align);
        self.counts.in_use += from as usize;
        let granted = granted?;
        self.count_use(units);
        Some(granted)
    }

    /// Takes a run back whose pages were moved away.
    pub fn free_clean(&mut self, region: &Region, os: &impl Os, first: UnitIndex, units: u32) {
        self.disown(region, first);
        self.counts.in_use -= units as usize;
        self.insert(region, first, units, State::Clean);
        self.retention.patience.count_gone(os.now_ms(), units);
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

    /// Makes the run of `units` units at `first` longer by `more`, if what follows it is free: dirty, clean,
    /// behind the frontier, or one after the other.
    pub fn extend(
        &mut self,
        region: &Region,
        os: &impl Os,
        first: UnitIndex,
        units: u32,
        more: u32,
    ) -> bool {
        let next = first + units;
        let end = next + more;
        let Some(dirty) = self.dirty_of_free(region, next, end) else {
            return false;
        };
        if dirty < more && !self.admit(region, os, more) {
            return false;
        }
        let taken = self.take_free(region, os, next, end);
        if taken {
            self.mark_in_use(region, first, units + more);
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
        units: u32,
    ) -> Option<(UnitIndex, u32)> {
        let (first, longest) = self.dirty.longest(region)?;
        let end = first.checked_add(units)?;
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
                State::InUse => return None,
                State::Dirty => dirty += run.units.min(end - at),
                State::Clean => {}
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
        if !region.commit_up_to(os, end as usize) {
            return false;
        }
        let mut at = next;
        while at < end.min(self.frontier) {
            // SAFETY: as in `dirty_of_free`.
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

    /// Gives the end of a run back, so that `keep` of its `units` units remain.
    pub fn shrink(
        &mut self,
        region: &Region,
        os: &impl Os,
        first: UnitIndex,
        units: u32,
        keep: u32,
    ) {
        self.mark_in_use(region, first, keep);
        self.free(region, os, first + keep, units - keep);
    }

    /// Notes what a run in use was asked for with, and which heap it belongs to: [`Run::note`].
    pub fn note(&mut self, region: &Region, first: UnitIndex, bytes: usize, heap: UnitIndex) {
        // SAFETY: in use, so committed; runs are ours under the lock.
        unsafe { (*region.run(first)).note(bytes, heap) }
    }

    /// The same where nothing of the run is resident yet.
    pub fn note_clean(&mut self, region: &Region, first: UnitIndex, bytes: usize, heap: UnitIndex) {
        self.note(region, first, bytes, heap);
        // SAFETY: as above.
        unsafe { (*region.run(first)).tail = Tail::Gone }
    }

    /// Returns the OS pages behind the end of a large block to the kernel, once for each size that it has: nobody may
    /// use them. Where `only_quiet`, not before the block had its size for two looks. Bytes that went.
    pub fn dig_behind(
        &mut self,
        region: &Region,
        os: &impl Os,
        first: UnitIndex,
        only_quiet: bool,
    ) -> usize {
        let run = region.run(first);
        // SAFETY: as above.
        let (units, tail, usable) =
            unsafe { ((*run).units, (*run).tail, Run::usable(run, os.page_size())) };
        let looked = match tail {
            Tail::Gone => return 0,
            Tail::New if only_quiet => Tail::Seen,
            Tail::New | Tail::Seen => Tail::Gone,
        };
        // SAFETY: as above; the block's owner, who may read the record without the lock, does not read this.
        unsafe { (*run).tail = looked };
        let bytes = (units as usize * UNIT).saturating_sub(usable);
        if looked == Tail::Seen || bytes == 0 {
            return 0;
        }
        // SAFETY: whole pages of the run, all behind what may be used of the block.
        if unsafe { os.purge(region.address(first).add(usable), bytes) } { bytes } else { 0 }
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
            let bytes = excess as usize * UNIT;
            // SAFETY: the run is free and out of the trees, so nobody uses it.
            if !unsafe { os.purge(region.address(start), bytes) } {
                // The kernel refuses (locked memory, say): the rest would fare no better.
                self.insert(region, start, excess, State::Dirty);
                break;
            }
            region.purge_spans(os, start, excess);
            self.counts.purged += excess as usize;
            self.counts.purges += 1;
            self.retention.patience.count_gone(os.now_ms(), excess);
            self.insert(region, start, excess, State::Clean);
        }
        self.retention.count(&self.counts);
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
    fn take(&mut self, region: &Region, os: &impl Os, units: u32, align: u32) -> Option<Granted> {
        let roomy = units.checked_add(align - 1)?;
        let dirty = self.dirty.best_fit(region, roomy);
        if dirty.is_none() && !self.admit(region, os, units) {
            return None;
        }
        if let Some(first) = dirty.or_else(|| self.clean.best_fit(region, roomy)) {
            // SAFETY: the run is in a tree, so its record is current.
            let run = unsafe { *region.run(first) };
            let start = region.align_unit(first, align)?;
            let end = start + units;
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
            return Some(Granted { first: start, zeroed });
        }
        if self.restore(region, os) {
            return self.take(region, os, units, align);
        }
        let old_frontier = self.frontier.max(1);
        let start = region.align_unit(old_frontier, align)?;
        let end = start.checked_add(units)?;
        if !region.commit_up_to(os, end as usize) {
            return None;
        }
        self.frontier = end;
        self.mark_in_use(region, start, units);
        if start > old_frontier {
            self.insert(region, old_frontier, start - old_frontier, State::Clean);
        }
        Some(Granted { first: start, zeroed: true })
    }

    /// Adds a free run, joined with its neighbours of the same kind. The neighbours' records must
    /// be current: what is cut off a run is inserted after the rest was marked in use.
    fn insert(&mut self, region: &Region, mut first: UnitIndex, mut units: u32, state: State) {
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
            region.run(first + units - 1).write(run);
            region.run(first).write(run);
        }
        match state {
            State::Dirty => {
                self.counts.dirty += units as usize;
                self.dirty.insert(region, first);
            }
            _ => self.clean.insert(region, first),
        }
    }

    fn remove(&mut self, region: &Region, first: UnitIndex) {
        // SAFETY: a free run's record is current.
        let run = unsafe { *region.run(first) };
        match run.state {
            State::Dirty => {
                self.counts.dirty -= run.units as usize;
                self.dirty.remove(region, first);
            }
            _ => self.clean.remove(region, first),
        }
    }

    fn mark_in_use(&mut self, region: &Region, first: UnitIndex, units: u32) {
        let run = Run { state: State::InUse, units, ..Run::default() };
        // SAFETY: both units are committed and ours under the lock.
        unsafe {
            region.run(first).write(run);
            region.run(first + units - 1).write(run);
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
        let (mut in_use, mut dirty, mut free_runs) = (0, 0, 0);
        let mut last_state = State::InUse;
        for (unit, run) in self.runs(region) {
            // SAFETY: as above.
            let end = unsafe { *region.run(unit + run.units - 1) };
            assert_eq!((end.state, end.units), (run.state, run.units), "ends of run at {unit}");
            match run.state {
                State::InUse => in_use += run.units as usize,
                state => {
                    assert_ne!(state, last_state, "neighbours at {unit} were not joined");
                    dirty += if state == State::Dirty { run.units as usize } else { 0 };
                    free_runs += 1;
                }
            }
            last_state = run.state;
        }
        assert_eq!((in_use, dirty), (self.counts.in_use, self.counts.dirty), "unit counts");
        assert_eq!(free_runs, self.dirty.check(region) + self.clean.check(region), "tree sizes");
        in_use
    }
}
