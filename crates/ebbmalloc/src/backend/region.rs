//! The region: the range of addresses that all blocks come from, and the tables beside it, with one
//! entry for each unit.
//!
//! Nothing is stored inside the blocks. Set-up chooses the range and maps nothing there: the host
//! sees only the address space that is in use. Units are committed (mapped) from the bottom up,
//! together with their table entries. So an entry may be read wherever its unit is below the
//! committed size. Other mappings may come to lie in the range; the region continues behind them
//! (decisions/0031).

use core::ops::Range;
use core::ptr;
// Not those of `platform::sync`, which loom may replace: the tables lie in raw memory.
use core::sync::atomic::{AtomicU32, AtomicU64, fence};

use crate::backend::page_map::{MapEntry, key_at};
use crate::backend::run::{Run, RunState};
use crate::backend::span::Span;
use crate::backend::tuning::{
    COMMIT_UNITS, REGION_ALIGN_BYTES, REGION_BYTES_MIN, SPAN_ENTRIES_PURGED_UNITS_MIN,
};
pub(crate) use crate::backend::units::UnitIndex;
use crate::frontend::slab::SlabMemory;
use crate::platform::os::{Os, Refusal};
use crate::platform::sync::{AtomicPtr, AtomicUsize, Ordering};
use crate::platform::tuning::RANGE_ATTEMPTS_MAX;
use crate::size_class::{SizeClass, UNIT, UNIT_SHIFT, class_of_start};

/// The largest region, in units. The sum of two numbers of units cannot wrap.
pub(crate) const UNITS_MAX: usize = 1 << 30;

/// The range of addresses and its tables. Set-up writes most fields once. They are atomic, since a
/// wild pointer may be freed, and looked up here, at that very moment.
#[repr(C)]
pub struct Region {
    // Fields that the hot path of `free` reads. They must share one cache line.
    /// The address of `start`, negated. To add to a value in a register takes one instruction less
    /// than to subtract from it a value that was loaded.
    minus_start: AtomicUsize,
    /// Bytes at the region's start whose table entries may be read. A thread that reads a value
    /// above 0 sees the rest of the region set up.
    committed: AtomicUsize,
    /// Where each part begins. The hot path reads only the first.
    parts: [AtomicPtr<u8>; PARTS],
    // Fields that the hot path does not read.
    /// Length of the range in units.
    units: AtomicUsize,
    /// For each part: bytes at its beginning that are mapped, or given up to foreign mappings.
    mapped: [AtomicUsize; PARTS],
    /// The unit after the last that was given up to a foreign mapping.
    foreign_end: AtomicUsize,
}

/// Addresses of the region's parts and of the word that holds its committed bytes, and its length
/// in units.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct RegionAddresses {
    pub(crate) start: usize,
    pub(crate) committed_at: usize,
    pub(crate) keys: usize,
    pub(crate) map: usize,
    pub(crate) runs: usize,
    pub(crate) spans: usize,
    pub(crate) slabs: usize,
    pub(crate) units: usize,
}

/// The iterator of [`Region::units_in`].
pub(crate) struct UnitWalk<'a> {
    region: &'a Region,
    next: usize,
    end: usize,
}

impl UnitWalk<'_> {
    /// The unit that [`Iterator::next`] returns next; at or above the end of the range once that is
    /// reached.
    pub fn reached(&self) -> usize {
        self.next
    }
}

impl Iterator for UnitWalk<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let unit = (self.next < self.end).then_some(self.next)?;
        self.next += match self.region.entry(unit) {
            MapEntry::OTHERS => {
                fence(Ordering::Acquire);
                // SAFETY: the unit is committed. `PageHeap` wrote this record before the entry, and
                // changes neither afterwards.
                unsafe { (*self.region.run(unit as UnitIndex)).units as usize }
            }
            _ => 1,
        };
        Some(unit)
    }
}

/// Bytes of a unit's entry in each of the tables, which are the first parts.
pub(crate) const TABLES: [usize; 4] =
    [size_of::<AtomicU64>(), size_of::<AtomicU32>(), size_of::<Run>(), size_of::<Span>()];

/// The parts of a region: the tables, the units themselves, and the slabs.
const PARTS: usize = TABLES.len() + 2;
const KEYS: usize = 0;
const MAP: usize = 1;
const RUNS: usize = 2;
const SPANS: usize = 3;
const UNITS: usize = 4;
const SLABS: usize = 5;

