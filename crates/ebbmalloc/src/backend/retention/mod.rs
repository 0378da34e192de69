//! How much free memory stays resident, in units, and for how long.
//!
//! Somebody may look after it regularly (the scavenger): then what was in use of late may stay, and
//! what nobody needed between two looks goes by halves. Otherwise nobody will look once the program
//! does nothing, so less stays, and time is looked at with each run that is freed. In both cases more
//! stays, and for longer, where what went is soon wanted back again and again (`patience.rs`); and less
//! stays, and nothing waits, where memory as a whole gets short (`pressure.rs`).

// Lowest first: each uses only modules above it in this list.
pub(crate) mod memory_pressure;
pub(crate) mod refaults;

use core::num::NonZeroUsize;

use crate::backend::retention::memory_pressure::MemoryPressure;
use crate::backend::retention::refaults::Refaults;
use crate::backend::run::State;
use crate::backend::tuning::{
    DIRTY_SHARE_KEPT, DIRTY_UNITS_KEPT, DIRTY_UNITS_MAX, LITTLE_DIRTY_UNITS, PEAK_DECAY_SHARE,
    PURGE_INTERVAL_LITTLE_MS, PURGE_INTERVAL_MS, RECLAIM_PAUSE_SHARE, RECLAIM_SHARE,
    RECLAIM_UNITS_MIN, REFUSED_SHARE, SLACK_SHARE, SLACK_UNITS, SURPLUS_UNITS_MIN,
};
use crate::platform::os::Os;

/// What the page heap holds and has done, in units but for `purges`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PageCounts {
    /// Handed out now.
    pub in_use: usize,
    /// Free and resident now.
    pub dirty: usize,
    /// Free, mapped and not resident.
    pub clean: usize,
    /// Free, of which nothing is mapped; and in how many runs.
    pub unmapped: usize,
    pub unmapped_runs: usize,
    /// Where another mapping lies, or did.
    pub foreign: usize,
    /// Returned to the kernel since the start.
    pub purged: usize,
    /// Calls that returned memory to the kernel.
    pub purges: usize,
}

impl PageCounts {
    /// Nothing.
    pub const NONE: Self = Self {
        in_use: 0,
        dirty: 0,
        clean: 0,
        unmapped: 0,
        unmapped_runs: 0,
        foreign: 0,
        purged: 0,
        purges: 0,
    };

    /// There is a free run of this kind more.
    pub fn add(&mut self, state: State, units: u32) {
        *self.of(state) += units as usize;
        self.unmapped_runs += (state == State::Unmapped) as usize;
    }

    /// There is one less.
    pub fn remove(&mut self, state: State, units: u32) {
        *self.of(state) -= units as usize;
        self.unmapped_runs -= (state == State::Unmapped) as usize;
    }

    fn of(&mut self, state: State) -> &mut usize {
        match state {
            State::InUse => &mut self.in_use,
            State::Dirty => &mut self.dirty,
            State::Clean => &mut self.clean,
            State::Unmapped => &mut self.unmapped,
            State::Foreign => &mut self.foreign,
        }
    }

    /// Units of these first ones that are mapped.
    pub fn mapped(&self, committed: usize) -> usize {
        committed - self.unmapped - self.foreign
    }
}

/// What decides how much may stay.
pub(crate) struct Retention {
    /// When free memory was purged last, or else first might have been, by the clock of the operating system below.
    last: Option<u64>,
    /// Somebody asks for the surplus regularly.
    watched: bool,
    /// The least that was dirty, and the most in use of late, since that was last asked.
    dirty_low: usize,
    peak: usize,
    /// Units that became resident since the start, and how many those will be when it is time to look whether
    /// caches keep too much.
    grown: usize,
    look_at: usize,
    /// The kernel refused memory when this many units would have been in use. (None is zero, as all
    /// initial values of an engine are, so that files hold no bytes for it.)
    refused: Option<NonZeroUsize>,
    pub patience: Refaults,
    pub pressure: MemoryPressure,
}

impl Retention {
    /// Nothing is in use.
    pub const fn new() -> Self {
        Self {
            last: None,
            watched: false,
            dirty_low: 0,
            peak: 0,
            grown: 0,
            look_at: 0,
            refused: None,
            patience: Refaults::new(),
            pressure: MemoryPressure::new(),
        }
    }

    /// Whether it is time to look whether caches keep too much, now that so many units more are to become resident.
    pub fn is_reclaim_due(&mut self, counts: &PageCounts, units: u32) -> bool {
        let due = counts.in_use >= RECLAIM_UNITS_MIN && self.grown + units as usize >= self.look_at;
        if due {
            self.look_at = self.grown + counts.in_use / RECLAIM_SHARE;
        }
        due
    }

