//! Allocates and frees the small blocks that a heap profile samples, in the profile's own heap.

use core::ptr;

use crate::engine::Engine;
use crate::engine::lookup::HeapBlock;
use crate::platform::os::Os;
use crate::size_class::SizeClass;
use crate::telemetry::profile::table::New;

impl<O: Os> Engine<O> {
    /// Allocates a sampled block of this class. Null if the profile was switched off meanwhile, or
    /// memory is short: then an ordinary block serves.
    #[cold]
    #[inline(never)]
    pub(crate) fn alloc_profiled(&self, size: usize, class: SizeClass) -> *mut u8 {
        let gate = self.profile.gate();
        let heap = self.profile.heap();
        let granted = self.alloc_small_in(heap, class, 0);
        let Ok((block, _)) = granted else {
            self.skip_sample();
            return ptr::null_mut();
        };
        let shown = &self.profile.shown;
        let is_sampled = self.with_sample(|table, calls| {
            // From here on, sized frees look at addresses until this block is freed.
            let is_sampled = shown.gate.enter(&mut table.session, gate);
            if is_sampled {
                let new = New { address: block.addr(), bytes: size, calls, heap: None };
                table.insert(&self.os, shown, new);
            }
            is_sampled
        });
        if is_sampled {
            return block;
        }
        if let Some(found) = self.heap_block(block) {
            self.free_unchecked(found, "malloc");
        }
        ptr::null_mut()
    }

    /// Frees a block of the profile's heap.
    #[cold]
    #[inline(never)]
    pub(crate) fn free_profiled(&self, block: HeapBlock, operation: &str) {
        {
            let mut table = self.profile.table.lock();
            // Before the block is free: another thread may get it then, and record it.
            table.take(block.address.addr(), |heap| self.record_of(heap).profiled());
            let gate = &self.profile.shown.gate;
            gate.leave(&mut table.session, |paths| self.set_hot_paths(paths));
        }
        self.free_unchecked(block, operation);
    }

    /// The block of the profile's heap that begins at this address, if one does.
    #[inline]
    pub(crate) fn profiled_block(&self, block: *mut u8) -> Option<HeapBlock> {
        if self.profile.heap() == 0 {
            return None;
        }
        self.heap_block(block).filter(|found| self.profile.is_heap(found.heap))
    }
}