impl Region {
    /// Bytes at the beginning of this record that the hot path of `free` reads.
    #[cfg(test)]
    pub const HOT_BYTES: usize = core::mem::offset_of!(Self, parts) + size_of::<AtomicPtr<u8>>();

    /// Bytes of a unit and of its table entries.
    pub const UNIT_COST: usize = UNIT + TABLES[0] + TABLES[1] + TABLES[2] + TABLES[3];

    /// A region that was not set up. No address lies in it.
    pub const fn unset() -> Self {
        Self {
            minus_start: AtomicUsize::new(0),
            committed: AtomicUsize::new(0),
            parts: [const { AtomicPtr::new(ptr::null_mut()) }; PARTS],
            units: AtomicUsize::new(0),
            mapped: [const { AtomicUsize::new(0) }; PARTS],
            foreign_end: AtomicUsize::new(0),
        }
    }

    /// The addresses of all parts, for a reader in another process.
    pub fn places(&self) -> RegionAddresses {
        RegionAddresses {
            start: self.part(UNITS).addr(),
            committed_at: (&raw const self.committed).addr(),
            keys: self.part(KEYS).addr(),
            map: self.part(MAP).addr(),
            runs: self.part(RUNS).addr(),
            spans: self.part(SPANS).addr(),
            slabs: self.part(SLABS).addr(),
            units: self.units(),
        }
    }

    /// Chooses addresses for a region, and commits its `slabs` slabs. Returns false if
    /// memory is short; the caller may try again. Only one thread may call this at a time.
    pub fn set_up(&self, os: &impl Os, slabs: usize) -> bool {
        let slab_bytes = slabs * size_of::<SlabMemory>();
        for attempt in 0..RANGE_ATTEMPTS_MAX {
            if self.units() == 0 && !self.choose(os, slab_bytes, attempt) {
                return false;
            }
            // Map the first unit too: a range that begins with a foreign mapping is rejected.
            let mapped = self.map(os, UNITS, UNIT).and_then(|()| self.map(os, SLABS, slab_bytes));
            match mapped.and_then(|()| self.map_entries(os, 1, 0..UNITS)) {
                Ok(()) => return true,
                Err(Refusal::Memory) => return false,
                Err(Refusal::Addresses) => self.forget(os),
            }
        }
        false
    }

    /// Chooses addresses for the largest region that fits. Returns false if not even the smallest
    /// does.
    fn choose(&self, os: &impl Os, slab_bytes: usize, attempt: u32) -> bool {
        let page = os.page_size();
        // Leave a quarter for other memory of the engine.
        let budget = (os.address_space() / 4 * 3).saturating_sub(slab_bytes);
        let mut units = (budget / Self::UNIT_COST).min(UNITS_MAX);
        loop {
            // Slabs follow the units and must be aligned.
            units -= units % (size_of::<SlabMemory>() / UNIT);
            if units * UNIT < REGION_BYTES_MIN {
                return false;
            }
            // An unused page behind each table makes it a mapping of its own: see
            // `telemetry/beacon.rs`.
            let tables = TABLES.map(|entry| (entry * units).next_multiple_of(page) + page);
            let total = units * UNIT + slab_bytes + tables.iter().sum::<usize>();
            if let Some(start) = os.addresses(total, REGION_ALIGN_BYTES, attempt) {
                self.carve(start.as_ptr(), units, slab_bytes, tables);
                return true;
            }
            units /= 2;
        }
    }

    /// Undoes [`Region::choose`], and unmaps the parts.
    fn forget(&self, os: &impl Os) {
        for part in 0..PARTS {
            let mapped = self.mapped[part].swap(0, Ordering::Relaxed);
            if mapped > 0 {
                // SAFETY: mapped just now, and no other thread knows of it.
                unsafe { os.decommit(self.part(part), mapped) };
            }
        }
        // SAFETY: the units are the first part. All parts are unmapped.
        unsafe { os.release(self.part(UNITS)) };
        self.units.store(0, Ordering::Relaxed);
    }

    /// Divides the chosen range into units, slabs and tables.
    fn carve(&self, start: *mut u8, units: usize, slab_bytes: usize, tables: [usize; 4]) {
        let mut next = start;
        let first = [(UNITS, units * UNIT), (SLABS, slab_bytes)];
        for (part, bytes) in first.into_iter().chain(tables.into_iter().enumerate()) {
            self.parts[part].store(next, Ordering::Relaxed);
            next = next.wrapping_add(bytes);
        }
        self.minus_start.store(start.addr().wrapping_neg(), Ordering::Relaxed);
        self.units.store(units, Ordering::Relaxed);
    }