    /// Caches were emptied, or asked in vain.
    pub fn postpone_reclaim(&mut self, counts: &PageCounts) {
        self.look_at = self.grown + counts.in_use / RECLAIM_PAUSE_SHARE;
    }

    /// The kernel has refused what would have made as many units as this be in use: a limit of the process is near, and what is
    /// free here is lacking elsewhere in it.
    pub fn refuse(&mut self, units: usize) {
        // A request that asks for more says less.
        let units = NonZeroUsize::new(units).unwrap_or(NonZeroUsize::MIN);
        self.refused = Some(self.refused.map_or(units, |before| before.min(units)));
    }

    /// How much may stay dirty, as far as memory that was refused says.
    fn share_of_refused(&self, in_use: usize) -> usize {
        let spare = |refused: NonZeroUsize| refused.get().saturating_sub(in_use) / REFUSED_SHARE;
        self.refused.map_or(usize::MAX, spare)
    }

    /// There is less dirty memory, or more in use.
    pub fn count(&mut self, counts: &PageCounts) {
        if self.refused.is_some_and(|refused| counts.in_use > refused.get()) {
            self.refused = None;
        }
        self.peak = self.peak.max(counts.in_use);
        self.dirty_low = self.dirty_low.min(counts.dirty);
    }

    /// How much is to stay, if some is to go now that so many units became resident.
    #[inline(never)] // Three ways lead here, none of which is hot.
    pub fn after_growth(&mut self, counts: &PageCounts, units: u32) -> Option<usize> {
        self.grown += units as usize;
        let &PageCounts { in_use, dirty, .. } = counts;
        let slack = self.slack();
        let usual = if self.watched { self.peak + slack - in_use } else { self.hard(in_use) };
        let most = self.pressure.allowance(in_use + dirty, usual);
        let most = most.min(self.share_of_refused(in_use));
        (dirty > most).then_some(most - (most / 2).min(slack / 2))
    }

    /// The same now that some was freed.
    pub fn after_free(&mut self, os: &impl Os, counts: &PageCounts) -> Option<usize> {
        let &PageCounts { in_use, dirty, .. } = counts;
        let usual = if self.watched {
            // What was in use a moment ago may well be again; if not, it will be surplus.
            self.peak + self.slack() - in_use
        } else {
            DIRTY_UNITS_KEPT.max(in_use / DIRTY_SHARE_KEPT)
        };
        let soft = self.pressure.allowance(in_use + dirty, usual);
        let soft = soft.min(self.share_of_refused(in_use));
        if dirty <= soft {
            return None;
        }
        if self.watched || soft < usual {
            return Some(soft - (soft / 2).min(self.slack() / 2));
        }
        let now = os.now_ms();
        self.patience.look(now);
        let last = *self.last.get_or_insert(now);
        let wait =
            if dirty <= LITTLE_DIRTY_UNITS { PURGE_INTERVAL_LITTLE_MS } else { PURGE_INTERVAL_MS };
        if now >= last + self.patience.extend_over(wait) {
            self.last = Some(now);
            return Some(soft / 2);
        }
        let hard = self.hard(in_use).min(self.share_of_refused(in_use));
        (dirty > hard).then_some(hard - hard / 8)
    }

    /// [`DIRTY_UNITS_MAX`], with so many units in use.
    fn hard(&self, in_use: usize) -> usize {
        DIRTY_UNITS_MAX.max(in_use).max(self.patience.units())
    }

    /// How many units to purge because nobody needed them since this was last asked: half of them, or less for patience.
    /// From now on somebody asks regularly, or nobody does.
    ///
    /// Decay is jemalloc's idea; to look at what was never needed in between, tcmalloc's.
    pub fn surplus(&mut self, os: &impl Os, counts: &PageCounts, watched: bool) -> usize {
        self.patience.look(os.now_ms());
        let halvings = self.patience.halvings();
        let unneeded = core::mem::replace(&mut self.dirty_low, counts.dirty);
        self.watched = watched;
        self.peak = counts.in_use.max(self.peak - self.peak.div_ceil(PEAK_DECAY_SHARE << halvings));
        (unneeded >> (1 + halvings)).max(SURPLUS_UNITS_MIN).min(unneeded)
    }

    fn slack(&self) -> usize {
        SLACK_UNITS.max(self.peak / SLACK_SHARE)
    }
}
