//! Records of user heaps, whose blocks are freed together when the program deletes the heap.
//!
//! `engine/user_heaps.rs` has the operations on heaps. A heap's record lies in a run of its own. A
//! heap's id consists of the record's unit and a number that no other heap ever had. So the id of
//! a deleted heap never matches a later heap in the same place.
//!
//! Heaps are made and deleted under the lock of the list of heaps. Its holder may use each heap in
//! the list (model-checked in `crates/testkit/tests/loom.rs`).

use core::iter;

use crate::backend::page_heap::Memory;
use crate::backend::page_map::MapEntry;
use crate::backend::region::{Region, UNITS_MAX, UnitIndex};
use crate::central::ClassSpans;
use crate::platform::os::Os;
use crate::platform::random::Random;
use crate::platform::sync::{AtomicU64, AtomicUsize, Lock, Ordering};
use crate::safety::quarantine::Quarantine;
use crate::size_class::{CLASSES, UNIT};

/// Identifies a heap: its number, above the bits of its record's unit. Never 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeapId(u64);

/// Bits of a unit's index in a [`HeapId`]: enough for the largest region.
const UNIT_BITS: u32 = 30;
const _: () = assert!(UNITS_MAX <= 1 << UNIT_BITS);
/// The highest number of a heap. After it comes 1 again.
const NUMBER_MAX: u64 = u64::MAX >> UNIT_BITS;

impl HeapId {
    fn new(number: u64, unit: UnitIndex) -> Self {
        Self(number << UNIT_BITS | unit as u64)
    }

    /// Makes an id of the bits from [`HeapId::to_bits`]. Of other bits it makes an id that no heap
    /// matches.
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Returns the id as a number, which is never 0.
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    pub(crate) fn unit(self) -> UnitIndex {
        (self.0 & ((1 << UNIT_BITS) - 1)) as UnitIndex
    }

    /// The heap's number: 1 to [`NUMBER_MAX`], some 10^10.
    pub(crate) fn number(self) -> u64 {
        self.0 >> UNIT_BITS
    }
}

/// Spans, large blocks and limits of a heap, under its lock.
pub(crate) struct Contents {
    pub spans: [ClassSpans; CLASSES],
    /// The first large block. Large blocks are linked by the span records of their first units,
    /// which they use for nothing else.
    pub large: UnitIndex,
    /// Usable bytes of all blocks.
    pub used: usize,
    /// The most that `used` may become.
    pub limit: usize,
    /// Owners of the heap. The last one to give it up deletes it.
    pub owners: usize,
    /// Harden mode: chooses blocks.
    pub random: Random,
    /// Harden mode: freed blocks that are held back.
    pub quarantine: Quarantine,
}

/// A heap's record.
pub(crate) struct HeapRecord {
    /// The heap's number, 0 once it is deleted.
    number: AtomicU64,
    /// Links of the list of heaps, under its lock.
    next: AtomicUsize,
    previous: AtomicUsize,
    unit: UnitIndex,
    /// Check mode: the heap's list of block records, 0 for none. Under the lock of the check
    /// table.
    checked: AtomicUsize,
    /// The heap's list of blocks in the heap profile, 0 for none. Under the lock of its table.
    profiled: AtomicUsize,
    contents: Lock<Contents>,
}

const _: () = assert!(size_of::<HeapRecord>() <= UNIT);

impl HeapRecord {
    pub fn contents(&self) -> &Lock<Contents> {
        &self.contents
    }

    /// The word in which check mode keeps the heap's list of block records.
    pub fn checked(&self) -> &AtomicUsize {
        &self.checked
    }

    /// The word in which the heap profile keeps the heap's list of blocks.
    pub fn profiled(&self) -> &AtomicUsize {
        &self.profiled
    }

    /// The heap's id, while it is not deleted.
    pub fn id(&self) -> HeapId {
        HeapId::new(self.number.load(Ordering::Relaxed), self.unit)
    }

