//! The region: the range of addresses that all blocks come from, and beside it the tables that
//! describe it, one entry a unit. Nothing is stored inside the blocks.
//!
//! The range is chosen at set-up, and nothing is mapped there: the host sees address space that is
//! in use, and no more. Units are committed (mapped) from the bottom up, and their table entries
//! with them, so an entry may be read wherever its unit is below what is committed. Other
//! mappings may come to lie in the range: the region goes on behind them (`docs/decisions/0031`).

use crate::backend::tuning::REGION_ATTEMPTS_MAX;
use core::ops::Range;
use core::ptr;
// Not `sync`'s, which loom may replace: the tables lie in raw memory.
use core::sync::atomic::{AtomicU32, AtomicU64, fence};

use crate::backend::page_map::{MapEntry, key_at};
use crate::backend::run::{Run, State};
use crate::backend::span::Span;
use crate::backend::tuning::{
    COMMIT_AHEAD_SHARE, COMMIT_UNITS_MAX, COMMIT_UNITS_MIN, REGION_ALIGN_BYTES, REGION_BYTES_MIN,
};
pub(crate) use crate::backend::units::UnitIndex;
use crate::frontend::slab::Slab;
use crate::platform::os::{Os, Refusal};
use crate::platform::sync::{AtomicPtr, AtomicUsize, Ordering};
use crate::size_class::{SizeClass, UNIT, UNIT_SHIFT, class_of_start};

/// The largest region, in units: sums of two numbers of units do not wrap.
pub(crate) const UNITS_MAX: usize = 1 << 30;

/// The range of addresses and its tables. Its fields are written once, when it is set up, but are
/// atomic: a wild pointer may be freed, and looked up here, at that very moment.
#[repr(C)]
pub struct Region {
    // What the hot path of `free` reads, which is to be in one cache line.
    /// The address of `start`, negative: to add to what is in a register already takes an instruction less than to subtract from
    /// it what was loaded.
    minus_start: AtomicUsize,
    keys: AtomicPtr<AtomicU64>,
    /// Bytes at the region's start whose table entries may be read. Whoever reads that some may finds the rest of the region
    /// set up.
    committed: AtomicUsize,
    // All else.
    map: AtomicPtr<AtomicU32>,
    runs: AtomicPtr<Run>,
    spans: AtomicPtr<Span>,
    slabs: AtomicPtr<Slab>,
    /// Units that there are addresses for.
    units: AtomicUsize,
    /// For each part: how many bytes at its beginning are mapped, or left to another mapping.
    mapped: [AtomicUsize; PARTS],
    /// The unit behind the last that was left to another mapping.
    others_end: AtomicUsize,
    start: AtomicPtr<u8>,
}

/// Addresses of a region's parts; a word that says how many bytes are committed; units that there are addresses for.
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

/// A walk of [`Region::units_in`].
pub(crate) struct UnitWalk<'a> {
    region: &'a Region,
    /// The unit that comes next; not below the end of the range once that is reached.
    pub next: usize,
    end: usize,
}

impl Iterator for UnitWalk<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let unit = (self.next < self.end).then_some(self.next)?;
        self.next += match self.region.entry(unit) {
            MapEntry::OTHERS => {
                fence(Ordering::Acquire);
                // SAFETY: `PageHeap` wrote the record before the entry, and changes neither.
                unsafe { (*self.region.run(unit as UnitIndex)).units as usize }
            }
            _ => 1,
        };
        Some(unit)
    }
}

/// A table beside the region: bytes for one unit's entry.
pub(crate) const TABLES: [usize; 4] =
    [size_of::<AtomicU64>(), size_of::<AtomicU32>(), size_of::<Run>(), size_of::<Span>()];

/// The parts of a region: the tables, the units themselves, the caches.
const PARTS: usize = TABLES.len() + 2;
const SPANS: usize = 3;
const UNITS: usize = 4;
const SLABS: usize = 5;

