//! The slots of sampled blocks: hands them out, checks blocks on return, and reuses slots late.
//!
//! They lie in one reservation, apart from all other blocks. It begins with the records. Slots of
//! one page follow, with guard pages before, between and behind them. The page of a freed slot is
//! inaccessible too, until all slots freed before it were used again.

// An error is reported, and ends the program.
#![allow(clippy::result_large_err)]

use core::ptr;

use super::record::{NONE, SlotFault, SlotRecord, SlotState, Trace};
use crate::platform::os::{Os, choose};
use crate::platform::random::Random;
use crate::safety::check_table::{CANARY, damage};
use crate::safety::tuning::{GUARDED_BYTES_MAX, GUARDED_SLOTS_MAX, GUARDED_SLOTS_MIN};

/// Slots and their records.
pub(crate) struct GuardedSlots {
    /// The first guard page.
    start: *mut u8,
    records: *mut SlotRecord,
    /// Bytes of an OS page.
    page: usize,
    slots: usize,
    /// Slots ever used: the first ones.
    used: usize,
    live: usize,
    /// Freed slots, linked from the oldest to the newest.
    oldest: u16,
    newest: u16,
    pub random: Random,
    /// Blocks ever sampled.
    pub sampled: u64,
    /// Counted bytes of live blocks.
    pub live_bytes: usize,
}

// SAFETY: the records are the table's alone. Pages of live slots are the program's; they are read
// when the program frees or resizes their blocks.
unsafe impl Send for GuardedSlots {}

impl GuardedSlots {
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

    /// Reserves the memory. Returns address and bytes of the slots and guard pages, or `None` if
    /// memory is short.
    pub fn set_up(&mut self, os: &impl Os) -> Option<(usize, usize)> {
        let page = os.page_size();
        let slots = (GUARDED_BYTES_MAX / page).clamp(GUARDED_SLOTS_MIN, GUARDED_SLOTS_MAX);
        let record_bytes = (slots * size_of::<SlotRecord>()).next_multiple_of(page);
        let bytes = (2 * slots + 1) * page;
        let records = choose(os, record_bytes + bytes, record_bytes)?.as_ptr();
        (self.page, self.slots, self.records) = (page, slots, records.cast());
        (self.oldest, self.newest) = (NONE, NONE);
        // SAFETY: the reservation has `record_bytes + bytes` bytes.
        self.start = unsafe { records.add(record_bytes) };
        self.random = Random::new(os.random());
        Some((self.start.addr(), bytes))
    }

    /// Address of the records, which is the start of the reservation.
    pub fn records_at(&self) -> usize {
        self.records.addr()
    }

    fn record(&self, slot: usize) -> *mut SlotRecord {
        debug_assert!(slot < self.slots);
        // SAFETY: each slot has a record.
        unsafe { self.records.add(slot) }
    }

    fn page_of(&self, slot: usize) -> *mut u8 {
        // SAFETY: pages of slots lie in the reservation.
        unsafe { self.start.add((2 * slot + 1) * self.page) }
    }

    /// Whether no block can be sampled until one is freed. A quarter of the slots is kept for
    /// freed blocks.
    pub fn is_full(&self) -> bool {
        self.live >= self.slots / 4 * 3
    }