    /// The unit where the record lies.
    pub fn unit(&self) -> UnitIndex {
        self.unit
    }

    fn next(&self) -> UnitIndex {
        self.next.load(Ordering::Relaxed) as UnitIndex
    }
}

/// The list of all heaps.
pub(crate) struct Heaps {
    first: UnitIndex,
    /// The number of the last heap that was made, counted on beyond [`NUMBER_MAX`].
    last_number: u64,
    pub count: usize,
}

impl Heaps {
    pub const fn new() -> Self {
        Self { first: 0, last_number: 0, count: 0 }
    }

    /// Makes a heap and writes its record to `unit`, the start of a run that is the caller's.
    pub fn add(&mut self, region: &Region, unit: UnitIndex, limit: usize) -> HeapId {
        let id = self.next_id(unit);
        let spans = [(); CLASSES].map(|()| ClassSpans::new(unit));
        let (random, quarantine) = (Random::new(0), Quarantine::new());
        let contents = Contents { spans, large: 0, used: 0, limit, owners: 1, random, quarantine };
        let contents = Lock::new(contents);
        let (next, previous) = (AtomicUsize::new(self.first as usize), AtomicUsize::new(0));
        let (number, checked) = (AtomicU64::new(id.number()), AtomicUsize::new(0));
        let profiled = AtomicUsize::new(0);
        let heap = HeapRecord { number, next, previous, unit, checked, profiled, contents };
        // SAFETY: the unit is the caller's, and a record fits into it.
        unsafe { record_at(region, unit).write(heap) };
        if let Some(next) = record(region, self.first) {
            next.previous.store(unit as usize, Ordering::Relaxed);
        }
        self.first = unit;
        self.count += 1;
        region.set_entry(unit, MapEntry::HEAP);
        id
    }

    /// The id of the next heap, whose record lies at `unit`.
    fn next_id(&mut self, unit: UnitIndex) -> HeapId {
        let id = HeapId::new(self.last_number % NUMBER_MAX + 1, unit);
        self.last_number += 1;
        id
    }

    /// Takes a heap out of the list, if the id matches one. The record's run is then the caller's.
    pub fn remove<'a>(&mut self, region: &Region, id: HeapId) -> Option<&'a HeapRecord> {
        let heap = find(region, id)?;
        heap.number.store(0, Ordering::Relaxed);
        region.set_entry(id.unit(), MapEntry::NONE);
        let (next, previous) = (heap.next(), heap.previous.load(Ordering::Relaxed) as UnitIndex);
        if let Some(next) = record(region, next) {
            next.previous.store(previous as usize, Ordering::Relaxed);
        }
        match record(region, previous) {
            Some(previous) => previous.next.store(next as usize, Ordering::Relaxed),
            None => self.first = next,
        }
        self.count -= 1;
        Some(heap)
    }

    /// All heaps.
    pub fn each<'a>(&'a self, region: &Region) -> impl Iterator<Item = &'a HeapRecord> {
        iter::successors(record(region, self.first), move |heap| record(region, heap.next()))
    }

    /// Runs `work` on the heap that owns the run at this committed unit. Returns `None` if no heap
    /// does any more.
    ///
    /// The caller may have found the unit without a lock.
    pub fn with_owner_of<R>(
        &self,
        memory: &Memory<'_, impl Os>,
        unit: UnitIndex,
        work: impl FnOnce(&mut Contents) -> R,
    ) -> Option<R> {
        // No heap is deleted while the list is locked. But until this heap is locked, it may free
        // the run, and another heap may take it: so look twice.
        let owner = || memory.lock().heap_of(unit);
        let found = owner();
        let mut contents = record(memory.region, found)?.contents().lock();
        (owner() == found).then(|| work(&mut contents))
    }

    /// Whether a heap has this number, or had it once.
    pub fn had(&self, id: HeapId) -> bool {
        (1..=self.last_number.min(NUMBER_MAX)).contains(&id.number())
    }
}

