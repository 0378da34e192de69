//! Heaps that programs make: blocks with a common end. Here are their records; what is done with
//! them is in `heaps.rs`.
//!
//! The record of a heap lies in a run of its own. A heap is known by the unit where that is and by
//! a number that no other heap ever had, so a heap that is no more is told from one that came to lie
//! in its place.
//!
//! Who holds the lock of the list may rely on each heap in it: heaps are made and deleted under it
//! (model-checked in `crates/testkit/tests/loom.rs`).

use core::iter;

use crate::backend::page_heap::PageHeap;
use crate::backend::page_map::MapEntry;
use crate::backend::region::{Region, UNITS_MAX, UnitIndex};
use crate::central::ClassSpans;
use crate::platform::random::Random;
use crate::platform::sync::{AtomicU64, AtomicUsize, Lock, Ordering};
use crate::safety::quarantine::Quarantine;
use crate::size_class::{CLASSES, UNIT};

/// Which heap: its number, above the bits of its unit. Never 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeapId(u64);

/// Bits of a unit's index: enough for the largest region.
const UNIT_BITS: u32 = 30;
const _: () = assert!(UNITS_MAX <= 1 << UNIT_BITS);

impl HeapId {
    fn new(number: u64, unit: UnitIndex) -> Self {
        Self(number << UNIT_BITS | unit as u64)
    }

    /// What [`HeapId::to_bits`] gave; anything else is no heap, and found to be none.
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// As a number that is not 0.
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    pub(crate) fn unit(self) -> UnitIndex {
        (self.0 & ((1 << UNIT_BITS) - 1)) as UnitIndex
    }

    /// Wraps around where it has no more bits: after 10^10 heaps.
    pub(crate) fn number(self) -> u64 {
        self.0 >> UNIT_BITS
    }
}

/// What a heap holds.
pub(crate) struct Contents {
    pub spans: [ClassSpans; CLASSES],
    /// Its large blocks, linked by the span records of their first units, which they do not need.
    pub large: UnitIndex,
    /// Bytes in its blocks, as far as they may be used; and how many there may be.
    pub used: usize,
    pub limit: usize,
    /// How many have it: whoever gives it up last deletes it.
    pub owners: usize,
    /// Where mistakes are made hard to exploit: what chooses blocks, and those that are held back.
    pub random: Random,
    pub quarantine: Quarantine,
}

/// A heap's record.
pub(crate) struct HeapRecord {
    number: AtomicU64,
    /// Links of the list of heaps, under its lock.
    next: AtomicUsize,
    previous: AtomicUsize,
    unit: UnitIndex,
    /// Which list the heap's blocks are in that check mode knows of, 0 for none: under the lock of its table.
    checked: AtomicUsize,
    contents: Lock<Contents>,
}

const _: () = assert!(size_of::<HeapRecord>() <= UNIT);

impl HeapRecord {
    pub fn contents(&self) -> &Lock<Contents> {
        &self.contents
    }

    /// What check mode notes here.
    pub fn checked(&self) -> &AtomicUsize {
        &self.checked
    }

    /// Where the record lies.
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
    last_number: u64,
    pub count: usize,
}

impl Heaps {
    pub const fn new() -> Self {
        Self { first: 0, last_number: 0, count: 0 }
    }

    /// Makes a heap of which the record lies at this unit, a run that is the caller's.
    pub fn add(&mut self, region: &Region, unit: UnitIndex, limit: usize) -> HeapId {
        self.last_number += 1;
        let id = HeapId::new(self.last_number, unit);
        let spans = [(); CLASSES].map(|()| ClassSpans::new(unit));
        let (random, quarantine) = (Random::new(0), Quarantine::new());
        let contents = Contents { spans, large: 0, used: 0, limit, owners: 1, random, quarantine };
        let contents = Lock::new(contents);
        let (next, previous) = (AtomicUsize::new(self.first as usize), AtomicUsize::new(0));
        let (number, checked) = (AtomicU64::new(id.number()), AtomicUsize::new(0));
        let record = HeapRecord { number, next, previous, unit, checked, contents };
        // SAFETY: the unit is the caller's.
        unsafe { record_at(region, unit).write(record) };
        if let Some(next) = self.at(region, self.first) {
            next.previous.store(unit as usize, Ordering::Relaxed);
        }
        self.first = unit;
        self.count += 1;
        region.set_entry(unit, MapEntry::HEAP);
        id
    }

