//! Resizes blocks: in place, by moving their pages, or by a copy to a new block.

use core::ptr;

use crate::backend::units::Units;
use crate::engine::Engine;
use crate::engine::lookup::LargeBlock;
use crate::options::PROFILING;
use crate::platform::os::{Os, copy};
use crate::size_class::{MIN_ALIGN, SizeClass};

/// Whether a large block is aligned as a request asks. A small one is if its class is that of the
/// size and the alignment.
fn is_aligned(block: *mut u8, align: usize) -> bool {
    align <= MIN_ALIGN || block.addr().is_multiple_of(align)
}

impl<O: Os> Engine<O> {
    /// Resizes a block in place; its contents stay up to the smaller size. False, and nothing
    /// happens, if the block has no room for `size` bytes, or `size` has another size class.
    ///
    /// # Safety
    /// The program does not use the bytes beyond `size` any more. `align` is that of the request
    /// for the block.
    pub unsafe fn resize(&self, block: *mut u8, size: usize, align: usize) -> bool {
        !self.resize_or_move(block, size, align, false).is_null()
    }

    /// Resizes a block without copying: in place, or by moving its pages. Null, and nothing
    /// happens, where that is not possible.
    ///
    /// # Safety
    /// As for [`Engine::resize`]; if the block has moved, the program does not use its old address.
    pub unsafe fn remap(&self, block: *mut u8, size: usize, align: usize) -> *mut u8 {
        self.resize_or_move(block, size, align, true)
    }

    fn resize_or_move(&self, block: *mut u8, size: usize, align: usize, may_move: bool) -> *mut u8 {
        let block_if = |resized: bool| if resized { block } else { ptr::null_mut() };
        let class = SizeClass::of_aligned(size, align);
        if let Some(old) = self.class_at(block) {
            // A profile counts a block that is resized as a new one, which may have to move.
            return block_if(Some(old) == class && self.profile.gate() == 0);
        }
        if let Some(found) = self.heap_block(block) {
            if self.profile.is_heap(found.heap) {
                return ptr::null_mut();
            }
            if self.all_in_heaps() {
                self.size_in_heap(found, "resize");
                return ptr::null_mut();
            }
            let units = self.units_of(found.first);
            let fits = || is_aligned(block, align) && Units::for_bytes(size) == Units::new(units);
            let resized = class == found.class && (class.is_some() || fits());
            if resized {
                let taken = self.profile_free(block);
                self.profile_resized(taken, block, block, size, found.heap);
            }
            return block_if(resized);
        }
        if self.is_sampled(block) {
            self.size_sampled(block, "resize");
            return ptr::null_mut();
        }
        let found = self.large_at(block, "resize");
        if class.is_some() {
            return ptr::null_mut();
        }
        self.resize_or_move_large(block, &found, size, align, may_move)
    }

    /// Resizes a block, in place where that is possible; its contents stay up to the smaller size.
    /// Null if memory is short; then the block stays as it was.
    ///
    /// # Safety
    /// As for [`Engine::free`], except where the result is null. `align` is a power of two.
    pub unsafe fn realloc(&self, block: *mut u8, size: usize, align: usize) -> *mut u8 {
        let class = SizeClass::of_aligned(size, align);
        let old_size = match self.class_at(block) {
            Some(old) if Some(old) == class => return self.realloc_in_class(block, size, old),
            Some(old) => old.size(),
            // A sampled block always moves, so that a use of the old address faults.
            None if self.is_sampled(block) => self.size_sampled(block, "realloc"),
            None => {
                match self.heap_block(block) {
                    // A block of the profile's heap always moves, and mostly out of that heap.
                    Some(found) if self.profile.is_heap(found.heap) => found.usable,
                    // SAFETY: the caller guarantees the same for the block.
                    Some(found) => unsafe {
                        return self.realloc_in_heap(found, size, align, "realloc");
                    },
                    None => {
                        let found = self.large_at(block, "realloc");
                        if class.is_none() && is_aligned(block, align) {
                            let new = self.resize_or_move_large(block, &found, size, align, true);
                            if !new.is_null() {
                                return new;
                            }
                        }
                        self.large_size(&found)
                    }
                }
            }
        };
        let new = self.alloc_aligned(size, align);
        if !new.is_null() {
            // SAFETY: both blocks have at least that many bytes, and are distinct. The caller gives
            // the old one up.
            unsafe {
                copy(block, new, old_size.min(size));
                self.free(block);
            }
        }
        new
    }

    /// Resizes a large block to another large size, without copying. Null if that is not possible.
    fn resize_or_move_large(
        &self,
        block: *mut u8,
        found: &LargeBlock,
        size: usize,
        align: usize,
        may_move: bool,
    ) -> *mut u8 {
        let taken = self.profile_free(block);
        let resize = || match found {
            LargeBlock::Run(first, units) => self.resize_large(*first, *units, size),
            LargeBlock::Medium(pages) => self.resize_medium(pages.clone(), size),
        };
        let resized = is_aligned(block, align)
            && (resize() || self.pages().is_at_limit && self.free_near() && resize());
        let new = match found {
            _ if resized => {
                self.notify_scavenger();
                block
            }
            LargeBlock::Run(first, units) if may_move => {
                self.move_large((*first, *units), size, align)
            }
            _ => ptr::null_mut(),
        };
        self.profile_resized(taken, block, new, size, 0);
        self.tell_pressure_if_due();
        new
    }

    /// Resizes a small block to a size of the same class. It stays where it is, unless a profile
    /// is to sample it.
    #[inline(always)]
    fn realloc_in_class(&self, block: *mut u8, size: usize, class: SizeClass) -> *mut u8 {
        match self.base_if_open(&self.hot_area) {
            // SAFETY: set-up writes the base before it publishes `hot_area`. Slabs of virtual CPUs
            // have marks.
            Some(base) => match unsafe { base.slab().is_some_and(|slab| slab.holds(class, block)) }
            {
                false => block,
                true => self.fault("double free", block, "realloc"),
            },
            None => self.realloc_in_class_slow(block, size, class),
        }
    }

    #[inline(never)]
    fn realloc_in_class_slow(&self, block: *mut u8, size: usize, class: SizeClass) -> *mut u8 {
        // True is certain; false may be wrong, since this looks only where it takes no search.
        if self.is_cached_slow(block, class) {
            self.fault("double free", block, "realloc");
        }
        if !PROFILING {
            return block;
        }
        let gate = self.profile.gate();
        if gate == 0 || !self.is_sample_due(gate, size) {
            return block;
        }
        let sampled = self.alloc_profiled(size, class);
        if sampled.is_null() {
            return block;
        }
        // SAFETY: both blocks have the bytes of the class, and are distinct. The program gives the
        // old one up.
        unsafe {
            copy(block, sampled, class.size());
            self.free(block);
        }
        sampled
    }
}
