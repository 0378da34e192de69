//! Near caches: keep a few large blocks for the CPU that freed them, without rseq for the thread.
//!
//! Through the page heap, half of such blocks would come out on another CPU than the one whose
//! caches have their memory, and all threads would wait for its lock (decisions/0047).
//!
//! A cached block stays as the program left it: for the page heap it is in use, with its size. So a
//! request takes only a block with exactly its number of bytes. The page map tells that the block
//! is free.

use crate::frontend::tuning::NEAR_BLOCKS_MAX;
use crate::platform::sync::{Lock, const_fn};

/// A large block: its address, and the bytes that a program may use, whole OS pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NearBlock {
    pub address: usize,
    pub bytes: usize,
}

/// The near cache of a CPU, or of some. Starts a cache line. Threads that free or allocate only try
/// its lock; who holds it takes no other.
#[repr(align(64))]
pub(crate) struct NearCache {
    contents: Lock<NearBlocks>,
}

/// The blocks of a near cache, the oldest first.
pub(crate) struct NearBlocks {
    count: usize,
    bytes: usize,
    /// How many of the oldest were there at the last look ([`NearCache::take_unused`]).
    stayed: usize,
    blocks: [NearBlock; NEAR_BLOCKS_MAX],
}

impl NearBlocks {
    const fn new() -> Self {
        const NONE: NearBlock = NearBlock { address: 0, bytes: 0 };
        Self { count: 0, bytes: 0, stayed: 0, blocks: [NONE; NEAR_BLOCKS_MAX] }
    }

    /// The blocks, the oldest first.
    pub fn list(&self) -> &[NearBlock] {
        &self.blocks[..self.count]
    }

    fn remove(&mut self, nth: usize) -> Option<NearBlock> {
        let block = *self.list().get(nth)?;
        self.blocks.copy_within(nth + 1..self.count, nth);
        self.count -= 1;
        self.bytes -= block.bytes;
        self.stayed -= (nth < self.stayed) as usize;
        Some(block)
    }
}

impl NearCache {
    const_fn! {
        /// An empty one. All zero bytes, as are all initial values of an engine, so that files hold
        /// none.
        pub fn new() -> Self {
            Self { contents: Lock::new(NearBlocks::new()) }
        }
    }

    /// Puts a block into the cache, which may hold `max_bytes`. Returns a block that the cache has
    /// not, or not any more: the oldest one, or this one if it is too long, or where another thread
    /// works on the cache. [`NearCache::shed`] returns more.
    pub fn put(&self, block: NearBlock, max_bytes: usize) -> Option<NearBlock> {
        let contents = if block.bytes > max_bytes { None } else { self.contents.try_lock() };
        let Some(mut contents) = contents else { return Some(block) };
        let is_full = contents.count == NEAR_BLOCKS_MAX;
        let removed = if is_full { contents.remove(0) } else { None };
        let nth = contents.count;
        contents.blocks[nth] = block;
        contents.count += 1;
        contents.bytes += block.bytes;
        removed
    }

    /// Takes the oldest block if the cache holds more than `max_bytes`. `None` where another thread
    /// works on the cache.
    pub fn shed(&self, max_bytes: usize) -> Option<NearBlock> {
        let mut contents = self.contents.try_lock()?;
        if contents.bytes > max_bytes { contents.remove(0) } else { None }
    }

    /// Takes the oldest block.
    pub fn take_oldest(&self) -> Option<NearBlock> {
        self.contents.lock().remove(0)
    }

    /// Takes the newest block of this many bytes at this alignment. `None` if there is none, or
    /// where another thread works on the cache.
    pub fn take(&self, bytes: usize, align: usize) -> Option<NearBlock> {
        let mut contents = self.contents.try_lock()?;
        let fits = |block: &NearBlock| block.bytes == bytes && block.address.is_multiple_of(align);
        let nth = contents.list().iter().rposition(fits)?;
        contents.remove(nth)
    }

