//! Decides how much free memory stays resident, in units, and for how long.
//!
//! With a scavenger, as much may stay as was in use recently. Of the memory that was not needed
//! between two of its rounds, half is purged each time, and less while purged memory refaults
//! (`refaults.rs`). Without one, no round may follow once the program is idle. So less stays, and
//! each free of a run checks the time. But more stays while refaults have overdrawn a budget
//! of time (`purge_budget.rs`).
//!
//! In both cases less stays, and is purged at once, near a bound: the memory limit, or a size that
//! the kernel refused.

// Lowest first: each uses only modules above it in this list.
pub(crate) mod purge_budget;
pub(crate) mod refaults;

use core::num::NonZeroUsize;

use crate::backend::region::Region;
use crate::backend::retention::purge_budget::PurgeBudget;
use crate::backend::retention::refaults::Refaults;
use crate::backend::run::RunState;
use crate::backend::tuning::{
    AT_ONCE_DIVISOR, DECAY_DIVISOR, DIRTY_UNITS_MAX, HUGE_UNITS, PURGE_MIB_MS, RECLAIM_DIVISOR,
    RECLAIM_IN_USE_UNITS_MIN, RECLAIM_PAUSE_DIVISOR, REFAULT_MS, REFAULT_NS, SLACK_DIVISOR,
    SMALL_UNITS, SPARE_DIVISOR, USUAL_DELAY_MS,
};
use crate::options::DelayChoice;
use crate::platform::os::Os;
use crate::size_class::UNIT;

/// Units of the page heap by state, and its purges. All are units but `unmapped_runs`, `purges`,
/// `huge_pages` and `lent`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PageCounts {
    /// Handed out.
    pub in_use: usize,
    /// Free and resident.
    pub dirty: usize,
    /// Free, mapped and not resident.
    pub clean: usize,
    /// Free and not mapped; `unmapped_runs` is the number of these runs.
    pub unmapped: usize,
    pub unmapped_runs: usize,
    /// Given up, because a foreign mapping lies there, or did.
    pub foreign: usize,
    /// Purged since the start.
    pub purged: usize,
    /// Calls that purged.
    pub purges: usize,
    /// Huge pages, as far as the page heap has not purged a part of them.
    pub huge_pages: usize,
    /// Those of long runs that may be resident though the program hardly touched them.
    pub lent: usize,
}

impl PageCounts {
    /// Units that are handed out, or free and resident.
    pub fn held(&self) -> usize {
        self.in_use + self.dirty
    }

    /// An empty page heap.
    pub const NONE: Self = Self {
        in_use: 0,
        dirty: 0,
        clean: 0,
        unmapped: 0,
        unmapped_runs: 0,
        foreign: 0,
        purged: 0,
        purges: 0,
        huge_pages: 0,
        lent: 0,
    };

    /// Adds a free run to the counts.
    pub fn add(&mut self, state: RunState, units: u32) {
        *self.of(state) += units as usize;
        self.unmapped_runs += (state == RunState::Unmapped) as usize;
    }

    /// Removes a free run from the counts.
    pub fn remove(&mut self, state: RunState, units: u32) {
        *self.of(state) -= units as usize;
        self.unmapped_runs -= (state == RunState::Unmapped) as usize;
    }

    fn of(&mut self, state: RunState) -> &mut usize {
        match state {
            RunState::InUse => &mut self.in_use,
            RunState::Dirty => &mut self.dirty,
            RunState::Clean => &mut self.clean,
            RunState::Unmapped => &mut self.unmapped,
            RunState::Foreign => &mut self.foreign,
        }
    }

    /// How many of the first `committed` units are mapped.
    pub fn mapped(&self, committed: usize) -> usize {
        committed - self.unmapped - self.foreign
    }
}

/// The state that decides how much free memory stays.
pub(crate) struct Retention {
    /// When the last purge by interval was, or when its interval began, by the clock of [`Os`].
    last_purge_ms: Option<u64>,
    /// Whether rounds of a scavenger call [`Retention::surplus`] regularly.
    has_scavenger: bool,
    /// The least dirty units since the last round, and the peak of units in use, which each round
    /// lowers (but not those within frees while the budget of purges is overdrawn).
    dirty_low_units: usize,
    peak_units: usize,
    /// Units that became resident since the start, and the values of that from which on reclaim is
    /// due, and may empty all caches.
    grown_units: usize,
    reclaim_at_units: usize,
    drain_at_units: usize,
    /// The kernel refused memory when this many units would have been in use. `None` is zero, as
    /// all initial values of an engine are, so that files hold no bytes for it.
    refused_units: Option<NonZeroUsize>,
    /// The memory limit of the control group or the machine; 0 if none is known. Set-up reads it
    /// once: later, a filter of system calls may kill a process that opens files
    /// (decisions/0032). So later changes go unnoticed, and so does the use of other processes.
    pub memory_bytes: usize,
    pub refaults: Refaults,
    pub purges: PurgeBudget,
    /// How long memory stays that is not needed (`EBB_PURGE_DELAY`).
    pub delay: DelayChoice,
}

