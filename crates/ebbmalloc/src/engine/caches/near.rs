//! Keeps large blocks in near caches as programs free them, and hands them out again.

use crate::backend::page_map::MapEntry;
use crate::backend::region::UnitIndex;
use crate::backend::run::large_bytes;
use crate::engine::Engine;
use crate::engine::lookup::LargeBlock;
use crate::frontend::near_cache::{NearBlock, NearCache};
use crate::frontend::tuning::{NEAR_BLOCK_BYTES_MAX, NEAR_BYTES_MAX, NEAR_BYTES_MIN, NEAR_DIVISOR};
use crate::platform::os::Os;
use crate::platform::sync::Ordering;
use crate::size_class::{SMALL_MAX, UNIT};

impl<O: Os> Engine<O> {
    /// The near caches in use: as many as there are transfer caches.
    pub(crate) fn near_caches(&self) -> &[NearCache] {
        &self.near_caches[..self.setup().transfer_cache_count]
    }

    /// The near cache of this CPU, without rseq that of the thread. `None` if there is certainly
    /// one thread only: then the page heap is as near. Nor if free memory is to be purged at once.
    fn near_cache(&self) -> Option<&NearCache> {
        let caches = self.near_caches();
        if caches.is_empty()
            || self.os.is_single()
            || self.scavenger.purges_at_once.load(Ordering::Relaxed)
        {
            return None;
        }
        let nearest = self.front().cpu().unwrap_or_else(|| self.os.thread_token());
        caches.get(nearest % caches.len())
    }

    /// Takes a large block of `size` bytes at this alignment from the near cache. `None` if it has
    /// none. The block holds old contents.
    #[inline(never)]
    pub(crate) fn take_near(&self, size: usize, align: usize) -> Option<*mut u8> {
        let bytes = large_bytes(size, self.os.page_size());
        if !self.is_ready() || !(SMALL_MAX + 1..=NEAR_BLOCK_BYTES_MAX).contains(&bytes) {
            return None;
        }
        let block = self.near_cache()?.take(bytes, align)?;
        let (address, unit) = self.place_of(block);
        let entry = self.region.entry(unit as usize);
        self.region.set_entry(unit, entry.with_cached(false));
        self.count_large(bytes);
        Some(address)
    }

    /// Keeps a large block, which the program gives up, in the near cache. False if it goes to the
    /// page heap instead.
    #[inline(never)]
    pub(crate) fn keep_near(&self, address: *mut u8, block: &LargeBlock) -> bool {
        let bytes = self.large_size(block);
        if !(SMALL_MAX + 1..=NEAR_BLOCK_BYTES_MAX).contains(&bytes) {
            return false;
        }
        let Some(cache) = self.near_cache() else { return false };
        let block = NearBlock { address: address.addr(), bytes };
        let (_, unit) = self.place_of(block);
        let entry = self.region.entry(unit as usize);
        // As in `return_large`.
        let is_still = || {
            let now = self.large_block_of(self.region.offset(address), entry);
            now.is_some_and(|now| self.large_size(&now) == bytes)
        };
        if !entry.is_large()
            || !self.region.change_entry(unit, entry, entry.with_cached(true))
            || !is_still()
        {
            self.fault("double free", address, "free");
        }
        self.count_large_freed(bytes);
        let share = self.counters.large_bytes() / NEAR_DIVISOR / self.near_caches().len();
        let max_bytes = share.clamp(NEAR_BYTES_MIN, NEAR_BYTES_MAX);
        let mut removed = cache.put(block, max_bytes).or_else(|| cache.shed(max_bytes));
        while let Some(block) = removed {
            self.give_back(block);
            removed = cache.shed(max_bytes);
        }
        true
    }

    /// Gives the blocks of near caches back to the page heap: all of them, or the unused ones.
    /// Returns whether some stay.
    pub(crate) fn drain_near(&self, only_unused: bool) -> bool {
        for cache in self.near_caches() {
            let take = || if only_unused { cache.take_unused() } else { cache.take_oldest() };
            while let Some(block) = take() {
                self.give_back(block);
            }
        }
        only_unused && self.near_bytes() > 0
    }

    /// Empties near caches, because memory is short. False if they were empty.
    pub(crate) fn free_near(&self) -> bool {
        let any = self.near_bytes() > 0;
        self.drain_near(false);
        any
    }

    /// Bytes in near caches.
    pub(crate) fn near_bytes(&self) -> usize {
        self.near_caches().iter().map(NearCache::bytes).sum()
    }

    /// Returns a large block of no heap to the page heap. It lies in a near cache or not, as
    /// `cached` says. False if it does so no more.
    pub(crate) fn return_large(&self, block: LargeBlock, cached: bool) -> bool {
        match block {
            LargeBlock::Run(first, units) => {
                let entry = MapEntry::LARGE.with_cached(cached);
                // Another thread may have freed the block, and allocated another one there.
                let is_block = self.region.change_entry(first, entry, MapEntry::LARGE_FREED)
                    && self.units_of(first) == units;
                if is_block {
                    self.pages().free(first, units);
                }
                is_block
            }
            LargeBlock::Medium(pages) => self.pages().free_medium(pages, cached),
        }
    }

    fn give_back(&self, block: NearBlock) {
        let (address, unit) = self.place_of(block);
        // Up to the end the map says that the block is free.
        let entry = self.region.entry(unit as usize).with_cached(false);
        let found = self.large_block_of(self.region.offset(address), entry);
        if !found.is_some_and(|found| self.return_large(found, true)) {
            self.fail("damaged: a near cache holds no block");
        }
    }

    /// Where a block in a near cache begins: its address and unit.
    fn place_of(&self, block: NearBlock) -> (*mut u8, UnitIndex) {
        let address = self.region.address(0).with_addr(block.address);
        (address, (self.region.offset(address) / UNIT) as UnitIndex)
    }
}