    /// Takes a block that was there at the last look too. `None` ends the look.
    pub fn take_unused(&self) -> Option<NearBlock> {
        let mut contents = self.contents.lock();
        if contents.stayed > 0 {
            return contents.remove(0);
        }
        contents.stayed = contents.count;
        None
    }

    /// How many bytes it holds.
    pub fn bytes(&self) -> usize {
        self.contents.lock().bytes
    }

    /// Locks the cache, for fork and for an audit.
    pub fn contents(&self) -> &Lock<NearBlocks> {
        &self.contents
    }
}

#[cfg(test)]
mod tests {
    use std::vec;
    use std::vec::Vec;

    use super::*;

    const MAX_BYTES: usize = 2 << 20;

    fn block(address: usize, bytes: usize) -> NearBlock {
        NearBlock { address, bytes }
    }

    /// Puts a block into the cache. Returns those that it gives up.
    fn put(cache: &NearCache, address: usize, bytes: usize) -> Vec<NearBlock> {
        let removed = cache.put(block(address, bytes), MAX_BYTES);
        removed.into_iter().chain(std::iter::from_fn(|| cache.shed(MAX_BYTES))).collect()
    }

    #[test]
    fn the_newest_block_of_that_length_comes_first() {
        let cache = NearCache::new();
        for (address, bytes) in [(1, 4096), (2, 8192), (3, 4096), (4, 8192)] {
            assert!(put(&cache, address, bytes).is_empty());
        }
        let taken = [4096, 4096, 4096, 8192].map(|bytes| cache.take(bytes, 1));
        assert_eq!(taken, [Some(block(3, 4096)), Some(block(1, 4096)), None, Some(block(4, 8192))]);
        assert_eq!(
            (cache.bytes(), cache.shed(0), cache.shed(0)),
            (8192, Some(block(2, 8192)), None)
        );
        assert_eq!(cache.bytes(), 0);
    }

    #[test]
    fn blocks_have_the_alignment_asked_for() {
        let cache = NearCache::new();
        put(&cache, 3 << 16, 4096);
        put(&cache, 5 << 12, 4096);
        assert_eq!(cache.take(4096, 1 << 16), Some(block(3 << 16, 4096)));
        assert_eq!(cache.take(4096, 1 << 16), None);
    }

    #[test]
    fn old_blocks_make_room() {
        let cache = NearCache::new();
        for address in 0..NEAR_BLOCKS_MAX {
            assert!(put(&cache, address, 4096).is_empty());
        }
        assert_eq!(put(&cache, 100, 4096), [block(0, 4096)]);
        assert_eq!(put(&cache, 101, MAX_BYTES).len(), NEAR_BLOCKS_MAX);
        assert_eq!(put(&cache, 102, MAX_BYTES + 1), [block(102, MAX_BYTES + 1)]);
        assert_eq!(cache.shed(0), Some(block(101, MAX_BYTES)));
    }

    #[test]
    fn where_another_thread_works_nothing_is_lost() {
        let cache = NearCache::new();
        put(&cache, 1, 4096);
        let working = cache.contents().lock();
        assert_eq!(cache.put(block(2, 4096), MAX_BYTES), Some(block(2, 4096)));
        assert_eq!(cache.take(4096, 1), None);
        drop(working);
        assert_eq!(cache.take(4096, 1), Some(block(1, 4096)));
    }

    #[test]
    fn unused_blocks_go_with_the_second_look() {
        let cache = NearCache::new();
        let unused = || std::iter::from_fn(|| cache.take_unused()).collect::<Vec<_>>();
        put(&cache, 1, 4096);
        put(&cache, 2, 8192);
        assert_eq!(unused(), []);
        // One of them is used all the time.
        for gone in [vec![block(1, 4096)], vec![], vec![]] {
            assert_eq!(cache.take(8192, 1), Some(block(2, 8192)));
            put(&cache, 2, 8192);
            assert_eq!(unused(), gone);
        }
        assert_eq!((unused(), unused()), (vec![block(2, 8192)], vec![]));
    }
}
