//! What the scavenger does, round by round: free memory that was not needed since the last round goes
//! back to the kernel, and so do OS pages of spans all of whose blocks are free, and what caches hold
//! that nobody uses.
//!
//! The thread exists only in processes that have several threads anyway, and only while there
//! is memory that could go back. Without it, rounds run now and then where blocks are freed.

use core::ops::Range;

use crate::drain::Which;
use crate::engine::Engine;
use crate::options::ScavengerChoice;
use crate::os::Os;
use crate::region::UnitIndex;
use crate::scavenger::Rounds;
use crate::size_class::UNIT;

/// From one round to the next, in milliseconds.
const ROUND: u32 = 200;
/// The rounds in which all spans are looked at once, and the least and the most units in one.
const CYCLE: usize = 5;
const SCAN_LEAST: usize = 1024;
const SCAN_MOST: usize = 16 * 1024;
/// The scavenger starts where so many units are in use, and ends where fewer are.
const STARTS_AT: usize = (2 << 20) / UNIT;
const ENDS_BELOW: usize = (1 << 20) / UNIT;
/// The most units that go back to the kernel while the page heap is locked.
const AT_A_TIME: usize = (16 << 20) / UNIT;
/// Without a scavenger, the clock is looked at every so many batches of freed blocks.
const LOOK: u32 = 64;

/// What came of a round.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cycle {
    Goes,
    /// All spans have been looked at, and something went back.
    Fruitful,
    /// The same, but there was nothing.
    Fruitless,
}

impl<O: Os> Engine<O> {
    /// Starts the scavenger if it pays off and may be: called where memory is handed out in bulk. Not
    /// where it is freed, which the C library does with locks held that starting a thread takes.
    #[inline]
    pub(crate) fn want_scavenger(&self) {
        if self.scavenger.is_none() && self.region.committed() >= STARTS_AT * UNIT {
            self.start_scavenger();
        }
    }

    #[cold]
    fn start_scavenger(&self) {
        let Some(hooks) = self.hooks else { return };
        if self.setup().options.scavenger == ScavengerChoice::Off {
            return self.scavenger.never();
        }
        if !self.os.is_threaded()
            || self.pages.lock().counts.in_use < STARTS_AT
            || !self.scavenger.begin()
        {
            return;
        }
        if !self.os.start_thread(hooks.scavenge) {
            self.scavenger.never();
        }
    }

    /// Blocks were freed in bulk: the scavenger is told; where there is none, rounds run here.
    #[inline]
    pub(crate) fn call_scavenger(&self) {
        let calls = self.scavenger.call();
        if calls.is_multiple_of(LOOK) && self.scavenger.is_none() {
            self.scavenge_if_due();
        }
    }

    #[cold]
    fn scavenge_if_due(&self) -> bool {
        let now = self.os.now_ms();
        let Some(mut rounds) = self.rounds.try_lock() else { return true };
        if now < rounds.due {
            return true;
        }
        rounds.due = now + ROUND as u64;
        self.round(&mut rounds) != Cycle::Fruitless
    }

    /// What a program calls when it has nothing else to do, an event loop before it waits: gives
    /// back some of what nobody needs. True if it is worth calling again, after a fifth of a
    /// second: before, it does nothing.
    pub fn idle(&self) -> bool {
        self.ready() && self.scavenger.is_none() && self.scavenge_if_due()
    }

    /// What the scavenger's thread runs.
    pub fn scavenge(&self) {
        let mut calls = self.scavenger.calls();
        let mut fruitless = 0;
        loop {
            self.os.sleep_ms(ROUND);
            let before = self.scavenger.calls();
            let cycle = {
                let mut rounds = self.rounds.lock();
                self.round(&mut rounds)
            };
            if before != calls || cycle == Cycle::Fruitful {
                (calls, fruitless) = (before, 0);
            } else if cycle == Cycle::Fruitless {
                fruitless += 1;
            }
            // A span counts as quiet when it is looked at for the second time.
            if fruitless < 2 {
                continue;
            }
            let mut pages = self.pages.lock();
            if pages.counts.in_use < ENDS_BELOW {
                pages.surplus(false);
                drop(pages);
                return self.scavenger.end();
            }
            drop(pages);
            self.scavenger.sleep(calls);
            fruitless = 0;
        }
    }

    fn round(&self, rounds: &mut Rounds) -> Cycle {
        let mut surplus = self.pages.lock().surplus(!self.scavenger.is_none());
        rounds.fruitful |= surplus > 0;
        while surplus > 0 {
            let some = surplus.min(AT_A_TIME);
            let mut pages = self.pages.lock();
            let keep = pages.counts.dirty.saturating_sub(some);
            pages.purge(&self.region, &self.os, keep);
            surplus -= some;
        }
        let end = self.region.committed() / UNIT;
        let scanned = (end / CYCLE).clamp(SCAN_LEAST, SCAN_MOST);
        let until = (rounds.cursor as usize + scanned).min(end);
        rounds.fruitful |= self.dig(rounds.cursor as usize..until, Which::Unused) > 0;
        rounds.cursor = until as UnitIndex;
        if until < end {
            return Cycle::Goes;
        }
        rounds.cursor = 0;
        rounds.fruitful |= self.drain(Which::Unused);
        match core::mem::take(&mut rounds.fruitful) {
            true => Cycle::Fruitful,
            false => Cycle::Fruitless,
        }
    }

    /// Gives back what caches hold, and returns all free memory to the kernel. True if any went.
    pub fn trim(&self) -> bool {
        if !self.ready() {
            return false;
        }
        self.flush_all();
        let mut rounds = self.rounds.lock();
        rounds.fruitful = true;
        let dug = self.dig(0..self.region.committed() / UNIT, Which::All);
        let mut pages = self.pages.lock();
        let before = pages.counts.purged;
        pages.purge(&self.region, &self.os, 0);
        dug > 0 || pages.counts.purged > before
    }

    /// Returns OS pages of spans that begin in these units and are quiet, or of all. Bytes that went.
    fn dig(&self, units: Range<usize>, which: Which) -> usize {
        let only_quiet = which == Which::Unused;
        let spans = units.filter_map(|unit| {
            let entry = self.region.entry(unit);
            let class = entry.class().filter(|_| entry.span_offset() == 0)?;
            let central = &self.centrals[class.index()];
            Some(central.dig(&self.region, &self.os, class, unit as UnitIndex, only_quiet))
        });
        let dug = spans.sum();
        self.totals.count_dug(dug);
        dug
    }
}
