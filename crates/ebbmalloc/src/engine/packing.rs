//! Packs blocks into fewer spans, for programs that move their blocks against fragmentation.
//!
//! Such a program asks for each block whether a new one would lie in a fuller span. If so, it
//! allocates that one, copies, and frees the old one. Both go past the caches: a cache would hand
//! the freed block out again, and keep its span from becoming idle.

use core::ptr;

use crate::backend::span::Order;
use crate::engine::Engine;
use crate::platform::os::Os;
use crate::platform::sync::Ordering;
use crate::size_class::SizeClass;

/// No program has as many addresses.
const ADDRESSES_MAX: usize = 1 << 56;

impl<O: Os> Engine<O> {
    /// Whether an address lies in this engine's memory.
    pub fn knows(&self, address: *mut u8) -> bool {
        self.region.committed_offset(address).is_some() || self.is_sampled(address)
    }

    /// Bytes that the program may use of a block of this size, if it is not sampled; 0 if no block
    /// can have it. `None` where only a block tells.
    pub fn usable_of_request(&self, size: usize, align: usize) -> Option<usize> {
        if self.all_in_heaps() {
            return None;
        }
        let usable = self.usable_for(size, SizeClass::of_aligned(size, align));
        Some(if usable.max(align) < ADDRESSES_MAX { usable } else { 0 })
    }

    /// Whether a scavenger may run.
    pub fn may_scavenge(&self) -> bool {
        !self.scavenger.is_off() && !self.scavenger.is_paused.load(Ordering::Relaxed)
    }

    /// Whether the program should replace this block by one of [`Engine::alloc_packed`], so that
    /// its span becomes idle. False for large blocks, those of heaps, sampled ones, and addresses
    /// of no block. Moves come to an end.
    pub fn would_pack(&self, block: *mut u8) -> bool {
        self.class_at(block).is_some_and(|class| {
            let spans = self.centrals[class.index()].spans().lock();
            spans.would_pack(&self.region, class, block)
        })
    }

    /// Allocates like [`Engine::alloc_aligned`], if possible from the fullest span with a free
    /// block, past the caches.
    pub fn alloc_packed(&self, size: usize, align: usize) -> *mut u8 {
        if let Some(class) = SizeClass::of_aligned(size, align)
            && self.is_ready()
            && !self.all_in_heaps()
            && self.profile.gate() == 0
        {
            let mut block = [ptr::null_mut()];
            let mut spans = self.centrals[class.index()].spans().lock();
            // Other code knows what to do when the heap grows.
            if spans.counts.free() > 0 {
                spans.claim(&self.memory(), class, Order::Lowest, &mut block);
                drop(spans);
                self.count_alloc(class.size());
                return block[0];
            }
        }
        self.alloc_aligned(size, align)
    }

    /// Frees like [`Engine::free`]; a small block goes past the caches to its span.
    ///
    /// # Safety
    /// As for [`Engine::free`].
    pub unsafe fn free_packed(&self, block: *mut u8) {
        let Some(class) = self.class_at(block) else {
            // SAFETY: the caller guarantees the same.
            return unsafe { self.free(block) };
        };
        if self.is_cached_slow(block, class) {
            self.fault("double free", block, "free");
        }
        self.count_free(class.size());
        self.release(class, &[block]);
        self.notify_scavenger();
    }
}
