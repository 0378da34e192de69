//! Runs the rounds of the scavenger, which return unused memory to the kernel, and starts and stops
//! its thread.
//!
//! A round purges free memory that was not needed since the last round, and OS pages of spans whose
//! blocks are all free. It empties stacks in caches that no thread has used since the last round.
//!
//! The scavenger's thread exists only while several threads of the process allocate, or if the
//! process had other threads and its first has left much free memory. It ends some seconds
//! after the last purge. Without it, frees run the rounds.

use core::mem;

use crate::backend::page_map::MapEntry;
use crate::backend::region::UnitIndex;
use crate::backend::scavenger_state::Rounds;
use crate::backend::tuning::{
    BURST_BYTES, BURST_FREE_BYTES_MIN, BURST_UNIT_NS, BURST_WORTH_DIVISOR, SMALL_UNITS,
};
use crate::central::ClassSpans;
use crate::central::heap_record::Contents;
use crate::engine::Engine;
use crate::engine::caches::drain::DrainScope;
use crate::engine::tuning::{
    IDLE_ROUND_MS, PURGE_UNITS_MAX, QUIET_CYCLES, ROUND_MS, ROUND_UNITS_MAX, ROUNDS_PER_CYCLE,
    SCAVENGER_ALONE_UNITS_MIN, SCAVENGER_CHECK_MS, SCAVENGER_RETRY_MS, SCAVENGER_UNITS_MIN,
    WATCH_ROUND_MS, WATCH_ROUNDS_MAX,
};
use crate::platform::os::{Os, ThreadWords};
use crate::platform::sync::{AtomicU64, Ordering};
use crate::size_class::{SizeClass, UNIT};

impl<O: Os> Engine<O> {
    /// Starts the scavenger if it pays off and is allowed. Cache misses and large allocations call
    /// this, but not frees: the C library may free with locks held that starting a thread takes.
    #[inline]
    pub(crate) fn start_scavenger_if_due(&self) {
        let words = self.os.thread_words();
        if words.is_uncounted() {
            self.count_thread(words);
        }
        if self.scavenger.is_wanted(words)
            && self.region.committed() >= SCAVENGER_UNITS_MIN * UNIT
            && self.take_due(&self.scavenger.start_due, SCAVENGER_CHECK_MS)
        {
            self.start_scavenger(words);
        }
    }

    /// Counts the calling thread for the scavenger (`backend/scavenger_state.rs`), unless it is the
    /// first of the process.
    #[cold]
    #[inline(never)]
    fn count_thread(&self, words: &ThreadWords) {
        let Some(hooks) = self.os.hooks() else { return };
        if self.scavenger.is_off() {
            // Not asked again.
            words.mark_left();
            return;
        }
        if self.note_first_thread(words) {
            return;
        }
        // First marked as not counted: watching the thread may allocate, and so come here again.
        words.mark_left();
        if self.os.watch_threads(Some(hooks.at_thread_exit)).is_ok() && self.os.watch_thread() {
            self.scavenger.arrive_beside_first();
            words.mark_counted();
        }
    }

    /// Counts the first thread, if the process has had others, none of which allocates.
    fn count_first_thread(&self, words: &ThreadWords) {
        let Some(hooks) = self.os.hooks() else { return };
        if words.is_first()
            && self.scavenger.may_count_first()
            && self.os.had_threads()
            && self.os.watch_threads(Some(hooks.at_thread_exit)).is_ok()
            && self.os.watch_thread()
            && self.scavenger.arrive_first()
        {
            self.stop_scavenger();
        }
    }

    /// Records that the calling thread, which has these words, is the first of the process, if it
    /// is; true then. The check stops once that thread is known: mostly at set-up, where system
    /// calls are allowed.
    pub(crate) fn note_first_thread(&self, words: &ThreadWords) -> bool {
        let must_ask =
            self.os.hooks().is_some() && !self.scavenger.has_first.load(Ordering::Relaxed);
        let is_first = must_ask && self.os.is_first();
        if is_first {
            self.scavenger.mark_first(words);
        }
        is_first
    }

