//! What the scavenger does, round by round: free memory that was not needed since the last round goes
//! back to the kernel, and so do OS pages of spans all of whose blocks are free, and what caches hold
//! that nobody uses.
//!
//! The thread exists only while the process has several threads anyway that allocate, and only while there
//! is memory that could go back, or that may be freed. Without it, rounds run now and then where blocks are freed.

use crate::backend::page_map::MapEntry;
use crate::backend::region::UnitIndex;
use crate::backend::scavenger_state::Rounds;
use crate::central::ClassSpans;
use crate::engine::Engine;
use crate::engine::caches::drain::DrainScope;
use crate::engine::tuning::{
    IDLE_ROUND_MS, PURGE_UNITS_MAX, QUIET_CYCLES, ROUND_MS, ROUND_UNITS_MAX, ROUNDS_PER_CYCLE,
    SCAVENGER_CHECK_MS, SCAVENGER_RETRY_MS, SCAVENGER_UNITS_MIN, WATCH_ROUND_MS, WATCH_ROUNDS_MAX,
};
use crate::platform::os::{Os, ThreadWords};
use crate::platform::sync::{AtomicU64, Ordering};
use crate::size_class::UNIT;

impl<O: Os> Engine<O> {
    /// Starts the scavenger if it pays off and may be: called where memory is handed out in bulk. Not
    /// where it is freed, which the C library does with locks held that starting a thread takes.
    #[inline]
    pub(crate) fn start_scavenger_if_due(&self) {
        let words = self.os.thread_words();
        if words.is_uncounted() {
            self.count_thread(words);
        }
        if self.scavenger.is_wanted(words)
            && self.region.committed() >= SCAVENGER_UNITS_MIN * UNIT
            && self.is_due(&self.scavenger.start_due, SCAVENGER_CHECK_MS)
        {
            self.start_scavenger(words);
        }
    }

    /// Counts the calling thread as company of the scavenger, unless it is the first of the process.
    #[cold]
    #[inline(never)]
    fn count_thread(&self, words: &ThreadWords) {
        let Some(hooks) = self.os.hooks() else { return };
        if self.scavenger.is_off() || self.note_first_thread(words) {
            return;
        }
        // Watching the thread may allocate.
        words.go();
        if self.os.watch_threads(Some(hooks.at_thread_exit)).is_ok() && self.os.watch_thread() {
            self.scavenger.arrive();
            words.come();
        }
    }

    /// Whether the calling thread, which has these words, is the first of the process, as is found out once. Set-up mostly
    /// does, since then system calls are free.
    pub(crate) fn note_first_thread(&self, words: &ThreadWords) -> bool {
        let asks = self.os.hooks().is_some() && !self.scavenger.has_first.load(Ordering::Relaxed);
        let is_first = asks && self.os.is_first();
        if is_first {
            self.scavenger.come_first(words);
        }
        is_first
    }

    /// The calling thread exits. The last one takes the scavenger along.
    pub(crate) fn uncount_thread(&self) {
        if self.os.thread_words().go() && self.scavenger.leave() {
            self.stop_scavenger();
        }
    }

    #[cold]
    fn stop_scavenger(&self) {
        self.os.ring(&self.scavenger.bell);
        self.os.join_thread(self.scavenger.thread.load(Ordering::Relaxed));
        self.pages.lock().surplus(&self.os, false);
        // Who starts threads again and again is not to start ours as often.
        self.scavenger.start_due.store(self.os.now_ms() + ROUND_MS as u64, Ordering::Relaxed);
        self.scavenger.stopped();
    }

    /// True once in so many milliseconds: by the clock, so that threads need not share a counter.
    fn is_due(&self, due: &AtomicU64, every: u32) -> bool {
        let now = self.os.now_ms();
        let is_due = now >= due.load(Ordering::Relaxed);
        if is_due {
            due.store(now + every as u64, Ordering::Relaxed);
        }
        is_due
    }

    #[cold]
    fn start_scavenger(&self, words: &ThreadWords) {
        let Some(hooks) = self.os.hooks() else { return };
        if !self.is_worth_watching() {
            return;
        }
        if words.is_first() && self.scavenger.replace_thread() {
            // From a thread that may have CPUs and a priority of its own.
            self.stop_scavenger();
        }
        let may_start = self.scavenger.threads_min(words);
        let Some(ended) = may_start.and_then(|threads| self.scavenger.begin(threads)) else {
            return;
        };
        if ended {
            self.os.join_thread(self.scavenger.thread.load(Ordering::Relaxed));
        }
        self.scavenger.start_from(words);
        self.scavenger.bell.store(0, Ordering::Relaxed);
        let Some(thread) = self.os.start_thread(hooks.scavenge) else {
            self.scavenger.not_begun();
            // A limit of threads may be in the way, for now or for ever.
            return self
                .scavenger
                .start_due
                .store(self.os.now_ms() + SCAVENGER_RETRY_MS, Ordering::Relaxed);
        };
        self.scavenger.thread.store(thread, Ordering::Relaxed);
        if !self.scavenger.begun() {
            self.stop_scavenger();
        }
    }