    /// The address at which a part begins.
    #[inline(always)]
    fn part(&self, part: usize) -> *mut u8 {
        self.parts[part].load(Ordering::Relaxed)
    }

    /// The first slab. The others follow it.
    pub fn slabs(&self) -> *mut SlabMemory {
        self.part(SLABS).cast()
    }

    /// Length of the range in units.
    pub fn units(&self) -> usize {
        self.units.load(Ordering::Relaxed)
    }

    /// Bytes at the region's start whose table entries may be read. The memory may be used too,
    /// except in unmapped and foreign runs.
    #[inline(always)]
    pub fn committed(&self) -> usize {
        self.committed.load(Ordering::Acquire)
    }

    /// Bytes of table entries for `units` units.
    pub fn table_bytes(units: usize) -> usize {
        (Self::UNIT_COST - UNIT) * units
    }

    /// Makes at least the first `units` units usable. The caller holds the lock of the page heap.
    pub fn commit_up_to(&self, os: &impl Os, units: usize) -> Result<(), Refusal> {
        let committed = self.committed() / UNIT;
        if units < committed {
            return Ok(());
        }
        if units > self.units() {
            return Err(Refusal::Memory);
        }
        // One unit ahead stays unused at least, so that the region can be extended from there: see
        // `map`.
        let target = (units + COMMIT_UNITS).min(self.units());
        self.commit_to(os, target).or_else(|_| match units == committed {
            true => Ok(()),
            false => self.commit_to(os, units),
        })
    }

    fn commit_to(&self, os: &impl Os, units: usize) -> Result<(), Refusal> {
        let before = self.mapped[UNITS].load(Ordering::Relaxed);
        // Map units before their entries: if units are refused, entries are not needed.
        self.map(os, UNITS, units * UNIT)?;
        if let Err(refusal) = self.map_entries(os, units, 0..UNITS) {
            // Else the units would count against the process's limit, and serve no block.
            let (start, added) =
                (self.part(UNITS).wrapping_add(before), (units * UNIT).saturating_sub(before));
            // SAFETY: `map` has just committed these units, and no code uses them yet.
            if added > 0 && unsafe { os.decommit(start, added) } {
                self.mapped[UNITS].store(before, Ordering::Relaxed);
            }
            return Err(refusal);
        }
        self.committed.store(units * UNIT, Ordering::Release);
        Ok(())
    }

    fn map_entries(
        &self,
        os: &impl Os,
        units: usize,
        mut tables: Range<usize>,
    ) -> Result<(), Refusal> {
        let page = os.page_size();
        tables.try_for_each(|table| {
            self.map(os, table, (units * TABLES[table]).next_multiple_of(page))
        })
    }