impl Retention {
    /// The state of an empty page heap.
    pub const fn new() -> Self {
        Self {
            last_purge_ms: None,
            has_scavenger: false,
            dirty_low_units: 0,
            peak_units: 0,
            grown_units: 0,
            reclaim_at_units: 0,
            drain_at_units: 0,
            refused_units: None,
            memory_bytes: 0,
            refaults: Refaults::new(),
            purges: PurgeBudget::new(),
            delay: DelayChoice::Usual,
        }
    }

    /// Whether reclaim is due (caches may keep too much), given that `units` more are about to
    /// become resident.
    pub fn take_due_reclaim(&mut self, counts: &PageCounts, units: u32) -> bool {
        let due = counts.in_use >= RECLAIM_IN_USE_UNITS_MIN
            && self.grown_units + units as usize >= self.reclaim_at_units;
        if due {
            self.reclaim_at_units = self.grown_units + counts.in_use / RECLAIM_DIVISOR;
        }
        due
    }

    /// Whether reclaim may empty all caches: not again before the heap has grown.
    pub fn take_due_drain(&mut self, counts: &PageCounts) -> bool {
        let due = self.grown_units >= self.drain_at_units;
        if due {
            self.drain_at_units = self.grown_units + counts.in_use / RECLAIM_PAUSE_DIVISOR;
        }
        due
    }

    /// Postpones the next reclaim, after caches were emptied or had too little to empty.
    pub fn postpone_reclaim(&mut self, counts: &PageCounts) {
        self.reclaim_at_units = self.grown_units + counts.in_use / RECLAIM_PAUSE_DIVISOR;
    }

    /// Records that the kernel refused memory that would have made `units` units be in use. A limit
    /// of the process is near, and other code of the process lacks the memory that is free here.
    pub fn record_refusal(&mut self, units: usize) {
        // Keep the smallest refused size: a larger request tells less about the limit.
        let units = NonZeroUsize::new(units).unwrap_or(NonZeroUsize::MIN);
        self.refused_units = Some(self.refused_units.map_or(units, |before| before.min(units)));
    }

    /// The most dirty units near a bound: part of the distance to it.
    pub fn spare_units(&self, in_use: usize) -> usize {
        let limit = NonZeroUsize::new(self.memory_bytes / Region::UNIT_COST);
        let bounds = [limit, self.refused_units].into_iter().flatten();
        let spare = bounds.map(|bound| bound.get().saturating_sub(in_use) / SPARE_DIVISOR);
        spare.min().unwrap_or(usize::MAX)
    }

    /// Records new counts after dirty memory shrank or use grew.
    pub fn record_counts(&mut self, counts: &PageCounts) {
        if self.refused_units.is_some_and(|refused| counts.in_use > refused.get()) {
            self.refused_units = None;
        }
        self.peak_units = self.peak_units.max(counts.in_use);
        self.dirty_low_units = self.dirty_low_units.min(counts.dirty);
    }

    /// Called after `units` units became resident. Returns how many dirty units to keep if some are
    /// to be purged.
    #[inline(never)] // None of its callers is hot.
    pub fn after_growth(&mut self, counts: &PageCounts, units: u32) -> Option<usize> {
        self.grown_units += units as usize;
        let &PageCounts { in_use, dirty, .. } = counts;
        let usual = self.usual_max(counts, dirty_units_max(in_use));
        let max = usual.min(self.spare_units(in_use));
        (dirty > max).then_some(max - (max / 2).min(slack(self.peak_units) / 2))
    }

    /// Whether no scavenger runs.
    pub fn has_no_scavenger(&self) -> bool {
        !self.has_scavenger
    }

