//! Does what only large blocks need: marks their runs, resizes them, moves their pages, and purges
//! what lies behind a block's end.

use core::ops::Range;

use super::{Granted, Pages};
use crate::backend::huge_pages::Touch;
use crate::backend::run::{Run, RunState, Tail, large_bytes};
use crate::backend::tuning::UNMAPPED_RUNS_MAX;
use crate::backend::units::{UnitIndex, UnitRange, Units};
use crate::platform::os::{Os, Refusal};
use crate::size_class::UNIT;

/// Whether memory may be taken that is not resident, and at what cost.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Growth {
    No,
    /// Unless the kernel refuses it. At the limit, other free memory goes first.
    IfEasy,
    /// If the kernel refuses it, all other free memory goes first.
    MakeRoom,
}

impl<O: Os> Pages<'_, O> {
    /// Extends a run in use to `longer` units if the memory after it is free.
    pub fn extend(&mut self, run: UnitRange, longer: Units) -> bool {
        let Some(all) = run.resized(longer) else {
            return false;
        };
        let extended = self.take_behind(run.end()..all.end(), Growth::MakeRoom).is_some();
        if extended {
            self.mark_in_use(run.first(), longer.get());
        }
        extended
    }

    /// Takes these units, which follow a run in use, if they are free: dirty, or with growth also
    /// clean, unmapped or beyond the frontier, in any sequence. Returns how many were dirty;
    /// with 0, all read as zero.
    pub(super) fn take_behind(&mut self, units: Range<UnitIndex>, growth: Growth) -> Option<u32> {
        let (next, end) = (units.start, units.end);
        let count = end.checked_sub(next)?;
        if end as usize > self.region.units() || !self.heap.huge.allows(Touch::Unknown, units) {
            return None;
        }
        let mut may_make_room = growth == Growth::MakeRoom;
        loop {
            let dirty = self.count_dirty_if_free(next, end)?;
            if dirty < count {
                if growth == Growth::No {
                    return None;
                }
                self.heap.is_at_limit = !self.admit(count);
                if self.heap.is_at_limit {
                    return None;
                }
            }
            match self.take_free_units(next, end) {
                Ok(()) => {
                    self.count_use(count);
                    if dirty == 0 {
                        self.advise(next..end);
                    }
                    self.purge_after_growth(count - dirty);
                    return Some(dirty);
                }
                Err(Refusal::Memory) if may_make_room => {
                    self.make_room();
                    may_make_room = false;
                }
                Err(_) => return None,
            }
        }
    }

    /// Frees the end of a run, if it is longer than `keep` units.
    pub fn shrink(&mut self, run: UnitRange, keep: Units) {
        if let Some(tail) = run.behind(keep) {
            self.mark_in_use(run.first(), keep.get());
            self.free(tail.first(), tail.length().get());
        }
    }

    /// As [`Pages::alloc`], for a run that the pages of `run` will move to. Takes only memory
    /// that is not resident. Returns `None` where a resident run would do: copying into that is
    /// faster, since both runs would have to be purged otherwise. Until [`Pages::end_move`], only
    /// the new run counts as in use: the limit is for pages, and those of `run` only move.
    pub fn alloc_to_move(&mut self, run: UnitRange, units: Units, align: Units) -> Option<Granted> {
        let old = run.length().get() as usize;
        let in_use = self.heap.counts.in_use - old + units.get() as usize;
        // Beyond the limit, a request gives up no free memory in vain.
        if in_use > self.heap.resident_units_max()
            || !self.could_hold(units, align)
            || self.heap.counts.unmapped_runs >= UNMAPPED_RUNS_MAX
            || !self.heap.mappings.may_move(self.region, run.first()..run.end())
            || self.best_dirty(Touch::Unknown, units.get()).is_some()
        {
            return None;
        }
        self.heap.counts.in_use -= old;
        let frontier = self.heap.frontier;
        let granted = self.take_or_make_room(Touch::Unknown, units, align);
        match granted {
            Some(granted) => {
                // Advice would move with the pages.
                self.end_advice(run.first()..run.end());
                self.count_use(units.get());
                if granted.first < frontier {
                    self.count_refaulted(units.get().saturating_sub(old as u32));
                }
            }
            None => self.end_move(run),
        }
        granted
    }

    /// Counts the run again whose pages have moved, or could not. One of the two is freed next.
    pub fn end_move(&mut self, run: UnitRange) {
        self.heap.counts.in_use += run.length().get() as usize;
    }

    /// Sets the flag of a large block whose run was just noted: whether it is `clean`, so that
    /// nothing of it is resident.
    pub fn mark_large(&mut self, first: UnitIndex, clean: bool) {
        let tail = if clean { Tail::NotResident } else { Tail::New };
        self.set_tail(first, tail);
    }

    /// Sets the state of what lies unused in a unit in use.
    pub(super) fn set_tail(&mut self, unit: UnitIndex, tail: Tail) {
        // SAFETY: the unit is in use, hence committed. The lock of the page heap guards its flags.
        unsafe { (*self.region.run(unit)).flags = (*self.region.run(unit)).flags.with_tail(tail) }
    }

    /// Purges the OS pages behind the end of a large block, which the program may not use, once for
    /// each size of the block. With `only_quiet`, not before two looks have found the same size.
    /// Returns the bytes purged.
    pub fn purge_tail(&mut self, first: UnitIndex, only_quiet: bool) -> usize {
        let run = self.region.run(first);
        // SAFETY: the block's run is in use, so its record is committed and current.
        let (units, tail, asked) =
            unsafe { ((*run).units, (*run).flags.tail(), Run::asked_at(run)) };
        let usable = large_bytes(asked, self.os.page_size());
        let next_tail = match tail {
            Tail::NotResident | Tail::Refused => return 0,
            Tail::New if only_quiet => Tail::Seen,
            Tail::New | Tail::Seen => Tail::NotResident,
        };
        // SAFETY: the lock of the page heap guards the flags. The block's owner may read this
        // record without the lock, but not its flags.
        unsafe { (*run).flags = (*run).flags.with_tail(next_tail) };
        let bytes = (units as usize * UNIT).saturating_sub(usable);
        if next_tail == Tail::Seen || bytes == 0 {
            return 0;
        }
        let partly_purged = first + (usable / UNIT) as u32..first + units;
        self.break_in(partly_purged);
        // SAFETY: these are whole pages of the run, all behind the usable bytes of the block.
        if unsafe { self.os.purge(self.region.address(first).add(usable), bytes) } {
            return bytes;
        }
        self.set_tail(first, Tail::Refused);
        0
    }

    /// The heap of the run that begins at this committed unit; 0 for none.
    pub fn heap_of(&self, first: UnitIndex) -> UnitIndex {
        // SAFETY: the unit is committed, and the lock of the page heap guards its record.
        let run = unsafe { *self.region.run(first) };
        if run.state == RunState::InUse { run.heap() } else { 0 }
    }

    /// Counts a purge of `bytes` bytes in these units, which are in use.
    pub fn count_purge(&mut self, units: Range<UnitIndex>, bytes: usize) {
        self.break_in(units);
        self.heap.counts.purged += bytes / UNIT;
        self.heap.counts.purges += 1;
    }
}