    /// True where so much is in use that a scavenger pays off.
    fn is_worth_watching(&self) -> bool {
        self.pages.lock().counts.in_use >= SCAVENGER_UNITS_MIN
    }

    /// Blocks were freed in bulk: the scavenger is called; where there is none, rounds run here.
    #[inline]
    pub(crate) fn wake_scavenger(&self) {
        if !self.scavenger.call() {
            self.scavenge_if_due();
        }
    }

    pub(crate) fn scavenge_if_due(&self) {
        if self.is_due(&self.scavenger.round_due, ROUND_MS)
            && let Some(mut rounds) = self.rounds.try_lock()
        {
            self.round(&mut rounds, false);
        }
    }

    /// What the scavenger's thread runs.
    pub fn scavenge(&self) {
        // Handlers of the program's may run on it, and allocate.
        self.os.thread_words().go();
        let (mut wait, mut watched) = (ROUND_MS, 0);
        self.rounds.lock().quiet = 0;
        loop {
            self.os.doze_ms(&self.scavenger.bell, wait);
            if self.scavenger.is_stopping() {
                break;
            }
            let called = self.scavenger.was_called();
            let mut rounds = self.rounds.lock();
            self.round(&mut rounds, called);
            if rounds.quiet < QUIET_CYCLES {
                (wait, watched) = (ROUND_MS, 0);
            } else if rounds.caches_used {
                // Whoever works within caches does not call, but will leave them full.
                wait = IDLE_ROUND_MS;
            } else if watched < WATCH_ROUNDS_MAX && self.is_worth_watching() {
                // It may be freed at once and any time, by a program that then does nothing more; and frees
                // start no thread.
                (wait, watched) = (WATCH_ROUND_MS, watched + 1);
            } else if self.scavenger.end() {
                self.pages.lock().surplus(&self.os, false);
                break;
            }
        }
    }

    /// Gives back some of what nobody needed since the last round; `busy` if the program is known to
    /// have freed blocks since.
    fn round(&self, rounds: &mut Rounds, busy: bool) {
        let surplus = self.purge_surplus();
        let end = self.region.committed() / UNIT;
        let scanned = end.div_ceil(ROUNDS_PER_CYCLE).min(ROUND_UNITS_MAX);
        let mut walk = self.region.units_in(rounds.cursor as usize..end);
        let purged = self.purge_free_pages(walk.by_ref().take(scanned), true);
        rounds.cursor = walk.next as UnitIndex;
        if busy || surplus > 0 || purged > 0 {
            rounds.quiet = 0;
        }
        rounds.caches_used = self.drain(DrainScope::Unused);
        if walk.next >= end {
            rounds.cursor = 0;
            rounds.quiet = rounds.quiet.saturating_add(1);
        }
        if rounds.quiet >= QUIET_CYCLES && !rounds.caches_used {
            self.flush_idle();
        }
    }

    /// Returns free memory to the kernel that nobody needed since the last time. How many units.
    fn purge_surplus(&self) -> usize {
        let surplus =
            self.pages.lock().surplus(&self.os, self.scavenger.exists()).min(ROUND_UNITS_MAX);
        let mut left = surplus;
        // Who stops the scavenger waits for it.
        while left > 0 && !self.scavenger.is_stopping() {
            let some = left.min(PURGE_UNITS_MAX);
            let mut pages = self.pages.lock();
            let keep = pages.counts.dirty.saturating_sub(some);
            pages.purge(&self.region, &self.os, keep);
            left -= some;
        }
        surplus
    }

    /// Returns OS pages of spans that begin in these units, and what is behind large blocks, of quiet ones only or of all. Bytes that
    /// went.
    pub(crate) fn purge_free_pages(
        &self,
        units: impl Iterator<Item = usize>,
        only_quiet: bool,
    ) -> usize {
        let parts = units.filter_map(|unit| {
            let entry = self.region.entry(unit);
            if entry == MapEntry::LARGE {
                return Some(self.purge_tail(unit as UnitIndex, only_quiet));
            }
            let class = entry.class().filter(|_| entry.is_first(unit))?;
            let dig = |spans: &mut ClassSpans| {
                spans.purge_free_pages(&self.region, &self.os, class, unit as UnitIndex, only_quiet)
            };
            self.with_spans_of(unit as UnitIndex, entry, class, dig)
        });
        let purged = parts.sum();
        self.counters.count_page_purges(purged);
        purged
    }
}