    /// Called after a run was freed. Returns how many dirty units to keep if some are to be purged.
    pub fn after_free(&mut self, os: &impl Os, counts: &PageCounts) -> Option<usize> {
        let &PageCounts { in_use, dirty, .. } = counts;
        if self.delay == DelayChoice::Ms(0) {
            return (dirty > 0).then_some(0);
        }
        let (without_scavenger, spare) = (idle_units_max(in_use), self.spare_units(in_use));
        let slack = slack(self.peak_units);
        let at_most = |max: usize| (dirty > max).then(|| max - (max / 2).min(slack / 2));
        if self.has_scavenger {
            return at_most(self.up_to_peak(counts).min(spare));
        }
        let soft = without_scavenger.min(spare);
        if dirty <= soft {
            return None;
        }
        let now_ms = os.now_ms();
        self.purges.earn(now_ms);
        if self.purges.is_overdrawn() || soft < without_scavenger {
            return at_most(self.usual_max(counts, without_scavenger).min(spare));
        }
        let last_ms = *self.last_purge_ms.get_or_insert(now_ms);
        let dirty_mib = ((dirty * UNIT) >> 20) as u64;
        let interval_ms = (PURGE_MIB_MS / dirty_mib.max(1)).min(REFAULT_MS);
        let interval_ms = match self.delay {
            DelayChoice::Usual => interval_ms,
            DelayChoice::Ms(ms) => interval_ms * ms as u64 / USUAL_DELAY_MS,
        };
        if now_ms >= last_ms + interval_ms {
            self.last_purge_ms = Some(now_ms);
            return Some(soft / 2);
        }
        let hard = dirty_units_max(in_use).min(spare);
        (dirty > hard).then_some(hard - hard / AT_ONCE_DIVISOR)
    }

    /// Called after free pages of spans were purged because the program may do nothing more, where
    /// no scavenger runs. Returns how many dirty units to keep: all if memory is to stay longer.
    pub fn after_burst(&mut self, now_ms: u64, counts: &PageCounts) -> usize {
        let keep = idle_units_max(counts.in_use).min(self.spare_units(counts.in_use)) / 2;
        let may_stay = matches!(self.delay, DelayChoice::Ms(ms) if ms as u64 > USUAL_DELAY_MS);
        if may_stay || counts.dirty <= keep {
            return counts.dirty;
        }
        self.last_purge_ms = Some(now_ms);
        keep
    }

    /// Records that `units` free units are no longer resident, from `now_ms` on.
    pub fn count_purged(&mut self, now_ms: u64, units: u32) {
        self.refaults.count_purged(now_ms, units);
        if !self.has_scavenger {
            self.purges.count_purged(now_ms, units);
        }
    }

    /// Records that `units` units that are not resident are about to become so, at `now_ms`.
    pub fn count_refaulted(&mut self, now_ms: u64, units: u32) {
        let (counted, unit_ns) = (self.refaults.count_refaulted(now_ms, units), self.refault_ns());
        self.purges.count_refaulted(now_ms, counted, unit_ns);
    }

    /// Records that claims have filled this much memory of purged spans again. The budget alone
    /// counts it.
    pub fn count_refilled(&mut self, now_ms: u64, units: usize) {
        self.purges.count_refilled(now_ms, units, self.refault_ns());
    }

    /// Whether memory may be purged where no scavenger runs: not while the budget is overdrawn.
    pub fn may_purge(&mut self, now_ms: u64) -> bool {
        self.purges.earn(now_ms);
        !self.purges.is_overdrawn()
    }

    /// What a unit that refaults costs. Who wants memory to go sooner accepts page faults.
    fn refault_ns(&self) -> i64 {
        match self.delay {
            DelayChoice::Usual => REFAULT_NS,
            DelayChoice::Ms(ms) => REFAULT_NS.saturating_mul(ms as i64) / USUAL_DELAY_MS as i64,
        }
    }

    /// How many dirty units stay because as many were needed again soon after a purge.
    pub fn wanted_units(&mut self, os: &impl Os, counts: &PageCounts) -> usize {
        self.purges.earn(os.now_ms());
        match self.has_scavenger || !self.purges.is_overdrawn() {
            true => self.refaults.units().min(counts.dirty),
            false => counts.dirty,
        }
    }

    /// The most dirty units that stay when the last thread beside the first ends. The first may
    /// only wait from now on, so most go, unless new threads have soon needed them again.
    pub fn keep_at_last_exit(&mut self, os: &impl Os, counts: &PageCounts) -> usize {
        self.purges.earn(os.now_ms());
        let usual = match self.purges.may_stay_at_end() {
            true => self.usual_max(counts, DIRTY_UNITS_MAX),
            false => DIRTY_UNITS_MAX,
        };
        let kept = usual.min(self.spare_units(counts.in_use));
        self.purges.note_end(counts.dirty.saturating_sub(kept));
        kept
    }