    /// Counts the calling thread out, because it exits. The last one stops the scavenger, and
    /// purges most of what is free.
    pub(crate) fn uncount_thread(&self) {
        let words = self.os.thread_words();
        let first_counted = words.is_first() && self.scavenger.take_first();
        if !(words.mark_left() || first_counted) {
            return;
        }
        if self.scavenger.leave() {
            self.stop_scavenger();
        }
        if self.scavenger.counts_none() {
            // The first thread may only wait from now on: nothing would purge any more.
            self.drain_near(false);
            let mut pages = self.pages();
            let counts = pages.counts;
            let kept = pages.retention.keep_at_last_exit(&self.os, &counts);
            pages.purge(kept);
        }
    }

    /// Ends the scavenger's thread and waits for it.
    #[cold]
    fn stop_scavenger(&self) {
        self.os.wake(&self.scavenger.wake_flag);
        self.os.join_thread(self.scavenger.thread.load(Ordering::Relaxed));
        self.pages.lock().surplus(&self.os, false);
        // A program that starts threads again and again must not start the scavenger as often.
        self.scavenger.start_due.store(self.os.now_ms() + ROUND_MS as u64, Ordering::Relaxed);
        self.scavenger.stopped();
    }

    /// True once in `interval_ms`. It goes by the clock, so that threads need not share a counter.
    fn take_due(&self, due_ms: &AtomicU64, interval_ms: u32) -> bool {
        let now_ms = self.os.now_ms();
        let is_due = now_ms >= due_ms.load(Ordering::Relaxed);
        if is_due {
            due_ms.store(now_ms + interval_ms as u64, Ordering::Relaxed);
        }
        is_due
    }