    /// Maps the first `bytes` bytes of a part, unless they are mapped already.
    fn map(&self, os: &impl Os, part: usize, bytes: usize) -> Result<(), Refusal> {
        let mapped = self.mapped[part].load(Ordering::Relaxed);
        if bytes > mapped {
            let start = self.part(part).wrapping_add(mapped);
            let foreign_end = self.foreign_end.load(Ordering::Relaxed);
            let first = match part {
                UNITS => foreign_end * UNIT,
                SPANS => foreign_end * TABLES[SPANS],
                _ => 0,
            };
            // SAFETY: the range was chosen for this part and is not mapped yet. `extend` needs a
            // committed page before it: the part is mapped from `first` on, except units.
            unsafe {
                match os.commit(start, bytes - mapped) {
                    Err(Refusal::Memory)
                        if mapped > first
                            && (part != UNITS || self.can_extend(mapped / UNIT - 1))
                            && os.extend(start, bytes - mapped) => {}
                    result => result?,
                }
            }
            self.mapped[part].store(bytes, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Whether the region can be extended from this unit, the last that was mapped. Not from a unit
    /// in use: the program may have changed its mapping, or a gap be there. A unit that no run has
    /// ended at was never used, and its record is zero. A unit beyond the committed ones was not
    /// either, but its record may not be mapped: the kernel may have refused that.
    fn can_extend(&self, unit: usize) -> bool {
        if unit >= self.committed() / UNIT {
            return true;
        }
        // SAFETY: the entry of a committed unit is committed.
        let run = unsafe { *self.run(unit as UnitIndex) };
        run.units == 0 || matches!(run.state, RunState::Dirty | RunState::Clean)
    }

    /// Skips at least `units` units behind the committed ones, where a foreign mapping lies.
    /// Commits their table entries, except those of spans. Returns the skipped units, or `None` if
    /// memory or the range is exhausted. The caller holds the lock of the page heap.
    pub fn skip(&self, os: &impl Os, units: usize) -> Option<Range<UnitIndex>> {
        // The number of units after which an entry of the span table begins a page again.
        let granule_units = os.page_size() >> size_of::<Span>().trailing_zeros();
        let first = self.committed() / UNIT;
        let end = first.checked_add(units)?.next_multiple_of(granule_units);
        if end >= self.units() || self.map_entries(os, end, 0..SPANS).is_err() {
            return None;
        }
        self.mapped[SPANS].store(end * TABLES[SPANS], Ordering::Relaxed);
        self.mapped[UNITS].store(end * UNIT, Ordering::Relaxed);
        self.foreign_end.store(end, Ordering::Relaxed);
        self.committed.store(end * UNIT, Ordering::Release);
        Some(first as UnitIndex..end as UnitIndex)
    }

    /// Unmaps units; their contents are lost. Returns false if the kernel refuses.
    ///
    /// # Safety
    /// The units are mapped, and no thread uses them.
    pub unsafe fn unmap(&self, os: &impl Os, first: UnitIndex, units: u32) -> bool {
        // SAFETY: the caller guarantees that the units are mapped and not in use.
        unsafe { os.decommit(self.address(first), units as usize * UNIT) }
    }

    /// Undoes [`Region::unmap`]. The units read as zero.
    ///
    /// # Safety
    /// The units are unmapped. If `can_extend` is set, the unit before them is mapped and free.
    pub unsafe fn map_again(
        &self,
        os: &impl Os,
        first: UnitIndex,
        units: u32,
        can_extend: bool,
    ) -> Result<(), Refusal> {
        let (start, bytes) = (self.address(first), units as usize * UNIT);
        // SAFETY: the caller guarantees that the range is unmapped, and that the page before it is
        // committed where `can_extend` says so.
        unsafe {
            match os.commit(start, bytes) {
                Err(Refusal::Memory) if can_extend && os.extend(start, bytes) => Ok(()),
                result => result,
            }
        }
    }

    /// Purges the records of spans that would begin at these units, in whole OS pages. No span may
    /// begin there. The span table is by far the largest, and this pays off from some units on.
    pub fn purge_spans(&self, os: &impl Os, first: UnitIndex, units: u32) {
        if units < SPAN_ENTRIES_PURGED_UNITS_MIN {
            return;
        }
        let page = os.page_size();
        let at = |unit: u32| unit as usize * size_of::<Span>();
        let (begin, end) = (at(first).next_multiple_of(page), at(first + units) / page * page);
        if end > begin {
            // SAFETY: the range lies in the part of the table that is committed for these units. A
            // span that begins here later is set up anew, whatever its record holds.
            unsafe {
                let _ = os.purge(self.part(SPANS).add(begin), end - begin);
            }
        }
    }

    /// The offset of an address from the region's start. It is at or above [`Region::committed`] if
    /// the address does not lie in the region.
    #[inline(always)]
    pub fn offset(&self, address: *const u8) -> usize {
        address.addr().wrapping_add(self.minus_start.load(Ordering::Relaxed))
    }

    /// The offset of an address in the committed part of the region.
    #[inline(always)]
    pub fn committed_offset(&self, address: *const u8) -> Option<usize> {
        // In this order: a thread that sees committed bytes sees the region's start too.
        let committed = self.committed();
        let offset = self.offset(address);
        (offset < committed).then_some(offset)
    }

    /// The address of a committed unit.
    #[inline(always)]
    pub fn address(&self, unit: UnitIndex) -> *mut u8 {
        // SAFETY: callers pass only units of the region, so the sum stays within the range.
        unsafe { self.part(UNITS).add((unit as usize) << UNIT_SHIFT) }
    }

    /// The first unit, from `unit` on, whose address is a multiple of `align` units, a power of
    /// two.
    pub fn align_unit(&self, unit: UnitIndex, align: u32) -> Option<UnitIndex> {
        let start = self.part(UNITS).addr() / UNIT;
        let aligned = (start + unit as usize).checked_next_multiple_of(align as usize)?;
        UnitIndex::try_from(aligned - start).ok()
    }

    /// A unit's entry in a table.
    ///
    /// # Safety
    /// The unit's entry in this table is committed, and of this type.
    #[inline(always)]
    unsafe fn at<T>(&self, table: usize, unit: usize) -> *mut T {
        // SAFETY: the caller guarantees that the entry is committed.
        unsafe { self.part(table).cast::<T>().add(unit) }
    }

    /// The map's entry of a committed unit.
    #[inline(always)]
    pub fn entry(&self, unit: usize) -> MapEntry {
        debug_assert!(unit << UNIT_SHIFT < self.committed());
        // SAFETY: the entry of a committed unit is committed, and stays so.
        MapEntry::from_bits(unsafe { &*self.at::<AtomicU32>(MAP, unit) }.load(Ordering::Relaxed))
    }

    /// Walks the committed units of this range, and passes each run that was given up to foreign
    /// mappings in one step.
    pub fn units_in(&self, range: Range<usize>) -> UnitWalk<'_> {
        UnitWalk { region: self, next: range.start, end: range.end }
    }

    /// Sets the map's entry of a committed unit, and its key.
    pub fn set_entry(&self, unit: UnitIndex, entry: MapEntry) {
        // SAFETY: the entries of a committed unit are committed, and stay so.
        let (key, word) = unsafe {
            let unit = unit as usize;
            (&*self.at::<AtomicU64>(KEYS, unit), &*self.at::<AtomicU32>(MAP, unit))
        };
        key.store(key_at(unit, entry), Ordering::Relaxed);
        word.store(entry.to_bits(), Ordering::Relaxed);
    }

    /// Replaces the map's entry of a committed unit in which no span lies. False if it is another
    /// than `from`. The owner of a large block may do so without a lock: the page heap changes only
    /// entries of units in which no such block begins.
    pub fn change_entry(&self, unit: UnitIndex, from: MapEntry, to: MapEntry) -> bool {
        // SAFETY: the entry of a committed unit is committed, and stays so.
        let word = unsafe { &*self.at::<AtomicU32>(MAP, unit as usize) };
        word.compare_exchange(from.to_bits(), to.to_bits(), Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }

    /// The class of the small block at this address, if the block belongs to no heap and begins in
    /// the first unit of its span.
    #[inline(always)]
    pub fn class_at_first(&self, address: *const u8) -> Option<SizeClass> {
        let offset = self.committed_offset(address)?;
        // SAFETY: the entry of a committed unit is committed, and stays so.
        let key = unsafe { &*self.at::<AtomicU64>(KEYS, offset / UNIT) }.load(Ordering::Relaxed);
        // SAFETY: the table holds only zeros, at first, and keys that `set_entry` wrote. The region
        // begins at a multiple of a unit, so the remainder is the offset in the unit.
        unsafe { class_of_start(key, address.addr() % UNIT) }
    }

    /// As [`Region::class_at_first`], by the map, for a block in any unit of its span.
    pub fn class_at_later(&self, address: *const u8) -> Option<SizeClass> {
        let offset = self.committed_offset(address)?;
        let entry = self.entry(offset / UNIT);
        let class = SizeClass::from_index(entry.code())?;
        class.begins_at(entry.within_span(offset)).then_some(class)
    }

    /// The page heap's record of a committed unit.
    pub fn run(&self, unit: UnitIndex) -> *mut Run {
        // SAFETY: the entry of a committed unit is committed.
        unsafe { self.at(RUNS, unit as usize) }
    }

    /// Writes the record of a run, at its first and its last unit.
    ///
    /// # Safety
    /// The units are committed, and the caller holds the lock of the page heap.
    #[inline]
    pub unsafe fn set_run(&self, first: UnitIndex, run: Run) {
        // SAFETY: the units are committed, and the lock guards their records.
        unsafe {
            Run::replace(self.run(first), run);
            Run::replace(self.run(first + run.units - 1), run);
        }
    }

    /// The record of the span that begins at a committed unit.
    #[inline(always)]
    pub fn span(&self, unit: UnitIndex) -> *mut Span {
        // SAFETY: the entry of a committed unit is committed.
        unsafe { self.at(SPANS, unit as usize) }
    }
}