    /// Takes a heap out of the list, if it is one. Its unit is the caller's then.
    pub fn remove<'a>(&mut self, region: &Region, id: HeapId) -> Option<&'a HeapRecord> {
        let heap = find(region, id)?;
        heap.number.store(0, Ordering::Relaxed);
        region.set_entry(id.unit(), MapEntry::NONE);
        let (next, previous) = (heap.next(), heap.previous.load(Ordering::Relaxed) as UnitIndex);
        if let Some(next) = self.at(region, next) {
            next.previous.store(previous as usize, Ordering::Relaxed);
        }
        match self.at(region, previous) {
            Some(previous) => previous.next.store(next as usize, Ordering::Relaxed),
            None => self.first = next,
        }
        self.count -= 1;
        Some(heap)
    }

    /// The heap of which the record lies at this unit, if one does.
    pub fn at<'a>(&'a self, region: &Region, unit: UnitIndex) -> Option<&'a HeapRecord> {
        let is_one = unit != 0 && region.entry(unit as usize) == MapEntry::HEAP;
        // SAFETY: it is in the list, as long as its lock is held.
        is_one.then(|| unsafe { &*record_at(region, unit) })
    }

    /// All heaps.
    pub fn each<'a>(&'a self, region: &Region) -> impl Iterator<Item = &'a HeapRecord> {
        let record = move |unit: UnitIndex| self.at(region, unit);
        iter::successors(record(self.first), move |heap| record(heap.next()))
    }

    /// Runs `work` on the heap of which a run begins at this committed unit; `None` if none does any more.
    /// For whoever has found the unit without a lock.
    pub fn with_owner_of<R>(
        &self,
        region: &Region,
        pages: &Lock<PageHeap>,
        unit: UnitIndex,
        work: impl FnOnce(&mut Contents) -> R,
    ) -> Option<R> {
        // As long as we hold the list no heap goes. The run may: it may even be another heap's by the
        // time that the heap is locked, which only then holds on to it.
        let owner = || pages.lock().heap_of(region, unit);
        let found = owner();
        let mut contents = self.at(region, found)?.contents().lock();
        (owner() == found).then(|| work(&mut contents))
    }

    /// Whether a heap had this number once, or has it.
    pub fn had(&self, id: HeapId) -> bool {
        (1..=self.last_number).contains(&id.number())
    }
}

/// The heap with this name, if there is one; it stays as long as the program does not delete it.
pub(crate) fn find<'a>(region: &Region, id: HeapId) -> Option<&'a HeapRecord> {
    let unit = id.unit() as usize;
    let can_be = id.number() != 0 && unit != 0 && unit < region.committed() / UNIT;
    if !can_be || region.entry(unit) != MapEntry::HEAP {
        return None;
    }
    let record = record_at(region, id.unit());
    // SAFETY: a heap's record lies there; it does not go while the program uses it.
    let heap = unsafe { &*record };
    (heap.number.load(Ordering::Relaxed) == id.number()).then_some(heap)
}

/// The heap to which a block belongs, by the unit that its run notes.
///
/// # Safety
/// The block is in use, so the heap is.
pub(crate) unsafe fn of_block<'a>(region: &Region, unit: UnitIndex) -> &'a HeapRecord {
    // SAFETY: the caller's.
    unsafe { &*record_at(region, unit) }
}

fn record_at(region: &Region, unit: UnitIndex) -> *mut HeapRecord {
    region.address(unit).cast()
}

impl Contents {
    /// From now on mistakes with the heap's blocks are made hard to exploit.
    pub fn harden(&mut self, seed: u64) {
        self.spans.iter_mut().for_each(ClassSpans::harden);
        self.reseed(seed);
    }

    /// Starts other random numbers.
    pub fn reseed(&mut self, seed: u64) {
        self.random = Random::new(seed);
    }

    /// Whether a block may use so many bytes in place of one that uses so many.
    pub fn admits(&self, bytes: usize, replaced: usize) -> bool {
        bytes.saturating_sub(replaced) <= self.limit.saturating_sub(self.used)
    }

    /// Adds a large block.
    pub fn link(&mut self, region: &Region, first: UnitIndex) {
        let next = self.large;
        // SAFETY: records of large blocks of this heap, whose lock we hold.
        unsafe {
            (*region.span(first)).next = next;
            (*region.span(first)).previous = 0;
            if next != 0 {
                (*region.span(next)).previous = first;
            }
        }
        self.large = first;
    }

    /// Takes a large block out.
    pub fn unlink(&mut self, region: &Region, first: UnitIndex) {
        // SAFETY: as above.
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

    /// The large blocks, by their first units.
    pub fn each_large(&self, region: &Region) -> impl Iterator<Item = UnitIndex> {
        let some = |unit: UnitIndex| (unit != 0).then_some(unit);
        // SAFETY: as above.
        iter::successors(some(self.large), move |&unit| some(unsafe { (*region.span(unit)).next }))
    }
}