    /// Starts the scavenger's thread, if enough memory is in use and enough threads count.
    #[cold]
    fn start_scavenger(&self, words: &ThreadWords) {
        let Some(hooks) = self.os.hooks() else { return };
        if self.scavenger.is_paused.load(Ordering::Relaxed) || !self.is_worth_starting() {
            return;
        }
        self.count_first_thread(words);
        if words.is_first() && self.scavenger.replace_thread() {
            // Another thread started it: it has the CPUs and the priority of that one.
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
        self.scavenger.wake_flag.store(0, Ordering::Relaxed);
        let Some(thread) = self.os.start_thread(hooks.scavenge) else {
            self.scavenger.not_begun();
            // A limit of threads may forbid it, for now or for good.
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

    /// Whether a scavenger is worth its start. For the first thread alone it must have something to
    /// do soon: the other threads may have ended, and a process with one thread may do what one
    /// with a scavenger may not, such as unshare(2).
    fn is_worth_starting(&self) -> bool {
        if !self.scavenger.is_for_first() {
            return self.is_worth_watching();
        }
        let mut pages = self.pages.lock();
        pages.retention.refaults.decay(self.os.now_ms());
        let refaulted = pages.retention.refaults.units().min(pages.counts.in_use);
        pages.counts.dirty.max(refaulted) >= SCAVENGER_ALONE_UNITS_MIN
    }

    /// Whether a scavenger pays off for the memory in use.
    fn is_worth_watching(&self) -> bool {
        self.pages.lock().counts.in_use >= SCAVENGER_UNITS_MIN
    }

    /// Notifies the scavenger of a bulk free. Where there is none, runs a round if one is due.
    #[inline]
    pub(crate) fn notify_scavenger(&self) {
        if !self.scavenger.notify() {
            self.scavenger.note_freed();
            self.scavenge_if_due(true);
            if self.freed_bytes.load(Ordering::Relaxed) >= BURST_BYTES {
                self.purge_after_burst();
            }
        }
    }

    /// Purges the free pages of all spans, if most of the resident memory of spans is free.
    ///
    /// After a burst of frees, a program may do nothing more, so no later round may run: those in
    /// frees are rare, and spare spans that have just changed. Where a program needs these pages
    /// again too often, there are none for a while (decisions/0036, 0044).
    #[cold]
    fn purge_after_burst(&self) {
        let Some(mut rounds) = self.rounds.try_lock() else { return };
        self.freed_bytes.store(0, Ordering::Relaxed);
        let (mut free_bytes, mut claimed_bytes, mut refilled_bytes) = (0, 0, 0);
        for class in SizeClass::all() {
            let counts = self.centrals[class.index()].spans().lock().counts;
            free_bytes += counts.free_resident(class);
            claimed_bytes += counts.claimed * class.size();
            refilled_bytes += counts.refilled;
        }
        let now_ms = self.os.now_ms();
        let before = mem::replace(&mut rounds.refilled_bytes, refilled_bytes);
        let may_purge = {
            let mut pages = self.pages();
            pages.retention.count_refilled(now_ms, refilled_bytes.saturating_sub(before) / UNIT);
            pages.retention.may_purge(now_ms)
        };
        if free_bytes <= claimed_bytes + BURST_FREE_BYTES_MIN || !may_purge {
            return;
        }
        // Only a part of a large heap: a fork waits meanwhile.
        let end = self.region.committed() / UNIT;
        let start = rounds.burst_cursor as usize;
        let mut walk = self.region.units_in(start..end);
        let part = walk.by_ref().take(ROUND_UNITS_MAX);
        let is_of_span = |&unit: &usize| self.region.entry(unit).class().is_some();
        let purged_bytes = self.purge_free_pages(part.filter(is_of_span), false);
        let reached = walk.reached();
        rounds.burst_cursor = if reached >= end { 0 } else { reached as UnitIndex };
        let mut pages = self.pages();
        pages.retention.purges.count_purged(self.os.now_ms(), (purged_bytes / UNIT) as u32);
        if start == 0 && reached >= end && purged_bytes < free_bytes / BURST_WORTH_DIVISOR {
            pages.retention.purges.charge(end as i64 * BURST_UNIT_NS);
        }
        pages.purge_after_burst();
    }

    /// Time from one round to the next.
    fn round_ms(&self) -> u32 {
        match self.scavenger.round_ms.load(Ordering::Relaxed) {
            0 => ROUND_MS,
            ms => ms,
        }
    }

    /// Runs a round if one is due and no other thread runs one. `within_free`: in a free of the
    /// program's.
    pub(crate) fn scavenge_if_due(&self, within_free: bool) {
        if self.take_due(&self.scavenger.round_due, self.round_ms())
            && let Some(mut rounds) = self.rounds.try_lock()
        {
            let freed = self.scavenger.take_freed();
            self.round(&mut rounds, freed, within_free);
        }
    }

    /// Runs rounds until none is needed or the scavenger is to stop: the code of its thread.
    pub fn scavenge(&self) {
        // It does not count itself: handlers of the program may run on this thread, and allocate.
        self.os.thread_words().mark_left();
        let (mut wait_ms, mut watch_rounds) = (self.round_ms(), 0);
        self.rounds.lock().quiet = 0;
        loop {
            self.os.wait_ms(&self.scavenger.wake_flag, wait_ms);
            if self.scavenger.is_stopping() {
                break;
            }
            self.follow_request_if_any();
            self.write_profile_if_asked();
            let is_for_first = self.scavenger.is_for_first();
            // The first thread alone keeps the scavenger only while it frees much.
            let busy =
                self.scavenger.take_notified() && (!is_for_first || self.is_worth_starting());
            let mut rounds = self.rounds.lock();
            self.round(&mut rounds, busy, false);
            let round_ms = self.round_ms();
            if self.scavenger.is_paused.load(Ordering::Relaxed) && self.scavenger.end() {
                self.pages.lock().surplus(&self.os, false);
                break;
            }
            if rounds.quiet < QUIET_CYCLES {
                (wait_ms, watch_rounds) = (round_ms, 0);
            } else if rounds.caches_used && !is_for_first {
                // Threads that miss no cache do not notify the scavenger, but will leave full
                // caches behind.
                wait_ms = IDLE_ROUND_MS.max(round_ms);
            } else if watch_rounds < WATCH_ROUNDS_MAX && !is_for_first && self.is_worth_watching() {
                // The program may free all of that at any time and then do nothing more, and frees
                // start no scavenger.
                (wait_ms, watch_rounds) = (WATCH_ROUND_MS.max(round_ms), watch_rounds + 1);
            } else if self.scavenger.end() {
                self.pages.lock().surplus(&self.os, false);
                break;
            }
        }
    }

    /// Runs one round. `busy`: the program has freed blocks in bulk since the last one.
    /// `within_free`: the round runs in a free of the program's.
    fn round(&self, rounds: &mut Rounds, busy: bool, within_free: bool) {
        let surplus_units = self.purge_surplus(within_free);
        let end = self.region.committed() / UNIT;
        let scanned_units = end.div_ceil(ROUNDS_PER_CYCLE).min(ROUND_UNITS_MAX);
        let mut walk = self.region.units_in(rounds.cursor as usize..end);
        let purged_bytes = self.purge_free_pages(walk.by_ref().take(scanned_units), true);
        rounds.cursor = walk.reached() as UnitIndex;
        // Less goes in one round. The program may take it back each time, while other memory stays.
        if busy || surplus_units >= SMALL_UNITS || purged_bytes > 0 {
            rounds.quiet = 0;
        }
        rounds.caches_used = self.drain(DrainScope::Unused);
        if walk.reached() >= end {
            rounds.cursor = 0;
            rounds.quiet = rounds.quiet.saturating_add(1);
        }
        if rounds.quiet >= QUIET_CYCLES && !rounds.caches_used {
            self.flush_idle();
        }
    }

    /// Purges free memory that was not needed since the last round, a part of it each time. Returns
    /// the units that it set out to purge: none in a free of the program's, while refaults have
    /// overdrawn their budget.
    fn purge_surplus(&self, within_free: bool) -> usize {
        let has_scavenger = self.scavenger.exists();
        let surplus_units = {
            let mut pages = self.pages();
            match within_free && !pages.retention.may_purge(self.os.now_ms()) {
                true => 0,
                false => pages.surplus(&self.os, has_scavenger).min(ROUND_UNITS_MAX),
            }
        };
        let mut left_units = surplus_units;
        // A thread that stops the scavenger waits for its end.
        while left_units > 0 && !self.scavenger.is_stopping() {
            let step_units = left_units.min(PURGE_UNITS_MAX);
            let mut pages = self.pages();
            let keep = pages.counts.dirty.saturating_sub(step_units);
            pages.purge(keep);
            left_units -= step_units;
        }
        surplus_units
    }

    /// Purges free OS pages of the spans that begin in these units, and pages behind the ends of
    /// large blocks and between medium ones. `only_quiet`: of spans and blocks that have not
    /// changed lately. Returns the bytes purged.
    pub(crate) fn purge_free_pages(
        &self,
        units: impl Iterator<Item = usize>,
        only_quiet: bool,
    ) -> usize {
        let purges = units.filter_map(|unit| {
            let entry = self.region.entry(unit);
            if entry == MapEntry::LARGE || entry.is_paged() {
                return Some(self.purge_tail(unit as UnitIndex, only_quiet));
            }
            let class = entry.class().filter(|_| entry.is_first(unit))?;
            let purge = |spans: &mut ClassSpans| {
                spans.purge_free_pages(&self.memory(), class, unit as UnitIndex, only_quiet)
            };
            self.with_spans_of(unit as UnitIndex, entry, class, purge)
        });
        let purged_bytes = purges.sum();
        self.counters.count_page_purges(purged_bytes);
        purged_bytes
    }

    /// Runs `work` on the spans that the span at `unit` belongs to: those of its class, or those of
    /// a heap. `entry` is the page map's entry of the unit, read without a lock.
    ///
    /// `None` if no run of a heap begins there any more. The span may also have been retired, or
    /// another may have taken its place: `work` must check.
    pub(crate) fn with_spans_of<R>(
        &self,
        unit: UnitIndex,
        entry: MapEntry,
        class: SizeClass,
        work: impl FnOnce(&mut ClassSpans) -> R,
    ) -> Option<R> {
        if !entry.is_of_heap() {
            return Some(work(&mut self.centrals[class.index()].spans().lock()));
        }
        let work = |contents: &mut Contents| work(&mut contents.spans[class.index()]);
        self.heaps.lock().with_owner_of(&self.memory(), unit, work)
    }
}
