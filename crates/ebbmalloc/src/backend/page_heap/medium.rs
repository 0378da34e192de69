//! Hands out OS pages to medium blocks: large blocks so short that whole units would waste much.
//!
//! A block of 65 KiB would take two units. So a medium block takes whole OS pages instead, and its
//! first and last unit may hold pages of other medium blocks. All units that it lies in are
//! *paged*: each is a run of its own in use, its entry in the page map says so, and its record has
//! a bit for each page in use.
//!
//! A medium block is longer than a unit. So at most one begins in each unit, whose record has the
//! block's size, and that block reaches beyond the unit. Where a gap of free pages begins in a
//! unit, no block does, and the record has the unit's place in a list of gaps (`gaps.rs`).

use core::ops::Range;

use super::Pages;
use super::large::Growth;
use crate::backend::huge_pages::Touch;
use crate::backend::page_map::MapEntry;
use crate::backend::run::{RunState, Tail};
use crate::backend::tuning::{GAP_REFUSALS_MAX, GAPS_TRIED_MAX};
use crate::backend::units::{PageRange, UnitIndex, UnitRange, Units, pages_for};
use crate::platform::os::Os;

impl<O: Os> Pages<'_, O> {
    /// Takes the pages of a medium block of `size` bytes. Also returns whether all of them read as
    /// zero. `None` as by [`Pages::alloc`].
    pub fn alloc_medium(&mut self, size: usize) -> Option<(PageRange, bool)> {
        let units = Units::for_bytes(size)?;
        let may_grow = self.best_dirty(Touch::Unknown, units.get()).is_none();
        let growth = if may_grow { Growth::IfEasy } else { Growth::No };
        let (block, zeroed) = self
            .take_from_gap(size, growth)
            .or_else(|| self.take_units(size, units))
            // In vain, it has purged free memory: now more of it may become resident behind a gap.
            .or_else(|| self.take_from_gap(size, Growth::IfEasy))
            .or_else(|| self.take_freed(size))?;
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

    /// Frees a medium block, which lies in a near cache or not, as `cached` says. False if it does
    /// so no more: another thread has freed it.
    pub fn free_medium(&mut self, block: PageRange, cached: bool) -> bool {
        let (first, entry) = self.entry_of(&block);
        let entry = entry.with_cached(cached);
        // SAFETY: the unit was in use, hence it is committed. The lock guards its record.
        let size = unsafe { (*self.region.run(first)).left as usize };
        let is_block = self.region.entry(first as usize) == entry
            && pages_for(block.start, size, self.os.page_size()) == block;
        if is_block {
            self.region.set_entry(first, entry.freed());
            self.heap.freed_ends.rotate_right(1);
            self.heap.freed_ends[0] = block.end;
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
        units.for_each(|unit| self.end_pages(unit));
        self.mark_in_use(first, length.get());
        true
    }

    /// Takes the pages of a medium block in the shortest gap that holds it.
    fn take_from_gap(&mut self, size: usize, growth: Growth) -> Option<(PageRange, bool)> {
        let (page, may_grow) = (self.os.page_size(), growth != Growth::No);
        let (count, mut refusals) = (size.div_ceil(page), 0);
        let mut candidate = self.heap.gaps.shortest(count);
        for _ in 0..GAPS_TRIED_MAX {
            let (unit, listed) = candidate?;
            candidate = self.heap.gaps.next(self.region, unit, listed);
            let (begin, gap) = (self.end_of_used(unit), self.gap_behind(unit));
            if gap != listed {
                self.list_gap(unit);
            }
            if gap < count {
                continue;
            }
            // Where growth is refused, a resident gap may do.
            let growth = if refusals < GAP_REFUSALS_MAX { growth } else { Growth::No };
            if growth != Growth::No || self.gap_at(begin, unit, count, false) >= count {
                let block = pages_for(begin, size, page);
                if let Some(zeroed) = self.take_pages(block.clone(), growth) {
                    return Some((block, zeroed));
                }
                refusals += 1;
            }
            if let Some(taken) = self.take_end_of_gap(begin + gap, size, may_grow) {
                return Some(taken);
            }
        }
        None
    }

    /// Takes the pages of a medium block at the end of a gap that ends at this page of a paged
    /// unit. These may be in fewer units than at its beginning. `None` if it does not end there, if
    /// it is too short, if its units are in several free runs, or if memory would have to be purged
    /// first. Unless it `may_grow`, takes only resident memory.
    fn take_end_of_gap(
        &mut self,
        end_page: usize,
        size: usize,
        may_grow: bool,
    ) -> Option<(PageRange, bool)> {
        let (end, page) = (self.unit_of(end_page), self.os.page_size());
        let block = pages_for(end_page.checked_sub(size.div_ceil(page))?, size, page);
        let first = self.unit_of(block.start);
        if !self.is_paged(end) || first == end || self.used(end) & self.mask(end, &block) != 0 {
            return None;
        }
        // SAFETY: the unit is below the frontier, hence committed, and a run ends there.
        let run = unsafe { *self.region.run(end - 1) };
        let units = end - first;
        let grown = match run.state {
            RunState::Dirty => 0,
            RunState::Clean if may_grow => units,
            _ => return None,
        };
        let resident = self.heap.counts.held() + grown as usize;
        if units > run.units
            || resident > self.heap.resident_units_max()
            || !self.heap.huge.allows(Touch::Unknown, first..end)
        {
            return None;
        }
        self.carve(end - run.units, first..end);
        self.count_use(units);
        self.count_refaulted(grown);
        (first..end).for_each(|unit| self.begin_pages(unit, grown > 0));
        self.purge_after_growth(grown);
        let zeroed = self.use_pages(block.clone());
        Some((block, zeroed))
    }

    /// Takes the pages of a medium block where one was freed: a program at its limit that frees
    /// blocks can have as many again. A gap that begins behind another kind of block is in no list.
    fn take_freed(&mut self, size: usize) -> Option<(PageRange, bool)> {
        let ends = self.heap.freed_ends;
        ends.into_iter().find_map(|end| self.take_end_of_gap(end, size, true))
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

    /// Makes a paged unit, whose pages are free or become a run's, a unit as others.
    fn end_pages(&mut self, unit: UnitIndex) {
        self.unlist_gap(unit);
        self.set_used(unit, 0);
        self.region.set_entry(unit, self.region.entry(unit as usize).with_paged(false));
    }

    /// Marks free pages of paged units as in use. Returns whether all of them read as zero.
    fn use_pages(&mut self, pages: PageRange) -> bool {
        let (mut zeroed, units) = (true, self.units_of(&pages));
        for unit in units.clone() {
            // SAFETY: a paged unit is committed, and the lock guards its record.
            zeroed &= unsafe { (*self.region.run(unit)).flags }.tail() == Tail::NotResident;
            self.set_used(unit, self.used(unit) | self.mask(unit, &pages));
        }
        // The gap began in the first unit, or in the one before it.
        if pages.start.is_multiple_of(self.unit_pages()) && self.is_paged(units.start - 1) {
            self.unlist_gap(units.start - 1);
        }
        self.unlist_gap(units.start);
        self.list_gap(units.end - 1);
        zeroed
    }

    /// Frees pages of paged units, and each unit that has none in use any more.
    fn release_pages(&mut self, pages: PageRange) {
        let units = self.units_of(&pages);
        let (first, mut free) = (units.start, units.end..units.end);
        for unit in units {
            let used = self.used(unit) & !self.mask(unit, &pages);
            self.set_tail(unit, Tail::New);
            self.set_used(unit, used);
            if used == 0 {
                // Only the first and the last unit may hold pages of other blocks.
                free = free.start.min(unit)..unit + 1;
                self.end_pages(unit);
            }
        }
        if !free.is_empty() {
            self.free(free.start, free.end - free.start);
        } else if self.used(first) & self.mask(first, &(0..pages.start)) != 0 {
            self.list_gap(first);
        } else {
            self.list_gap_before(first);
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
            self.break_in(unit..unit + 1);
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

    /// The bits of those of `pages` that lie in a unit.
    pub(super) fn mask(&self, unit: UnitIndex, pages: &PageRange) -> u16 {
        let (first, count) = (unit as usize * self.unit_pages(), self.unit_pages());
        let bits = |page: usize| (1u32 << page.saturating_sub(first).min(count)) - 1;
        (bits(pages.end) & !bits(pages.start)) as u16
    }

    /// Sets the pages in use of a paged unit.
    fn set_used(&mut self, unit: UnitIndex, used: u16) {
        // SAFETY: a paged unit is committed, and the lock guards its record.
        unsafe { (*self.region.run(unit)).asked_high = used };
    }
}
