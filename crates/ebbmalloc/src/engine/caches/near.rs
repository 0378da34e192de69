//! Keeps large blocks in near caches as programs free them, and hands them out again.

use crate::backend::region::UnitIndex;
use crate::backend::run::large_bytes;
use crate::engine::Engine;
use crate::engine::caches::drain::DrainScope;
use crate::engine::lookup::LargeBlock;
use crate::frontend::near_cache::NearBlock;
use crate::frontend::near_cache::{NearBlocks, NearCache};
use crate::frontend::tuning::NEAR_BLOCK_BYTES_MAX;
use crate::options::DelayChoice;
use crate::platform::os::Os;
use crate::size_class::{SMALL_MAX, UNIT};

impl<O: Os> Engine<O> {
    /// The near caches in use: as many as there are transfer caches.
    pub(crate) fn near_caches(&self) -> &[NearCache] {
        &self.near_caches[..self.setup().transfer_cache_count]
    }

    /// The near cache for a block of `bytes` bytes. `None` if it is too long, or if there is one
    /// thread only: then the page heap is as near. Nor if free memory is to be purged at once.
    fn near_cache(&self, bytes: usize) -> Option<&NearCache> {
        let caches = self.near_caches();
        if bytes > NEAR_BLOCK_BYTES_MAX
            || caches.is_empty()
            || self.os.is_single()
            || self.setup().options.purge_delay == DelayChoice::Ms(0)
        {
            return None;
        }
        let nearest = self.front().cpu().unwrap_or_else(|| self.os.thread_token());
        caches.get(nearest % caches.len())
    }

    /// Takes a large block of `size` bytes at this alignment from the near cache. Null if it has
    /// none. The block holds old contents.
    #[inline(never)]
    pub(crate) fn take_near(&self, size: usize, align: usize) -> Option<*mut u8> {
        if !self.is_ready() || size <= SMALL_MAX || align > self.os.page_size() {
            return None;
        }
        let bytes = large_bytes(size, self.os.page_size());
        let block = self.near_cache(bytes)?.take(bytes)?;
        let first = self.unit_at(block);
        let entry = self.region.entry(first as usize);
        self.region.set_entry(first, entry.with_cached(false));
        self.count_large(bytes);
        Some(self.address_at(block))
    }

    /// Keeps a large block, which the program gives up, in the near cache. False if it goes to the
    /// page heap instead.
    #[inline(never)]
    pub(crate) fn keep_near(&self, address: *mut u8, block: &LargeBlock) -> bool {
        let bytes = self.large_size(block);
        let Some(cache) = self.near_cache(bytes) else { return false };
        let block = NearBlock { address: address.addr(), bytes };
        let first = self.unit_at(block);
        let entry = self.region.entry(first as usize);
        // Another thread may have freed the block meanwhile.
        if !entry.is_large() || !self.region.change_entry(first, entry, entry.with_cached(true)) {
            self.fault("double free", address, "free");
        }
        self.count_large_freed(bytes);
        self.give_back(cache.put(block));
        true
    }

    /// Gives the blocks of near caches back to the page heap: all of them, or the unused ones.
    /// Returns whether some stay.
    pub(crate) fn drain_near(&self, scope: DrainScope) -> bool {
        let mut in_use = false;
        for cache in self.near_caches() {
            match scope {
                DrainScope::Classes(_) => {}
                DrainScope::All => self.give_back(cache.take_all()),
                DrainScope::Unused => self.give_back(cache.take_unused()),
            }
            in_use |= cache.bytes() > 0;
        }
        in_use
    }

    /// Bytes in near caches.
    pub(crate) fn near_bytes(&self) -> usize {
        self.near_caches().iter().map(NearCache::bytes).sum()
    }

    fn give_back(&self, blocks: NearBlocks) {
        for &block in blocks.list() {
            let first = self.unit_at(block);
            let entry = self.region.entry(first as usize);
            self.region.set_entry(first, entry.with_cached(false));
            if let Some(found) = self.large_block(self.address_at(block)) {
                self.return_large(found);
            }
        }
    }

    fn unit_at(&self, block: NearBlock) -> UnitIndex {
        (self.region.offset(self.address_at(block)) / UNIT) as UnitIndex
    }

    fn address_at(&self, block: NearBlock) -> *mut u8 {
        self.region.address(0).with_addr(block.address)
    }
}
