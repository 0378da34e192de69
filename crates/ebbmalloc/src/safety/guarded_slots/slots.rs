//! The slots of sampled blocks. One reservation, apart from all other blocks: the records, then slots with a page out of reach before, between and
//! behind them. A slot that was freed is out of reach too, until those that were freed before it have been used again.

// Whoever gets an error reports it, and ends the program.
#![allow(clippy::result_large_err)]

use core::ptr;

use super::record::{Fault, NONE, Record, State, Trace};
use crate::platform::os::{Os, choose};
use crate::platform::random::Random;
use crate::safety::check_table::{CANARY, damage};
use crate::safety::tuning::{GUARDED_BYTES_MAX, GUARDED_SLOTS_MAX, GUARDED_SLOTS_MIN};

/// Slots and their records.
pub(crate) struct Slots {
    /// The first page out of reach.
    start: *mut u8,
    records: *mut Record,
    page: usize,
    slots: usize,
    /// Slots ever used: the first ones.
    used: usize,
    live: usize,
    /// Those to be used again, linked.
    oldest: u16,
    newest: u16,
    pub random: Random,
    /// Blocks ever sampled, and bytes in those that are live.
    pub sampled: u64,
    pub live_bytes: usize,
}

// SAFETY: the memory is the table's alone; pages of live slots are the program's, and looked at when it gives them up.
unsafe impl Send for Slots {}

impl Slots {
    pub const fn new() -> Self {
        Self {
            start: ptr::null_mut(),
            records: ptr::null_mut(),
            page: 0,
            slots: 0,
            used: 0,
            live: 0,
            oldest: 0,
            newest: 0,
            random: Random::new(0),
            sampled: 0,
            live_bytes: 0,
        }
    }

    /// Reserves. Address and bytes of the range that slots and what lies between them take; `None` if memory is short.
    pub fn set_up(&mut self, os: &impl Os) -> Option<(usize, usize)> {
        let page = os.page_size();
        let slots = (GUARDED_BYTES_MAX / page).clamp(GUARDED_SLOTS_MIN, GUARDED_SLOTS_MAX);
        let table = (slots * size_of::<Record>()).next_multiple_of(page);
        let bytes = (2 * slots + 1) * page;
        let records = choose(os, table + bytes, table)?.as_ptr();
        (self.page, self.slots, self.records) = (page, slots, records.cast());
        (self.oldest, self.newest) = (NONE, NONE);
        // SAFETY: in what was chosen.
        self.start = unsafe { records.add(table) };
        self.random = Random::new(os.random());
        Some((self.start.addr(), bytes))
    }

    /// Where the records lie, and the slots behind them.
    pub fn records_at(&self) -> usize {
        self.records.addr()
    }

    fn record(&self, slot: usize) -> *mut Record {
        debug_assert!(slot < self.slots);
        // SAFETY: there are as many.
        unsafe { self.records.add(slot) }
    }

    fn page_of(&self, slot: usize) -> *mut u8 {
        // SAFETY: in what was chosen.
        unsafe { self.start.add((2 * slot + 1) * self.page) }
    }

    /// Whether no block can be sampled until one is freed: a quarter of the slots is for those that were.
    pub fn is_full(&self) -> bool {
        self.live >= self.slots / 4 * 3
    }

    /// A block of `size` bytes, a page at most, at a multiple of `align`, a power of two up to a page; at either end of its
    /// page. Null if there is no slot, or memory is short.
    pub fn alloc(
        &mut self,
        os: &impl Os,
        (size, align): (usize, usize),
        counted: usize,
        by: &Trace,
    ) -> *mut u8 {
        if self.is_full() {
            return ptr::null_mut();
        }
        let fresh = self.used < self.slots;
        let slot = if fresh { self.used } else { self.oldest as usize };
        let page = self.page_of(slot);
        // SAFETY: nobody uses it.
        if unsafe { os.commit(page, self.page) }.is_err() {
            return ptr::null_mut();
        }
        match fresh {
            true => self.used += 1,
            // SAFETY: linked slots have records.
            false => self.oldest = unsafe { (*self.record(slot)).next },
        }
        let last = (self.page - size.max(1)) & !(align - 1);
        let offset = if self.random.next() & 1 == 0 { last } else { 0 };
        // SAFETY: the page is ours, and so is the record.
        unsafe {
            page.write_bytes(CANARY, offset);
            page.add(offset + size).write_bytes(CANARY, self.page - offset - size);
            let block = page.add(offset);
            self.record(slot).write(Record {
                state: State::Live,
                next: NONE,
                block: block.addr(),
                size,
                counted,
                allocated: *by,
                freed: Trace::NONE,
            });
            self.live += 1;
            self.sampled += 1;
            self.live_bytes += counted;
            block
        }
    }

