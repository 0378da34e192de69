//! Where all blocks are blocks of heaps: in check mode, and where mistakes are made hard to exploit. Each call comes here and goes on
//! to what looks at blocks; so do the calls for blocks of heaps that programs make, in any mode.

// Lowest first.
pub(crate) mod heap_blocks;
pub(crate) mod check;
pub(crate) mod harden;

use crate::backend::region::UnitIndex;
use crate::central::heap_record::HeapId;
use crate::engine::lookup::HeapBlock;
use crate::engine::{Care, Engine, Homes};
use crate::platform::os::Os;

impl<O: Os> Engine<O> {
    /// A heap for a block that is to be no other's: one that nobody is in, if there is one, the thread's own first.
    #[inline]
    fn home(&self) -> UnitIndex {
        let Homes { first, count, units } = self.setup().homes;
        if count == 1 {
            return first;
        }
        // Multiplied, since threads' keys may have a large divisor in common.
        let key = (self.os.thread_key() as u32).wrapping_mul(0x9e37_79b9) >> 16;
        let own = key % count;
        let homes = (own..count).chain(0..own).map(|nth| first + nth * units);
        homes.into_iter().find(|&home| self.is_free(home)).unwrap_or(first + own * units)
    }

    /// A block of no heap that a program made, and whether it reads as zero.
    pub(crate) fn alloc_at_home(&self, size: usize, align: usize) -> (*mut u8, bool) {
        self.alloc_in(self.home(), size, align, 0)
    }

    /// A block of a heap, in place of one of `replaced` bytes that is freed next; and whether it reads as zero.
    #[inline(never)]
    pub(crate) fn alloc_in(
        &self,
        heap: UnitIndex,
        size: usize,
        align: usize,
        replaced: usize,
    ) -> (*mut u8, bool) {
        let granted = match self.care() {
            Care::None => self.alloc_unchecked(heap, size, align, replaced),
            Care::Checked => self.alloc_checked(heap, size, align, replaced),
            Care::Hardened => self.alloc_hardened(heap, size, align, replaced),
        };
        self.or_null(granted)
    }

    /// Frees a block of a heap.
    pub(crate) fn free_in_heap(&self, block: HeapBlock, operation: &str) {
        match self.care() {
            Care::None => self.free_unchecked(block, operation),
            Care::Checked => self.free_checked(block.address, None, operation),
            Care::Hardened => self.free_hardened(block, None, operation),
        }
    }

    /// Bytes of a heap's block that may be used.
    pub(crate) fn size_in_heap(&self, block: HeapBlock, operation: &str) -> usize {
        match self.care() {
            Care::None => block.usable,
            Care::Checked => self.size_checked(block.address, operation),
            Care::Hardened => self.size_hardened(&block, operation),
        }
    }

    /// Resizes a block of a heap, whichever that is; it stays that heap's.
    ///
    /// # Safety
    /// As for [`Engine::realloc`].
    #[inline(never)]
    pub(crate) unsafe fn realloc_in_heap(
        &self,
        block: HeapBlock,
        size: usize,
        align: usize,
        operation: &str,
    ) -> *mut u8 {
        match self.care() {
            // SAFETY: the caller's.
            Care::None => unsafe { self.realloc_unchecked(block, size, align, operation) },
            Care::Checked => self.realloc_checked(block, size, align, operation),
            Care::Hardened => self.realloc_hardened(&block, size, align, operation),
        }
    }

    /// Looks at the blocks of a heap that is about to be deleted.
    pub(crate) fn before_delete(&self, id: HeapId, operation: &str) {
        match self.care() {
            Care::None => {}
            Care::Checked => self.delete_checked(id, operation),
            Care::Hardened => {
                let heap = id.unit();
                let emptied = self.empty_quarantine(&mut self.contents_of(heap), heap);
                self.insist_on(emptied);
            }
        }
    }

    /// What is done when the process exits.
    pub(crate) fn finish_care(&self) {
        match self.care() {
            Care::None => {}
            Care::Checked => self.finish_check(),
            Care::Hardened => self.finish_harden(),
        }
    }
}
