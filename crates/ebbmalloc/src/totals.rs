//! Counters of what all threads do.
//!
//! Where every operation is counted, threads count in several places, each behind a lock that hardly anybody waits
//! for; a place tells the others only now and then how many bytes are live.

use crate::sync::{AtomicU64, AtomicUsize, Guard, Lock, Ordering};

/// Places to count in. A thread keeps to one, by its key, as long as nobody else is there.
const PLACES: usize = 16;
/// So many bytes a place may have more or less than it has told.
const UNTOLD: u64 = 16 << 10;

/// Large blocks always, every operation where asked for.
pub(crate) struct Totals {
    large_blocks: AtomicUsize,
    large_units: AtomicUsize,
    dug: AtomicU64,
    /// Live bytes as far as told, and the most that there were.
    told: AtomicU64,
    peak: AtomicU64,
    places: [Place; PLACES],
}

/// Two cache lines, as processors fetch neighbours.
#[repr(align(128))]
struct Place(Lock<Counts>);

/// What was counted in a place.
struct Counts {
    allocated: u64,
    freed: u64,
    /// What of their difference `Totals::told` has.
    told: u64,
}

impl Totals {
    pub const fn new() -> Self {
        const NONE: Counts = Counts { allocated: 0, freed: 0, told: 0 };
        Self {
            large_blocks: AtomicUsize::new(0),
            large_units: AtomicUsize::new(0),
            dug: AtomicU64::new(0),
            told: AtomicU64::new(0),
            peak: AtomicU64::new(0),
            places: [const { Place(Lock::new(NONE)) }; PLACES],
        }
    }

    pub fn add_large(&self, units: u32) {
        self.large_blocks.fetch_add(1, Ordering::Relaxed);
        self.large_units.fetch_add(units as usize, Ordering::Relaxed);
    }

    pub fn remove_large(&self, units: u32) {
        self.large_blocks.fetch_sub(1, Ordering::Relaxed);
        self.large_units.fetch_sub(units as usize, Ordering::Relaxed);
    }

    /// Counts an allocation of a thread of this key.
    pub fn count_alloc(&self, key: usize, bytes: usize) {
        let mut counts = self.counts(key);
        counts.allocated += bytes as u64;
        let live = self.tell(&mut counts);
        // Looked at first: if all always wrote they would wait for each other.
        if live > self.peak.load(Ordering::Relaxed) {
            self.peak.fetch_max(live, Ordering::Relaxed);
        }
    }

    /// The same for a free.
    pub fn count_free(&self, key: usize, bytes: usize) {
        let mut counts = self.counts(key);
        counts.freed += bytes as u64;
        self.tell(&mut counts);
    }

    pub fn count_dug(&self, bytes: usize) {
        self.dug.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub fn read(&self) -> TotalCounts {
        let mut totals = TotalCounts {
            large_blocks: self.large_blocks.load(Ordering::Relaxed),
            large_units: self.large_units.load(Ordering::Relaxed),
            allocated: 0,
            freed: 0,
            peak: self.peak.load(Ordering::Relaxed),
            dug: self.dug.load(Ordering::Relaxed),
        };
        for Place(counts) in &self.places {
            let counts = counts.lock();
            totals.allocated += counts.allocated;
            totals.freed += counts.freed;
        }
        totals
    }

    /// The locks, which nobody takes another one under: for fork.
    pub fn locks(&self) -> impl Iterator<Item = &Lock<impl Sized>> {
        self.places.iter().map(|place| &place.0)
    }

    /// The counts of a place where nobody else is: also for a handler that has interrupted one who is.
    fn counts(&self, key: usize) -> Guard<'_, Counts> {
        // Keys are addresses, whose low bits are the same for all.
        const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
        let first = ((key as u64).wrapping_mul(SPREAD) >> 32) as usize;
        let place = |step: usize| &self.places[(first + step) % PLACES].0;
        (0..PLACES).find_map(|step| place(step).try_lock()).unwrap_or_else(|| place(0).lock())
    }

    /// Live bytes as far as this place and what all have told say. Tells what there is to tell.
    fn tell(&self, counts: &mut Counts) -> u64 {
        let now = counts.allocated.wrapping_sub(counts.freed);
        let untold = now.wrapping_sub(counts.told);
        // What others tell meanwhile may be missing, but nothing of this place is.
        let told = if (untold as i64).unsigned_abs() < UNTOLD {
            self.told.load(Ordering::Relaxed).wrapping_add(untold)
        } else {
            counts.told = now;
            self.told.fetch_add(untold, Ordering::Relaxed).wrapping_add(untold)
        };
        (told as i64).max(0) as u64
    }
}

/// What the counters say: of large blocks now, and of all bytes since the start.
pub(crate) struct TotalCounts {
    pub large_blocks: usize,
    pub large_units: usize,
    pub allocated: u64,
    pub freed: u64,
    pub peak: u64,
    pub dug: u64,
}

#[cfg(all(test, not(miri)))]
mod tests {
    use std::thread;
    use std::vec::Vec;

    use super::*;

    #[test]
    fn one_thread_is_counted_exactly() {
        let totals = Totals::new();
        let sizes = || (0..1000).map(|nth| nth * 37 % 5000);
        sizes().for_each(|bytes| totals.count_alloc(7, bytes));
        let all = sizes().sum::<usize>() as u64;
        sizes().for_each(|bytes| totals.count_free(7, bytes));
        totals.count_alloc(7, 1);
        let counts = totals.read();
        assert_eq!((counts.allocated, counts.freed, counts.peak), (all + 1, all, all));
    }

    /// Each frees what another has allocated, so that no place is ever even.
    #[test]
    fn threads_lose_no_byte_and_little_of_the_peak() {
        const THREADS: usize = 8;
        const ROUNDS: usize = 50_000;
        const KEPT: usize = 1 << 20;
        let totals = Totals::new();
        thread::scope(|scope| {
            for key in (0..THREADS).map(|nth| nth * 4096) {
                let totals = &totals;
                scope.spawn(move || {
                    totals.count_alloc(key, KEPT);
                    for round in 0..ROUNDS {
                        totals.count_alloc(key, round % 1000);
                        totals.count_free((key + 4096) % (THREADS * 4096), round % 1000);
                    }
                });
            }
        });
        let counts = totals.read();
        let passing = (0..ROUNDS).map(|round| round % 1000).sum::<usize>() * THREADS;
        let kept = (THREADS * KEPT) as u64;
        assert_eq!((counts.allocated, counts.freed), (passing as u64 + kept, passing as u64));
        let most = kept + (THREADS * 1000) as u64;
        let off = PLACES as u64 * UNTOLD;
        assert!((kept - off..most + off).contains(&counts.peak), "{} of {kept}", counts.peak);
    }

    /// As when a handler interrupts a thread that is counting.
    #[test]
    fn nobody_waits_while_a_place_is_free() {
        let totals = Totals::new();
        let held: Vec<_> = (1..PLACES).map(|_| totals.counts(7)).collect();
        totals.count_alloc(7, 10);
        drop(held);
        assert_eq!(totals.read().allocated, 10);
    }
}