    /// Takes a block back, freed with this size if with one. Its size, as it is counted; or what is wrong, and what is
    /// known.
    pub fn free(
        &mut self,
        os: &impl Os,
        block: *mut u8,
        given: Option<usize>,
        by: &Trace,
    ) -> Result<usize, (Fault, Option<Record>)> {
        let slot = self.judge(block, given)?;
        let (record, page) = (self.record(slot), self.page_of(slot));
        // SAFETY: the block is live, and the program gives it up.
        unsafe {
            ((*record).state, (*record).freed, (*record).next) = (State::Freed, *by, NONE);
            // Where that fails, mistakes are not seen, which is no harm.
            os.decommit(page, self.page);
            match self.newest {
                newest if self.oldest != NONE => (*self.record(newest as usize)).next = slot as u16,
                _ => self.oldest = slot as u16,
            }
            self.newest = slot as u16;
            self.live -= 1;
            self.live_bytes -= (*record).counted;
            Ok((*record).counted)
        }
    }

    /// Bytes of a live block that were asked for; or what is wrong.
    pub fn size(&self, block: *mut u8) -> Result<usize, (Fault, Option<Record>)> {
        let slot = self.judge(block, None)?;
        // SAFETY: there is one.
        Ok(unsafe { (*self.record(slot)).size })
    }

    /// The slot of a block that may be freed.
    fn judge(
        &self,
        block: *mut u8,
        given: Option<usize>,
    ) -> Result<usize, (Fault, Option<Record>)> {
        let (page, within) = self.place(block.addr());
        let Some(slot) = self.known(page / 2).filter(|_| page % 2 == 1) else {
            return Err((Fault::Unknown, None));
        };
        // SAFETY: there is one.
        let record = unsafe { *self.record(slot) };
        let fault = match given {
            _ if record.block != block.addr() => Fault::Interior,
            _ if record.state != State::Live => Fault::Twice,
            Some(given) if given != record.size => Fault::Size(given),
            _ => match self.damage(slot, within, record.size) {
                Some((at, found)) => Fault::Written(at as isize - within as isize, found),
                None => return Ok(slot),
            },
        };
        Err((fault, Some(record)))
    }

    /// The first byte of a live slot's page that was written outside of its block, and what is there.
    fn damage(&self, slot: usize, offset: usize, size: usize) -> Option<(usize, u8)> {
        let page = self.page_of(slot);
        // SAFETY: the page of a live block.
        unsafe {
            damage(page, offset + size, self.page, CANARY)
                .or_else(|| damage(page, 0, offset, CANARY))
        }
    }

    /// The block that an access to this address was meant for, more likely than others: that in the page, or the nearest
    /// where the page is none of a block.
    pub fn nearest(&self, address: usize) -> Option<Record> {
        let (page, _) = self.place(address);
        // SAFETY: slots that are known have records.
        let record = |slot: usize| unsafe { *self.record(slot) };
        if page % 2 == 1 {
            return self.known(page / 2).map(record);
        }
        let before = page.checked_sub(1).and_then(|page| self.known(page / 2)).map(record);
        let behind = self.known(page / 2).map(record);
        match (before, behind) {
            (Some(before), Some(behind)) => {
                let past = address - (before.block + before.size);
                Some(if past < behind.block - address { before } else { behind })
            }
            (before, behind) => before.or(behind),
        }
    }

    /// The page of an address in the range, and the offset in it.
    fn place(&self, address: usize) -> (usize, usize) {
        let offset = address - self.start.addr();
        (offset / self.page, offset % self.page)
    }

    fn known(&self, slot: usize) -> Option<usize> {
        (slot < self.used).then_some(slot)
    }
}
