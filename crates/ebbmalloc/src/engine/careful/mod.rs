//! Routes calls on blocks of heaps to the safety mode in force: off, check or harden.
//!
//! In check and harden mode all blocks are blocks of heaps, so every call comes here. In default
//! mode only calls on blocks of heaps that the program made do.

// Lowest first: each uses only modules above it in this list.
pub(crate) mod check;
pub(crate) mod harden;

use crate::backend::region::UnitIndex;
use crate::central::heap_record::HeapId;
use crate::engine::lookup::HeapBlock;
use crate::engine::{DefaultHeaps, Engine, SafetyMode};
use crate::platform::os::Os;

impl<O: Os> Engine<O> {
    /// Picks the default heap for a new block: one whose lock is free, the thread's own first. If
    /// none is free, the thread's own.
    #[inline]
    fn default_heap(&self) -> UnitIndex {
        let DefaultHeaps { first, count, units } = self.setup().default_heaps;
        if count == 1 {
            return first;
        }
        // Multiplied, since the tokens of threads may have a large common divisor.
        let spread = (self.os.thread_token() as u32).wrapping_mul(0x9e37_79b9) >> 16;
        let own = spread % count;
        let default_heaps = (own..count).chain(0..own).map(|nth| first + nth * units);
        let is_free = |&heap: &UnitIndex| self.record_of(heap).contents().is_free();
        default_heaps.into_iter().find(is_free).unwrap_or(first + own * units)
    }

    /// Allocates a block from a default heap. Returns also whether it reads as zero.
    pub(crate) fn alloc_in_default_heap(&self, size: usize, align: usize) -> (*mut u8, bool) {
        self.alloc_in(self.default_heap(), size, align, 0)
    }

    /// Allocates a block from a heap, in place of one of `replaced` bytes that the caller frees
    /// next. Returns also whether it reads as zero.
    #[inline(never)]
    pub(crate) fn alloc_in(
        &self,
        heap: UnitIndex,
        size: usize,
        align: usize,
        replaced: usize,
    ) -> (*mut u8, bool) {
        let granted = match self.safety_mode() {
            SafetyMode::Off => self.alloc_unchecked(heap, size, align, replaced),
            SafetyMode::Checked => self.alloc_checked(heap, size, align, replaced),
            SafetyMode::Hardened => self.alloc_hardened(heap, size, align, replaced),
        };
        let granted = self.or_null(granted, heap, size);
        self.profile_alloc(granted.0, size, heap);
        self.tell_pressure_if_due();
        granted
    }

    /// Frees a block of a heap.
    pub(crate) fn free_in_heap(&self, block: HeapBlock, operation: &str) {
        if self.profile.is_heap(block.heap) {
            return self.free_profiled(block, operation);
        }
        self.profile_free(block.address);
        match self.safety_mode() {
            SafetyMode::Off => self.free_unchecked(block, operation),
            SafetyMode::Checked => self.free_checked(block.address, None, operation),
            SafetyMode::Hardened => self.free_hardened(block, None, operation),
        }
    }

    /// Usable bytes of a heap's block.
    pub(crate) fn size_in_heap(&self, block: HeapBlock, operation: &str) -> usize {
        match self.safety_mode() {
            SafetyMode::Off => block.usable,
            SafetyMode::Checked => self.size_checked(block.address, operation),
            SafetyMode::Hardened => self.size_hardened(&block, operation),
        }
    }

    /// Resizes a block of any heap. It stays in that heap.
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
        let taken = self.profile_free(block.address);
        let new = match self.safety_mode() {
            // SAFETY: the caller fulfils the contract of `Engine::realloc`.
            SafetyMode::Off => unsafe { self.realloc_unchecked(block, size, align, operation) },
            SafetyMode::Checked => self.realloc_checked(block, size, align, operation),
            SafetyMode::Hardened => self.realloc_hardened(&block, size, align, operation),
        };
        self.profile_resized(taken, block.address, new, size, block.heap);
        new
    }

    /// Checks the blocks of a heap that is about to be deleted.
    pub(crate) fn before_delete(&self, id: HeapId, operation: &str) {
        self.profile_delete(id.unit());
        match self.safety_mode() {
            SafetyMode::Off => {}
            SafetyMode::Checked => self.delete_checked(id, operation),
            SafetyMode::Hardened => {
                let heap = id.unit();
                let emptied = self.empty_quarantine(&mut self.lock_heap(heap), heap);
                self.abort_on_mistake(emptied);
            }
        }
    }

    /// Does the checks that the safety mode has for the exit of the process.
    pub(crate) fn finish_safety_mode(&self) {
        match self.safety_mode() {
            SafetyMode::Off => {}
            SafetyMode::Checked => self.finish_check(),
            SafetyMode::Hardened => self.finish_harden(),
        }
    }
}