    /// Allocates a block of `size` bytes at either end of a slot's page, and records `by`. Returns
    /// null if there is no slot, or memory is short.
    ///
    /// `size` is at most a page. `align` is a power of two, at most a page. Statistics count the
    /// block as `counted` bytes.
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
        // SAFETY: the slot is unused or freed, so nothing uses its page.
        if unsafe { os.commit(page, self.page) }.is_err() {
            return ptr::null_mut();
        }
        match fresh {
            true => self.used += 1,
            // SAFETY: a freed slot has a written record.
            false => self.oldest = unsafe { (*self.record(slot)).next },
        }
        let last = (self.page - size.max(1)) & !(align - 1);
        let offset = if self.random.next() & 1 == 0 { last } else { 0 };
        // SAFETY: page and record are ours. The block and the bytes around it lie in the page.
        unsafe {
            page.write_bytes(CANARY, offset);
            page.add(offset + size).write_bytes(CANARY, self.page - offset - size);
            let block = page.add(offset);
            self.record(slot).write(SlotRecord {
                state: SlotState::Live,
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

    /// Takes a block back, and records `by`. `given` is the size that the program freed it with,
    /// if it gave one.
    ///
    /// Returns the bytes that statistics count, or the mistake and the block's record.
    pub fn free(
        &mut self,
        os: &impl Os,
        block: *mut u8,
        given: Option<usize>,
        by: &Trace,
    ) -> Result<usize, (SlotFault, Option<SlotRecord>)> {
        let slot = self.check(block, given)?;
        let (record, page) = (self.record(slot), self.page_of(slot));
        // SAFETY: the block is live, and the program frees it. Linked slots have records.
        unsafe {
            ((*record).state, (*record).freed, (*record).next) = (SlotState::Freed, *by, NONE);
            // If this fails, later mistakes with the block are not seen, which does no harm.
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

    /// Returns the requested bytes of a live block, or the mistake and the block's record.
    pub fn size(&self, block: *mut u8) -> Result<usize, (SlotFault, Option<SlotRecord>)> {
        let slot = self.check(block, None)?;
        // SAFETY: a used slot has a written record.
        Ok(unsafe { (*self.record(slot)).size })
    }

    /// Returns the slot of a live block, or the mistake and the block's record.
    fn check(
        &self,
        block: *mut u8,
        given: Option<usize>,
    ) -> Result<usize, (SlotFault, Option<SlotRecord>)> {
        let (page, within) = self.page_and_offset(block.addr());
        let Some(slot) = self.used_slot(page / 2).filter(|_| page % 2 == 1) else {
            return Err((SlotFault::Unknown, None));
        };
        // SAFETY: a used slot has a written record.
        let record = unsafe { *self.record(slot) };
        let fault = match given {
            _ if record.block != block.addr() => SlotFault::Interior,
            _ if record.state != SlotState::Live => SlotFault::Twice,
            Some(given) if given != record.size => SlotFault::Size(given),
            _ => match self.damage(slot, within, record.size) {
                Some((at, found)) => SlotFault::Written(at as isize - within as isize, found),
                None => return Ok(slot),
            },
        };
        Err((fault, Some(record)))
    }

    /// Finds a byte of a live slot's page that was written outside of the block. Returns its
    /// offset in the page and its value; bytes behind the block come first.
    fn damage(&self, slot: usize, offset: usize, size: usize) -> Option<(usize, u8)> {
        let page = self.page_of(slot);
        // SAFETY: the page of a live block is accessible.
        unsafe {
            damage(page, offset + size, self.page, CANARY)
                .or_else(|| damage(page, 0, offset, CANARY))
        }
    }

    /// The block that an access to this address was probably meant for.
    ///
    /// In a slot's page it is the slot's block, in a guard page the nearest block.
    pub fn nearest(&self, address: usize) -> Option<SlotRecord> {
        let (page, _) = self.page_and_offset(address);
        // SAFETY: a used slot has a written record.
        let record = |slot: usize| unsafe { *self.record(slot) };
        if page % 2 == 1 {
            return self.used_slot(page / 2).map(record);
        }
        let before = page.checked_sub(1).and_then(|page| self.used_slot(page / 2)).map(record);
        let behind = self.used_slot(page / 2).map(record);
        match (before, behind) {
            (Some(before), Some(behind)) => {
                let past = address - (before.block + before.size);
                Some(if past < behind.block - address { before } else { behind })
            }
            (before, behind) => before.or(behind),
        }
    }

    /// Index of the page that an address among the slots lies in, and the address's offset in it.
    /// Pages with odd indices are slots.
    fn page_and_offset(&self, address: usize) -> (usize, usize) {
        let offset = address - self.start.addr();
        (offset / self.page, offset % self.page)
    }

    /// The slot, if it was ever used.
    fn used_slot(&self, slot: usize) -> Option<usize> {
        (slot < self.used).then_some(slot)
    }
}