/// The heap whose record lies at this unit, if one does. Any unit may be passed in. The heap stays
/// until the program deletes it, and while the list of heaps is locked.
pub(crate) fn record<'a>(region: &Region, unit: UnitIndex) -> Option<&'a HeapRecord> {
    let is_heap = unit != 0
        && (unit as usize) < region.committed() / UNIT
        && region.entry(unit as usize) == MapEntry::HEAP;
    // SAFETY: a heap's record lies there. The program does not delete a heap that it is using.
    is_heap.then(|| unsafe { &*record_at(region, unit) })
}

/// Returns the heap with this id, if there is one.
pub(crate) fn find<'a>(region: &Region, id: HeapId) -> Option<&'a HeapRecord> {
    let is_it = |heap: &&HeapRecord| heap.number.load(Ordering::Relaxed) == id.number();
    record(region, id.unit()).filter(is_it).filter(|_| id.number() != 0)
}

/// Returns the heap of a block, by the unit of the heap's record, which the block's run notes.
///
/// # Safety
/// The block is in use, so its heap exists.
pub(crate) unsafe fn of_block<'a>(region: &Region, unit: UnitIndex) -> &'a HeapRecord {
    // SAFETY: the caller guarantees that the heap exists, so its record lies at this unit.
    unsafe { &*record_at(region, unit) }
}

fn record_at(region: &Region, unit: UnitIndex) -> *mut HeapRecord {
    region.address(unit).cast()
}

impl Contents {
    /// Hardens the heap, which has no blocks yet, and seeds its random numbers.
    pub fn harden(&mut self, seed: u64) {
        self.spans.iter_mut().for_each(ClassSpans::harden);
        self.reseed(seed);
    }

    /// Seeds the random numbers again.
    pub fn reseed(&mut self, seed: u64) {
        self.random = Random::new(seed);
    }

    /// Whether the limit allows a block of `bytes` usable bytes instead of one of `replaced`.
    pub fn admits(&self, bytes: usize, replaced: usize) -> bool {
        bytes.saturating_sub(replaced) <= self.limit.saturating_sub(self.used)
    }

    /// Adds a large block to the list.
    pub fn link(&mut self, region: &Region, first: UnitIndex) {
        let next = self.large;
        // SAFETY: both units head large blocks of this heap, whose lock we hold.
        unsafe {
            (*region.span(first)).next = next;
            (*region.span(first)).previous = 0;
            if next != 0 {
                (*region.span(next)).previous = first;
            }
        }
        self.large = first;
    }

    /// Takes a large block out of the list.
    pub fn unlink(&mut self, region: &Region, first: UnitIndex) {
        // SAFETY: all units here head large blocks of this heap, whose lock we hold.
        unsafe {
            let (next, previous) = ((*region.span(first)).next, (*region.span(first)).previous);
            if next != 0 {
                (*region.span(next)).previous = previous;
            }
            match previous {
                0 => self.large = next,
                previous => (*region.span(previous)).next = next,
            }
        }
    }

    /// The first units of all large blocks.
    pub fn each_large(&self, region: &Region) -> impl Iterator<Item = UnitIndex> {
        let some = |unit: UnitIndex| (unit != 0).then_some(unit);
        // SAFETY: listed units head large blocks of this heap, whose lock we hold.
        iter::successors(some(self.large), move |&unit| some(unsafe { (*region.span(unit)).next }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_heaps_begin_again_and_are_never_0() {
        let mut heaps = Heaps { last_number: NUMBER_MAX - 2, ..Heaps::new() };
        let numbers = [(); 4].map(|()| heaps.next_id(1).number());
        assert_eq!(numbers, [NUMBER_MAX - 1, NUMBER_MAX, 1, 2]);
        assert!(heaps.had(HeapId::new(NUMBER_MAX, 1)) && !heaps.had(HeapId::new(0, 1)));
    }
}