impl Region {
    /// How many bytes at the beginning the hot path of `free` reads.
    #[cfg(test)]
    pub const HOT_BYTES: usize = core::mem::offset_of!(Self, map);

    /// Bytes of a unit, and of its entries in the tables.
    pub const UNIT_COST: usize = UNIT + TABLES[0] + TABLES[1] + TABLES[2] + TABLES[3];

    /// A region that was not set up yet: no address lies in it.
    pub const fn unset() -> Self {
        Self {
            map: AtomicPtr::new(ptr::null_mut()),
            runs: AtomicPtr::new(ptr::null_mut()),
            spans: AtomicPtr::new(ptr::null_mut()),
            slabs: AtomicPtr::new(ptr::null_mut()),
            units: AtomicUsize::new(0),
            mapped: [const { AtomicUsize::new(0) }; PARTS],
            others_end: AtomicUsize::new(0),
            start: AtomicPtr::new(ptr::null_mut()),
            minus_start: AtomicUsize::new(0),
            keys: AtomicPtr::new(ptr::null_mut()),
            committed: AtomicUsize::new(0),
        }
    }

    /// Where everything lies, for a reader in another process.
    pub fn places(&self) -> RegionAddresses {
        RegionAddresses {
            start: self.start().addr(),
            committed_at: (&raw const self.committed).addr(),
            keys: self.keys.load(Ordering::Relaxed).addr(),
            map: self.map.load(Ordering::Relaxed).addr(),
            runs: self.runs.load(Ordering::Relaxed).addr(),
            spans: self.spans.load(Ordering::Relaxed).addr(),
            slabs: self.slabs().addr(),
            units: self.units(),
        }
    }

    /// Chooses addresses for a region with `slabs` caches, and commits the caches. False if memory is too short; may be called
    /// again then. One thread at a time.
    pub fn set_up(&self, os: &impl Os, slabs: usize) -> bool {
        let slab_bytes = slabs * size_of::<Slab>();
        for attempt in 0..REGION_ATTEMPTS_MAX {
            if self.units() == 0 && !self.choose(os, slab_bytes, attempt) {
                return false;
            }
            // The first unit too: a range that begins with another mapping is no good.
            let begun = self.map(os, UNITS, UNIT).and_then(|()| self.map(os, SLABS, slab_bytes));
            match begun.and_then(|()| self.map_entries(os, 1, 0..UNITS)) {
                Ok(()) => return true,
                Err(Refusal::Memory) => return false,
                Err(Refusal::Addresses) => self.forget(os),
            }
        }
        false
    }

    /// Chooses addresses for the largest region that fits. False if not even a small one does.
    fn choose(&self, os: &impl Os, slab_bytes: usize, attempt: u32) -> bool {
        let page = os.page_size();
        // A quarter is for what else the engine needs.
        let budget = (os.address_space() / 4 * 3).saturating_sub(slab_bytes);
        let mut units = (budget / Self::UNIT_COST).min(UNITS_MAX);
        loop {
            // The slabs come next and must be aligned.
            units -= units % (size_of::<Slab>() / UNIT);
            if units * UNIT < REGION_BYTES_MIN {
                return false;
            }
            // Behind each an unused page, so that each is a mapping of its own: `beacon.rs`.
            let tables = TABLES.map(|entry| (entry * units).next_multiple_of(page) + page);
            let total = units * UNIT + slab_bytes + tables.iter().sum::<usize>();
            if let Some(start) = os.addresses(total, REGION_ALIGN_BYTES, attempt) {
                self.carve(start.as_ptr(), units, slab_bytes, tables);
                return true;
            }
            units /= 2;
        }
    }

