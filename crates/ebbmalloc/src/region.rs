//! The region: one reserved range of addresses that all blocks come from, and beside it the
//! tables that describe it, one entry a unit. Nothing is stored inside the blocks.
//!
//! Units are committed (made usable) from the bottom up, and their table entries with them, so
//! an entry may be read wherever its unit is committed.

use core::ptr;
// Not `sync`'s, which loom may replace: the tables lie in raw memory.
use core::sync::atomic::{AtomicU32, AtomicU64};

use crate::cache::Slab;
use crate::map::{MapEntry, key_at};
use crate::os::Os;
use crate::run::Run;
use crate::size_class::{SizeClass, UNIT, UNIT_SHIFT, class_of_start};
use crate::span::Span;
use crate::sync::{AtomicPtr, AtomicUsize, Ordering};
pub(crate) use crate::units::UnitIndex;

/// The largest region: what a 47-bit address space has plenty of.
const REGION_MAX: usize = 1 << 40;
/// The smallest that is worth starting with.
const REGION_MIN: usize = 1 << 22;
/// The region starts at a multiple of this, so that huge pages could fit.
const REGION_ALIGN: usize = 2 << 20;
/// The least that is committed at a time, in units.
const COMMIT_STEP_MIN: usize = 16;
/// The most that is committed ahead of need, in units.
const COMMIT_STEP_MAX: usize = 1024;

/// The reserved range and its tables. Its fields are written once, when it is set up, but are
/// atomic: a wild pointer may be freed, and looked up here, at that very moment.
#[repr(C)]
pub struct Region {
    map: AtomicPtr<AtomicU32>,
    runs: AtomicPtr<Run>,
    spans: AtomicPtr<Span>,
    slabs: AtomicPtr<Slab>,
    /// Units that are reserved.
    units: AtomicUsize,
    start: AtomicPtr<u8>,
    // What the hot path of `free` reads, which is to be in one cache line.
    /// The address of `start`, negative: to add to what is in a register already takes an instruction less than to subtract from
    /// it what was loaded.
    minus_start: AtomicUsize,
    keys: AtomicPtr<AtomicU64>,
    /// Bytes at the region's start that may be used. Whoever reads that some may finds the rest
    /// of the region set up.
    committed: AtomicUsize,
}

/// Addresses of a region's parts; a word that says how many bytes are committed; units reserved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Places {
    pub(crate) start: usize,
    pub(crate) committed_at: usize,
    pub(crate) keys: usize,
    pub(crate) map: usize,
    pub(crate) runs: usize,
    pub(crate) spans: usize,
    pub(crate) slabs: usize,
    pub(crate) units: usize,
}

/// A table beside the region: bytes for one unit's entry.
pub(crate) const TABLES: [usize; 4] =
    [size_of::<AtomicU64>(), size_of::<AtomicU32>(), size_of::<Run>(), size_of::<Span>()];

impl Region {
    /// Offset of what the hot path of `free` reads: all that follows.
    #[cfg(test)]
    pub const HOT_AT: usize = core::mem::offset_of!(Self, minus_start);

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
            start: AtomicPtr::new(ptr::null_mut()),
            minus_start: AtomicUsize::new(0),
            keys: AtomicPtr::new(ptr::null_mut()),
            committed: AtomicUsize::new(0),
        }
    }

    /// Where everything lies, for a reader in another process.
    pub fn places(&self) -> Places {
        Places {
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

    /// Reserves the largest region that fits, with `slabs` caches.
    /// False if not even a small one does; may be called again then. One thread at a time.
    pub fn set_up(&self, os: &impl Os, slabs: usize) -> bool {
        let page = os.page_size();
        let slab_bytes = slabs * size_of::<Slab>();
        if self.units() == 0 {
            // Leave a quarter of a limited address space to stacks, libraries, other mappings.
            let budget = (os.address_space_left() / 4 * 3).saturating_sub(slab_bytes);
            let mut units = (budget / Self::UNIT_COST).min(REGION_MAX / UNIT);
            while self.units() == 0 {
                // The slabs come next and must be aligned.
                units -= units % (size_of::<Slab>() / UNIT);
                if units * UNIT < REGION_MIN {
                    return false;
                }
                // Behind each a page out of reach, so that each is a mapping of its own: `beacon.rs`.
                let tables = TABLES.map(|entry| (entry * units).next_multiple_of(page) + page);
                let total = units * UNIT + slab_bytes + tables.iter().sum::<usize>();
                match os.reserve(total, REGION_ALIGN) {
                    Some(start) => self.carve(start.as_ptr(), units, slab_bytes, tables),
                    None => units /= 2,
                }
            }
        }
        // SAFETY: reserved, and not committed before unless that failed.
        slab_bytes == 0 || unsafe { os.commit(self.slabs().cast(), slab_bytes) }
    }

    /// Divides what was reserved: units, caches, tables.
    fn carve(&self, start: *mut u8, units: usize, slab_bytes: usize, tables: [usize; 4]) {
        let mut next = start;
        let mut carve = |bytes: usize| {
            let part = next;
            // SAFETY: the parts add up to what was reserved.
            next = unsafe { next.add(bytes) };
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

    /// Units that are reserved.
    pub fn units(&self) -> usize {
        self.units.load(Ordering::Relaxed)
    }

    /// Bytes that may be used.
    #[inline(always)]
    pub fn committed(&self) -> usize {
        self.committed.load(Ordering::Acquire)
    }

    /// Bytes of table entries that go with `units` committed units.
    pub fn table_bytes(units: usize) -> usize {
        (Self::UNIT_COST - UNIT) * units
    }

    /// Makes at least the first `units` units usable. False if the region or the memory that the
    /// kernel grants ends before. The caller holds the lock of the pages.
    pub fn commit_up_to(&self, os: &impl Os, units: usize) -> bool {
        let now = self.committed() / UNIT;
        if units <= now {
            return true;
        }
        if units > self.units() {
            return false;
        }
        let step = (now / 8).clamp(COMMIT_STEP_MIN, COMMIT_STEP_MAX);
        let ahead = units.max((now + step).min(self.units()));
        self.commit_range(os, now, ahead) || self.commit_range(os, now, units)
    }

    fn commit_range(&self, os: &impl Os, from: usize, to: usize) -> bool {
        let page = os.page_size();
        let starts = [
            self.keys.load(Ordering::Relaxed).cast::<u8>(),
            self.map.load(Ordering::Relaxed).cast(),
            self.runs.load(Ordering::Relaxed).cast(),
            self.spans.load(Ordering::Relaxed).cast(),
        ];
        let tables = starts.into_iter().zip(TABLES);
        let parts = tables.chain([(self.start(), UNIT)]);
        for (start, entry) in parts {
            let begin = (from * entry).next_multiple_of(page);
            let end = (to * entry).next_multiple_of(page);
            // SAFETY: inside the reservation. Committing a range again is harmless: it happens
            // only where an earlier call failed half-way and nothing was stored there.
            if end > begin && !unsafe { os.commit(start.add(begin), end - begin) } {
                return false;
            }
        }
        self.committed.store(to * UNIT, Ordering::Release);
        true
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
