//! Hands out OS pages to medium blocks: large blocks so short that whole units would waste much.
//!
//! A block of 65 KiB would take two units. So a medium block takes whole OS pages instead, and its
//! first and last unit may hold pages of other medium blocks. All units that it lies in are
//! *paged*: each is a run of its own in use, its entry in the page map says so, and its record has
//! a bit for each page in use.
//!
//! A medium block is longer than a unit. So at most one begins in each unit, whose record has the
//! block's size, and that block reaches beyond the unit. A paged unit may be *open* if the page
//! after its last page in use is free, in it or behind it. Then no block begins in it, and its
//! record is in a list. A gap of free pages begins there, and may continue through free units into
//! the next paged one. A new block takes the shortest gap that holds it.

use core::ops::Range;

use super::Pages;
use super::large::Growth;
use crate::backend::huge_pages::{self, Touch};
use crate::backend::page_map::MapEntry;
use crate::backend::run::{RunState, Tail};
use crate::backend::tuning::GAPS_TRIED_MAX;
use crate::backend::units::{PageRange, UnitIndex, UnitRange, Units, pages_for};
use crate::platform::os::Os;
use crate::size_class::UNIT;

impl<O: Os> Pages<'_, O> {
    /// OS pages in a unit, at most 16.
    pub(super) fn unit_pages(&self) -> usize {
        UNIT / self.os.page_size()
    }

    /// Takes the pages of a medium block of `size` bytes. Also returns whether all of them read as
    /// zero. `None` as by [`Pages::alloc`].
    pub fn alloc_medium(&mut self, size: usize) -> Option<(PageRange, bool)> {
        let units = Units::for_bytes(size)?;
        let may_grow = self.best_dirty(Touch::Unknown, units.get()).is_none();
        let growth = if may_grow { Growth::IfEasy } else { Growth::No };
        let (block, zeroed) = self
            .take_from_gap(size, growth)
            .or_else(|| self.take_units(size, units))
            .or_else(|| self.take_from_any_gap(size))?;
        let (first, entry) = self.entry_of(&block);
        self.region.set_entry(first, entry);
        self.note_medium(first, size);
        Some((block, zeroed))
    }

    /// Takes the pages of a medium block in a new run of `length`, which holds `size` bytes.
    fn take_units(&mut self, size: usize, length: Units) -> Option<(PageRange, bool)> {
        let granted = self.alloc(length, Units::ONE)?;
        let run = granted.first..granted.first + length.get();
        run.for_each(|unit| self.begin_pages(unit, granted.zeroed));
        let begin = granted.first as usize * self.unit_pages();
        let block = pages_for(begin, size, self.os.page_size());
        self.use_pages(block.clone());
        Some((block, granted.zeroed))
    }

    /// The unit that a medium block begins in, and that unit's entry in the page map.
    fn entry_of(&self, block: &PageRange) -> (UnitIndex, MapEntry) {
        let begin = block.start % self.unit_pages();
        (self.unit_of(block.start), MapEntry::medium(begin as u32))
    }

    /// Records the size of the medium block that begins in this unit.
    fn note_medium(&mut self, first: UnitIndex, size: usize) {
        // SAFETY: the unit is in use, hence committed. The lock guards its record.
        unsafe {
            ((*self.region.run(first)).left, (*self.region.run(first)).right) = (size as u32, 0)
        }
    }

    /// Frees a medium block. False if it is none any more: another thread has freed it.
    pub fn free_medium(&mut self, block: PageRange) -> bool {
        let (first, entry) = self.entry_of(&block);
        let is_block = self.region.entry(first as usize) == entry;
        if is_block {
            self.region.set_entry(first, entry.freed());
            self.release_pages(block);
        }
        is_block
    }

    /// Resizes a medium block in place to hold `size` bytes, more than a unit. False if the pages
    /// behind it are not free.
    pub fn resize_medium(&mut self, block: PageRange, size: usize) -> bool {
        let end = pages_for(block.start, size, self.os.page_size()).end;
        if end < block.end {
            self.release_pages(end..block.end);
        } else if end > block.end && self.take_pages(block.end..end, Growth::MakeRoom).is_none() {
            return false;
        }
        self.note_medium(self.unit_of(block.start), size);
        true
    }

    /// Resizes a medium block in place to `length`, which is longer, and makes it a run of its own.
    /// False if it shares a unit with other blocks, or if the memory behind it is not free.
    pub fn extend_to_run(&mut self, block: PageRange, length: Units) -> bool {
        let units = self.units_of(&block);
        let (first, last) = (units.start, units.end - 1);
        let is_alone = block.start.is_multiple_of(self.unit_pages())
            && self.used(last) == self.mask(last, &block);
        let Some(run) = UnitRange::new(first, length).filter(|_| is_alone) else {
            return false;
        };
        if self.take_behind(units.end..run.end(), Growth::MakeRoom).is_none() {
            return false;
        }
        for unit in units {
            self.set_used(unit, 0);
            self.region.set_entry(unit, self.region.entry(unit as usize).with_paged(false));
        }
        self.mark_in_use(first, length.get());
        true
    }

    /// Takes the pages of a medium block in the shortest gap that holds it, among those that were
    /// opened last.
    fn take_from_gap(&mut self, size: usize, growth: Growth) -> Option<(PageRange, bool)> {
        let count = size.div_ceil(self.os.page_size());
        let (mut unit, mut shortest, mut best) = (self.heap.open_units, usize::MAX, None);
        for _ in 0..GAPS_TRIED_MAX {
            if unit == 0 || shortest == count {
                break;
            }
            // SAFETY: an open unit is in use, hence committed. The lock guards its record.
            let next = unsafe { (*self.region.run(unit)).right };
            let begin = self.end_of_used(unit);
            let gap = self.gap_at(begin, unit, 2 * count, growth);
            if gap < self.unit_pages() && growth != Growth::No {
                // Too short for any block until one of its neighbours is freed.
                self.set_open(unit, false);
            } else if gap >= count && gap < shortest {
                (shortest, best) = (gap, Some(begin));
            }
            unit = next;
        }
        let block = pages_for(best?, size, self.os.page_size());
        match self.take_pages(block.clone(), growth) {
            Some(zeroed) => Some((block, zeroed)),
            // A longer one may be resident.
            None if growth != Growth::No => self.take_from_gap(size, Growth::No),
            None => None,
        }
    }

    /// Where memory is short: takes the pages of a medium block in the first gap of the heap that
    /// holds it and ends in a paged unit, also in one that begins behind another kind of block.
    /// Looks at all runs.
    #[cold]
    fn take_from_any_gap(&mut self, size: usize) -> Option<(PageRange, bool)> {
        let page = self.os.page_size();
        let (mut unit, mut begin) = (1, self.unit_pages());
        let mut last_free = None;
        while unit < self.heap.frontier {
            // SAFETY: the unit is below the frontier, hence committed, and a run begins there.
            let run = unsafe { *self.region.run(unit) };
            let is_paged = self.is_paged(unit);
            if is_paged {
                let end =
                    unit as usize * self.unit_pages() + self.used(unit).trailing_zeros() as usize;
                let block = pages_for(end.saturating_sub(size.div_ceil(page)), size, page);
                if let Some(free) = last_free
                    && self.take_from_end(free, unit, &block)
                {
                    let zeroed = self.use_pages(block.clone());
                    return Some((block, zeroed));
                }
                let block = pages_for(begin, size, page);
                // Even in vain this may purge, and so join the free runs before the unit.
                if block.end <= end
                    && let Some(zeroed) = self.take_pages(block.clone(), Growth::IfEasy)
                {
                    return Some((block, zeroed));
                }
            }
            last_free = matches!(run.state, RunState::Dirty | RunState::Clean).then_some(unit);
            unit += run.units;
            if is_paged {
                begin = self.end_of_used(unit - 1);
            } else if matches!(run.state, RunState::InUse | RunState::Foreign) {
                begin = unit as usize * self.unit_pages();
            }
        }
        None
    }

    /// Takes the end of the free run at `free`, up to the paged unit `end`, for a block that begins
    /// in it. Takes fewer units than the beginning of the gap would. False if the block begins
    /// before the run, or if memory would have to be purged first.
    fn take_from_end(&mut self, free: UnitIndex, end: UnitIndex, block: &PageRange) -> bool {
        let first = self.unit_of(block.start);
        let (units, counts) = (end - first.min(end), &self.heap.counts);
        // SAFETY: the run is free, so its record is current.
        let is_clean = unsafe { (*self.region.run(free)).state } == RunState::Clean;
        let resident = counts.held() + if is_clean { units as usize } else { 0 };
        if first < free || units == 0 || resident > self.heap.resident_units_max() {
            return false;
        }
        self.carve(free, first..end);
        self.count_use(units);
        (first..end).for_each(|unit| self.begin_pages(unit, is_clean));
        true
    }

    /// The page after the last one in use of a paged unit.
    fn end_of_used(&self, unit: UnitIndex) -> usize {
        let used_bits = u16::BITS - self.used(unit).leading_zeros();
        unit as usize * self.unit_pages() + used_bits as usize
    }

    /// Pages in the gap from `begin` on, which is at the end of a paged unit's pages in use; of a
    /// gap of at least `enough`, some of them. Unless there may be growth, only resident ones.
    fn gap_at(&self, begin: usize, unit: UnitIndex, enough: usize, growth: Growth) -> usize {
        let may_grow = growth != Growth::No;
        let pages_before = |unit: UnitIndex| unit as usize * self.unit_pages() - begin;
        let mut next = unit + 1;
        while next < self.heap.frontier && pages_before(next) < enough {
            if self.is_paged(next) {
                return pages_before(next) + self.used(next).trailing_zeros() as usize;
            }
            // SAFETY: the unit is below the frontier, hence committed, and a run begins there.
            let run = unsafe { *self.region.run(next) };
            match run.state {
                RunState::Dirty => {}
                RunState::Clean | RunState::Unmapped if may_grow => {}
                _ => return pages_before(next),
            }
            next += run.units;
        }
        if next < self.heap.frontier || may_grow { enough } else { pages_before(next) }
    }

    /// Takes these pages, which follow a page in use, if all are free. Returns whether all of them
    /// read as zero.
    fn take_pages(&mut self, pages: PageRange, growth: Growth) -> Option<bool> {
        let units = self.units_of(&pages);
        let ends = [units.start, units.end - 1];
        if ends.iter().any(|&unit| self.used(unit) & self.mask(unit, &pages) != 0) {
            return None;
        }
        let [begin_is_paged, end_is_paged] = ends.map(|unit| self.is_paged(unit) as u32);
        let (next, end) = (units.start + begin_is_paged, units.end - end_is_paged);
        if next < end {
            let dirty = self.take_behind(next..end, growth)?;
            (next..end).for_each(|unit| self.begin_pages(unit, dirty == 0));
        }
        Some(self.use_pages(pages))
    }

    /// Makes a unit in use, whose record stands for it alone or is not current, a paged one without
    /// pages in use.
    fn begin_pages(&mut self, unit: UnitIndex, zeroed: bool) {
        self.mark_in_use(unit, 1);
        self.set_tail(unit, if zeroed { Tail::NotResident } else { Tail::New });
        self.region.set_entry(unit, self.region.entry(unit as usize).with_paged(true));
    }

    /// Marks free pages of paged units as in use. Returns whether all of them read as zero.
    fn use_pages(&mut self, pages: PageRange) -> bool {
        let mut zeroed = true;
        for unit in self.units_of(&pages) {
            // SAFETY: a paged unit is committed, and the lock guards its record.
            zeroed &= unsafe { (*self.region.run(unit)).flags }.tail() == Tail::NotResident;
            self.set_used(unit, self.used(unit) | self.mask(unit, &pages));
        }
        zeroed
    }

    /// Frees pages of paged units, and each unit that has none in use any more.
    fn release_pages(&mut self, pages: PageRange) {
        let units = self.units_of(&pages);
        let mut free = units.end..units.end;
        for unit in units {
            let used = self.used(unit) & !self.mask(unit, &pages);
            self.set_tail(unit, Tail::New);
            self.set_used(unit, used);
            if used == 0 {
                // Only the first and the last unit may hold pages of other blocks.
                free = free.start.min(unit)..unit + 1;
                self.region.set_entry(unit, self.region.entry(unit as usize).with_paged(false));
            }
        }
        // The gap may begin in the unit before.
        let first = self.unit_of(pages.start);
        let below = self.mask(first, &(0..pages.start));
        if self.used(first) & below == 0 && self.is_paged(first - 1) {
            self.set_open(first - 1, true);
        }
        if !free.is_empty() {
            self.free(free.start, free.end - free.start);
        }
    }

    /// Purges the free pages of a paged unit, once after each change. With `only_quiet`, not before
    /// two looks have found no change. Returns the bytes purged.
    pub fn purge_paged(&mut self, unit: UnitIndex, only_quiet: bool) -> usize {
        // SAFETY: a paged unit is committed, and the lock guards its record.
        match unsafe { (*self.region.run(unit)).flags }.tail() {
            Tail::NotResident | Tail::Refused => return 0,
            Tail::New if only_quiet => {
                self.set_tail(unit, Tail::Seen);
                return 0;
            }
            Tail::New | Tail::Seen => {}
        }
        let (used, page) = (self.used(unit), self.os.page_size());
        if (used.count_ones() as usize) < self.unit_pages() {
            huge_pages::break_in(self.region, &mut self.heap.counts, unit..unit + 1);
        }
        let (mut purged_bytes, mut tail, mut at) = (0, Tail::NotResident, 0);
        while at < self.unit_pages() {
            let rest = used >> at;
            let count =
                if rest == 0 { self.unit_pages() - at } else { rest.trailing_zeros() as usize };
            let bytes = count * page;
            // SAFETY: no block has these pages of the unit, which is committed.
            if count > 0
                && !unsafe { self.os.purge(self.region.address(unit).add(at * page), bytes) }
            {
                tail = Tail::Refused;
            } else {
                purged_bytes += bytes;
            }
            at += count + 1;
        }
        self.set_tail(unit, tail);
        purged_bytes
    }

    fn unit_of(&self, page: usize) -> UnitIndex {
        (page / self.unit_pages()) as UnitIndex
    }

    /// The units in which pages lie. A block's pages are below 2^32 units.
    pub(super) fn units_of(&self, pages: &PageRange) -> Range<UnitIndex> {
        self.unit_of(pages.start)..self.unit_of(pages.end - 1) + 1
    }

    pub(super) fn is_paged(&self, unit: UnitIndex) -> bool {
        unit < self.heap.frontier && self.region.entry(unit as usize).is_paged()
    }

    /// The bits of those of `pages` that lie in a unit.
    pub(super) fn mask(&self, unit: UnitIndex, pages: &PageRange) -> u16 {
        let (first, count) = (unit as usize * self.unit_pages(), self.unit_pages());
        let bits = |page: usize| (1u32 << page.saturating_sub(first).min(count)) - 1;
        (bits(pages.end) & !bits(pages.start)) as u16
    }

    /// The pages in use of a paged unit, a bit each; 0 for other units.
    pub(super) fn used(&self, unit: UnitIndex) -> u16 {
        // SAFETY: a paged unit is committed, and the lock guards its record.
        if self.is_paged(unit) { unsafe { (*self.region.run(unit)).asked_high } } else { 0 }
    }

    /// Sets the pages in use of a paged unit, and puts it in the list of open units or out of it.
    fn set_used(&mut self, unit: UnitIndex, used: u16) {
        let last = 1 << (self.unit_pages() - 1);
        // SAFETY: a paged unit is committed, and the lock guards its record.
        unsafe { (*self.region.run(unit)).asked_high = used };
        self.set_open(unit, used != 0 && used & last == 0);
    }

    /// Puts a paged unit in the list of open units or out of it.
    fn set_open(&mut self, unit: UnitIndex, is_open: bool) {
        let run = self.region.run(unit);
        // SAFETY: paged units are committed, and open ones are paged. The lock guards their
        // records. Owners of blocks may read sizes meanwhile, but no block begins in open units.
        unsafe {
            if (*run).flags.open() == is_open {
                return;
            }
            (*run).flags = (*run).flags.with_open(is_open);
            if is_open {
                ((*run).left, (*run).right) = (0, self.heap.open_units);
                if (*run).right != 0 {
                    (*self.region.run((*run).right)).left = unit;
                }
                self.heap.open_units = unit;
            } else {
                let (before, after) = ((*run).left, (*run).right);
                match before {
                    0 => self.heap.open_units = after,
                    _ => (*self.region.run(before)).right = after,
                }
                if after != 0 {
                    (*self.region.run(after)).left = before;
                }
            }
        }
    }
}