    /// The most dirty units, far from limits.
    ///
    /// Beside a scavenger, dirty memory stays up to the recent peak: what was in use a moment ago
    /// may be needed again, and if not, it becomes surplus. Without one, `without_scavenger` units
    /// stay, as no purge may follow once the program is idle; but while the budget is overdrawn, as
    /// much as beside a scavenger, or as is in use.
    fn usual_max(&self, counts: &PageCounts, without_scavenger: usize) -> usize {
        match (self.has_scavenger, self.purges.is_overdrawn()) {
            (true, _) => self.up_to_peak(counts),
            (false, false) => without_scavenger,
            (false, true) => self.up_to_peak(counts).max(dirty_units_max(counts.in_use)),
        }
    }

    /// How many dirty units would make the recent peak, and a bit more. With huge pages,
    /// the newest one may stay besides.
    fn up_to_peak(&self, counts: &PageCounts) -> usize {
        let usual = self.peak_units + slack(self.peak_units) - counts.in_use;
        usual + if counts.huge_pages > 0 { HUGE_UNITS as usize } else { 0 }
    }

    /// Returns how many units to purge because they were not needed since the last call: half of
    /// them, or fewer while memory refaults. `has_scavenger` tells whether regular calls follow.
    ///
    /// Decay comes from jemalloc; to look at what was never needed in between comes from tcmalloc.
    pub fn surplus(&mut self, os: &impl Os, counts: &PageCounts, has_scavenger: bool) -> usize {
        self.refaults.update(os.now_ms());
        let halvings = self.refaults.level;
        let unneeded = core::mem::replace(&mut self.dirty_low_units, counts.dirty);
        self.has_scavenger = has_scavenger;
        self.peak_units = counts
            .in_use
            .max(self.peak_units - self.peak_units.div_ceil(DECAY_DIVISOR << halvings));
        (unneeded >> (1 + halvings)).max(SMALL_UNITS).min(unneeded)
    }
}

/// The most dirty units between two purges by interval: see [`DIRTY_UNITS_MAX`].
fn dirty_units_max(in_use: usize) -> usize {
    DIRTY_UNITS_MAX.max(in_use)
}

/// The most dirty units that an interval purge leaves alone, where no scavenger runs.
fn idle_units_max(in_use: usize) -> usize {
    2 * slack(in_use)
}

/// How much resident memory more or less makes little difference beside `units` units in use.
fn slack(units: usize) -> usize {
    SMALL_UNITS.max(units / SLACK_DIVISOR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_huge_page_stays_whole_beside_a_scavenger() {
        let in_use = 256;
        let mut retention =
            Retention { has_scavenger: true, peak_units: in_use, ..Retention::new() };
        let mut counts = PageCounts { in_use, dirty: HUGE_UNITS as usize, ..PageCounts::NONE };
        assert!(retention.after_growth(&counts, HUGE_UNITS).is_some());
        counts.huge_pages = 1;
        assert_eq!(retention.after_growth(&counts, HUGE_UNITS), None);
        counts.dirty += slack(in_use) + 1;
        assert!(retention.after_growth(&counts, 1).is_some());
    }

    /// Memory that is freed and needed again every 100 ms.
    #[test]
    fn what_refaults_stays_where_no_scavenger_runs() {
        let (peak, mib) = (4096, (1 << 20) / UNIT);
        let freed = PageCounts { dirty: peak, ..PageCounts::NONE };
        let mut retention = Retention { peak_units: peak, ..Retention::new() };
        let mut purge = |now_ms, refaulted| {
            retention.count_purged(now_ms, refaulted);
            retention.count_refaulted(now_ms, refaulted);
            retention.purges.earn(now_ms + 100);
            [freed.dirty, freed.dirty + 40 * mib]
                .map(|dirty| retention.after_growth(&PageCounts { dirty, ..freed }, 1).is_some())
        };
        // A little may refault. Else up to the recent peak stays, for as long as that cost.
        assert_eq!(purge(1000, 16), [true, true]);
        assert_eq!(purge(2000, peak as u32), [false, true]);
        assert_eq!(purge(20_000, 0), [true, true]);
    }
}
