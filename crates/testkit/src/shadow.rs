//! The shadow model: the contents and extent of each live block.

use std::collections::BTreeMap;
use std::slice;

use ebbmalloc::internals::HeapId;

use crate::fake_os::is_zero;

/// A live block. All of its usable bytes are filled with its repeated tag.
#[derive(Debug)]
pub struct Block {
    /// Its address.
    pub start: *mut u8,
    /// The requested size.
    pub size: usize,
    /// The requested alignment.
    pub align: usize,
    /// Usable bytes.
    pub usable: usize,
    /// Its heap, if any.
    pub heap: Option<HeapId>,
    tag: [u8; TAG],
}

/// Bytes of a tag.
const TAG: usize = 8;

// SAFETY: the value stands for ownership of the block, which may pass to another thread.
unsafe impl Send for Block {}

impl Block {
    /// Takes over a block that the allocator has just handed out.
    ///
    /// # Panics
    /// If its alignment or usable size is less than requested.
    pub fn new(start: *mut u8, size: usize, align: usize, usable: usize) -> Self {
        assert!(start.addr().is_multiple_of(align.max(16)), "{start:p} is not aligned to {align}");
        assert!(usable >= size, "{usable} of {size} bytes usable at {start:p}");
        Self { start, size, align, usable, heap: None, tag: [0; TAG] }
    }

    /// Panics unless the requested bytes are zero.
    pub fn check_zero(&self) {
        // SAFETY: the block has at least the requested bytes.
        let zero = unsafe { is_zero(slice::from_raw_parts(self.start, self.size)) };
        assert!(zero, "{} bytes not zero: {self:?}", self.size);
    }

    /// Fills all usable bytes with a new tag.
    pub fn fill(&mut self, tag: u64) {
        self.tag = tag.to_le_bytes();
        // SAFETY: by the allocator's word, the block has these bytes. If not, Miri or a crash shows
        // it.
        let bytes = unsafe { slice::from_raw_parts_mut(self.start, self.usable) };
        let mut filled = bytes.len().min(TAG);
        bytes[..filled].copy_from_slice(&self.tag[..filled]);
        // Doubles the filled part, since Miri is slow per step.
        while filled < bytes.len() {
            let more = filled.min(bytes.len() - filled);
            bytes.copy_within(..more, filled);
            filled += more;
        }
    }

    /// Panics unless all usable bytes are as they were filled.
    pub fn check(&self) {
        self.check_tag(self.tag, self.usable);
    }

    /// Panics unless this block, just resized from `old`, has kept the contents that fit.
    pub fn check_kept(&self, old: &Self) {
        self.check_tag(old.tag, old.usable.min(self.size));
    }

    fn check_tag(&self, tag: [u8; TAG], length: usize) {
        // SAFETY: `length` is at most the block's usable size.
        let bytes = unsafe { slice::from_raw_parts(self.start, length) };
        let once = length.min(TAG);
        let kept = bytes[..once] == tag[..once] && bytes[once..] == bytes[..length - once];
        assert!(kept, "the first {length} bytes are not {tag:?}: {self:?}");
    }
}

/// The blocks that one worker holds.
#[derive(Default, Debug)]
pub struct Shadow {
    blocks: Vec<Block>,
    /// The end of each block's usable bytes, by its start.
    ranges: BTreeMap<usize, usize>,
}

impl Shadow {
    /// Adds a block.
    ///
    /// # Panics
    /// If it overlaps another one.
    pub fn insert(&mut self, block: Block) {
        let (start, end) = (block.start.addr(), block.start.addr() + block.usable);
        if let Some((&other, &other_end)) = self.ranges.range(..end).next_back() {
            assert!(other_end <= start, "{start:#x}..{end:#x} overlaps {other:#x}..{other_end:#x}");
        }
        self.ranges.insert(start, end);
        self.blocks.push(block);
    }

    /// Removes the block at `nth`, modulo their number. `None` if there is none.
    pub fn take(&mut self, nth: usize) -> Option<Block> {
        let index = nth.checked_rem(self.blocks.len())?;
        let block = self.blocks.swap_remove(index);
        self.ranges.remove(&block.start.addr());
        Some(block)
    }

    /// Checks and forgets the blocks of a heap.
    pub fn forget(&mut self, heap: HeapId) {
        let (gone, kept) = std::mem::take(&mut self.blocks)
            .into_iter()
            .partition::<Vec<_>, _>(|block| block.heap == Some(heap));
        self.blocks = kept;
        for block in gone {
            block.check();
            self.ranges.remove(&block.start.addr());
        }
    }

    /// The blocks.
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// Checks the contents of every block.
    pub fn check(&self) {
        self.blocks.iter().for_each(Block::check);
    }
}