    /// Undoes [`Region::choose`], and what was mapped there.
    fn forget(&self, os: &impl Os) {
        for part in 0..PARTS {
            let mapped = self.mapped[part].swap(0, Ordering::Relaxed);
            if mapped > 0 {
                // SAFETY: mapped just now, and nobody knows of it.
                unsafe { os.decommit(self.part(part), mapped) };
            }
        }
        self.units.store(0, Ordering::Relaxed);
    }

    /// Divides what was chosen: units, caches, tables.
    fn carve(&self, start: *mut u8, units: usize, slab_bytes: usize, tables: [usize; 4]) {
        let mut next = start;
        let mut carve = |bytes: usize| {
            let part = next;
            next = next.wrapping_add(bytes);
            part
        };
        self.start.store(carve(units * UNIT), Ordering::Relaxed);
        self.minus_start.store(start.addr().wrapping_neg(), Ordering::Relaxed);
        self.slabs.store(carve(slab_bytes).cast(), Ordering::Relaxed);
        self.keys.store(carve(tables[0]).cast(), Ordering::Relaxed);
        self.map.store(carve(tables[1]).cast(), Ordering::Relaxed);
        self.runs.store(carve(tables[2]).cast(), Ordering::Relaxed);
        self.spans.store(carve(tables[3]).cast(), Ordering::Relaxed);
        self.units.store(units, Ordering::Relaxed);
    }

    #[inline(always)]
    fn start(&self) -> *mut u8 {
        self.start.load(Ordering::Relaxed)
    }

    /// The caches, one after the other.
    pub fn slabs(&self) -> *mut Slab {
        self.slabs.load(Ordering::Relaxed)
    }

    /// Units that there are addresses for.
    pub fn units(&self) -> usize {
        self.units.load(Ordering::Relaxed)
    }

    /// Bytes whose table entries may be read. All of them may be used that are in no run which is unmapped, or another's.
    #[inline(always)]
    pub fn committed(&self) -> usize {
        self.committed.load(Ordering::Acquire)
    }

    /// Bytes of table entries that go with `units` committed units.
    pub fn table_bytes(units: usize) -> usize {
        (Self::UNIT_COST - UNIT) * units
    }

    /// Makes at least the first `units` units usable. The caller holds the lock of the pages.
    pub fn commit_up_to(&self, os: &impl Os, units: usize) -> Result<(), Refusal> {
        let now = self.committed() / UNIT;
        if units <= now {
            return Ok(());
        }
        if units > self.units() {
            return Err(Refusal::Memory);
        }
        let step = (now / COMMIT_AHEAD_SHARE).clamp(COMMIT_UNITS_MIN, COMMIT_UNITS_MAX);
        let ahead = units.max((now + step).min(self.units()));
        self.commit_to(os, ahead).or_else(|_| self.commit_to(os, units))
    }

    fn commit_to(&self, os: &impl Os, units: usize) -> Result<(), Refusal> {
        // The units first: where they are refused, their entries are not needed.
        self.map(os, UNITS, units * UNIT)?;
        self.map_entries(os, units, 0..UNITS)?;
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

    /// Maps the first bytes of a part, as far as that is not done.
    fn map(&self, os: &impl Os, part: usize, bytes: usize) -> Result<(), Refusal> {
        let mapped = self.mapped[part].load(Ordering::Relaxed);
        if bytes > mapped {
            let start = self.part(part).wrapping_add(mapped);
            let others_end = self.others_end.load(Ordering::Relaxed);
            let first = match part {
                UNITS => others_end * UNIT,
                SPANS => others_end * TABLES[SPANS],
                _ => 0,
            };
            // SAFETY: chosen for this part, and not mapped yet; what is before is, from the first byte behind others on.
            unsafe {
                match os.commit(start, bytes - mapped) {
                    Err(Refusal::Memory)
                        if mapped > first
                            && (part != UNITS || self.is_mapped(mapped / UNIT - 1))
                            && os.extend(start, bytes - mapped) => {}
                    result => result?,
                }
            }
            self.mapped[part].store(bytes, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Whether the last committed unit is still mapped. If no run ends there, it was not used yet.
    fn is_mapped(&self, unit: usize) -> bool {
        // SAFETY: committed.
        let run = unsafe { *self.run(unit as UnitIndex) };
        !matches!(run.state, State::Unmapped | State::Foreign)
    }

    /// Where a part begins.
    fn part(&self, part: usize) -> *mut u8 {
        match part {
            0 => self.keys.load(Ordering::Relaxed).cast(),
            1 => self.map.load(Ordering::Relaxed).cast(),
            2 => self.runs.load(Ordering::Relaxed).cast(),
            SPANS => self.spans.load(Ordering::Relaxed).cast(),
            UNITS => self.start(),
            _ => self.slabs().cast(),
        }
    }

    /// Leaves `units` units or more behind the committed ones to another mapping that lies there, and commits their entries,
    /// but for those of spans. The units that are left, or `None` where memory or addresses end. The caller holds
    /// the lock of the pages.
    pub fn skip(&self, os: &impl Os, units: usize) -> Option<Range<UnitIndex>> {
        // Where a page of the table of spans begins.
        let granule = os.page_size() >> size_of::<Span>().trailing_zeros();
        let first = self.committed() / UNIT;
        let end = first.checked_add(units)?.next_multiple_of(granule);
        if end >= self.units() || self.map_entries(os, end, 0..SPANS).is_err() {
            return None;
        }
        self.mapped[SPANS].store(end * TABLES[SPANS], Ordering::Relaxed);
        self.mapped[UNITS].store(end * UNIT, Ordering::Relaxed);
        self.others_end.store(end, Ordering::Relaxed);
        self.committed.store(end * UNIT, Ordering::Release);
        Some(first as UnitIndex..end as UnitIndex)
    }

    /// Gives the addresses of units back to the kernel, and what is there. False if it refuses.
    ///
    /// # Safety
    /// Nobody uses the units, which are mapped.
    pub unsafe fn unmap(&self, os: &impl Os, first: UnitIndex, units: u32) -> bool {
        // SAFETY: the caller's.
        unsafe { os.decommit(self.address(first), units as usize * UNIT) }
    }

    /// Undoes [`Region::unmap`]; the units read as zero.
    ///
    /// # Safety
    /// The units were unmapped, and the one before was not, if so it is said.
    pub unsafe fn map_again(
        &self,
        os: &impl Os,
        first: UnitIndex,
        units: u32,
        before_is_mapped: bool,
    ) -> Result<(), Refusal> {
        let (start, bytes) = (self.address(first), units as usize * UNIT);
        // SAFETY: the caller's.
        unsafe {
            match os.commit(start, bytes) {
                Err(Refusal::Memory) if before_is_mapped && os.extend(start, bytes) => Ok(()),
                result => result,
            }
        }
    }

    /// Returns the records of spans to the kernel that begin at these units, as whole OS pages of them
    /// go; no span does. The largest table by far, and worth it from some units on.
    pub fn purge_spans(&self, os: &impl Os, first: UnitIndex, units: u32) {
        const WORTH: u32 = 64;
        if units < WORTH {
            return;
        }
        let page = os.page_size();
        let at = |unit: u32| unit as usize * size_of::<Span>();
        let (begin, end) = (at(first).next_multiple_of(page), at(first + units) / page * page);
        if end > begin {
            // SAFETY: inside the table, whose part for these units is committed. A span that begins here
            // again is set up anew, whatever its record holds.
            unsafe {
                let table = self.spans.load(Ordering::Relaxed).cast::<u8>();
                let _ = os.purge(table.add(begin), end - begin);
            }
        }
    }

    /// The offset of an address from the region's start; not below [`Region::committed`] where
    /// the address does not lie in the region.
    #[inline(always)]
    pub fn offset(&self, address: *const u8) -> usize {
        address.addr().wrapping_add(self.minus_start.load(Ordering::Relaxed))
    }

    /// The offset of an address that lies in what is committed.
    #[inline(always)]
    pub fn committed_offset(&self, address: *const u8) -> Option<usize> {
        // In this order: whoever sees that something is committed sees where.
        let committed = self.committed();
        let offset = self.offset(address);
        (offset < committed).then_some(offset)
    }

    /// The address of a unit that is committed.
    #[inline(always)]
    pub fn address(&self, unit: UnitIndex) -> *mut u8 {
        // SAFETY: units that are handed around lie in the region.
        unsafe { self.start().add((unit as usize) << UNIT_SHIFT) }
    }

    /// The first unit from `unit` on whose address is a multiple of `align` units, a power of two.
    pub fn align_unit(&self, unit: UnitIndex, align: u32) -> Option<UnitIndex> {
        let start = self.start().addr() / UNIT;
        let aligned = (start + unit as usize).checked_next_multiple_of(align as usize)?;
        UnitIndex::try_from(aligned - start).ok()
    }

    /// A table's entry for a unit.
    ///
    /// # Safety
    /// The unit is committed, and so is its entry.
    #[inline(always)]
    unsafe fn at<T>(&self, table: &AtomicPtr<T>, unit: usize) -> &T {
        // SAFETY: the caller's.
        unsafe { &*table.load(Ordering::Relaxed).add(unit) }
    }

    /// What the map says of a committed unit.
    #[inline(always)]
    pub fn entry(&self, unit: usize) -> MapEntry {
        debug_assert!(unit << UNIT_SHIFT < self.committed());
        // SAFETY: the entry of a committed unit is committed.
        MapEntry::from_bits(unsafe { self.at(&self.map, unit) }.load(Ordering::Relaxed))
    }

    /// Walks the committed units of this range, and passes a run that was left to other mappings in one step.
    pub fn units_in(&self, range: Range<usize>) -> UnitWalk<'_> {
        UnitWalk { region: self, next: range.start, end: range.end }
    }

    /// Enters what a committed unit is used for.
    pub fn set_entry(&self, unit: UnitIndex, entry: MapEntry) {
        // SAFETY: as for `entry`.
        unsafe {
            self.at(&self.keys, unit as usize).store(key_at(unit, entry), Ordering::Relaxed);
            self.at(&self.map, unit as usize).store(entry.to_bits(), Ordering::Relaxed);
        }
    }

    /// The class of the small block, of no heap, that begins at this address, if one does in the first unit of its span.
    #[inline(always)]
    pub fn class_at_first(&self, address: *const u8) -> Option<SizeClass> {
        let offset = self.committed_offset(address)?;
        // SAFETY: as for `entry`.
        let key = unsafe { self.at(&self.keys, offset / UNIT) }.load(Ordering::Relaxed);
        // SAFETY: `set_entry` writes no others; the table is of zeros before. The region begins at a multiple of a unit.
        unsafe { class_of_start(key, address.addr() % UNIT) }
    }

    /// The same in any unit, by the map: for what [`Region::class_at_first`] does not find.
    pub fn class_at_later(&self, address: *const u8) -> Option<SizeClass> {
        let offset = self.committed_offset(address)?;
        let entry = self.entry(offset / UNIT);
        let class = SizeClass::from_index(entry.code())?;
        class.begins_at(entry.within_span(offset)).then_some(class)
    }

    /// The page heap's record of a committed unit.
    pub fn run(&self, unit: UnitIndex) -> *mut Run {
        // SAFETY: the entry of a committed unit is committed.
        unsafe { self.runs.load(Ordering::Relaxed).add(unit as usize) }
    }

    /// The record of the span that begins at a committed unit.
    #[inline(always)]
    pub fn span(&self, unit: UnitIndex) -> *mut Span {
        // SAFETY: as above.
        unsafe { self.spans.load(Ordering::Relaxed).add(unit as usize) }
    }
}
