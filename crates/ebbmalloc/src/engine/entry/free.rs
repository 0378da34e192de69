//! Frees blocks, with or without the size that the program gives.

use core::sync::atomic::Ordering;

use crate::backend::units::Units;
use crate::engine::Engine;
use crate::engine::tuning::BURYING_BLOCKS;
use crate::frontend::per_thread::Ready;
use crate::frontend::rseq;
use crate::options::PROFILING;
use crate::platform::os::Os;
use crate::size_class::{MIN_ALIGN, SizeClass, UNIT};

impl<O: Os> Engine<O> {
    /// Frees a block. Aborts the program if no block begins at the address.
    ///
    /// # Safety
    /// The program does not use the block any more.
    #[inline(always)]
    pub unsafe fn free(&self, block: *mut u8) {
        match self.region.class_at_first(block) {
            Some(class) => {
                // SAFETY: set-up writes the base before any block exists. The caller gives the
                // block up.
                if unsafe { rseq::push(self.base_to_free(), class, block) } {
                    return;
                }
                self.free_small_by_thread::<false>(block, 0, class.index());
            }
            None => self.free_slow(block, "free"),
        }
    }

    /// Frees a block of a known size, without a look-up in the page map if it is small. Debug
    /// builds look it up, and abort the program where no block of that size class begins
    /// (decisions/0010).
    ///
    /// A size of another size class aborts the program where the check costs nothing: if it is a
    /// large one, if the block does not go to the cache, and always while the engine counts
    /// operations.
    ///
    /// # Safety
    /// As for [`Engine::free`]; `size` and `align` are those of the last request for the block.
    #[inline(always)]
    pub unsafe fn free_sized(&self, block: *mut u8, size: usize, align: usize) {
        if align > MIN_ALIGN {
            // SAFETY: the caller guarantees what `free_over_aligned` demands: the same.
            return unsafe { self.free_over_aligned(block, size, align) };
        }
        // SAFETY: as the caller guarantees; the class is that of the size.
        unsafe { self.free_as(block, size, SizeClass::of(size)) }
    }

    /// Out of line, like [`Engine::alloc_over_aligned`].
    ///
    /// # Safety
    /// As for [`Engine::free_sized`].
    #[inline(never)]
    unsafe fn free_over_aligned(&self, block: *mut u8, size: usize, align: usize) {
        // SAFETY: as the caller guarantees; the class is that of the size.
        unsafe { self.free_as(block, size, SizeClass::of_aligned(size, align)) }
    }

    /// Frees a block by its size class, `None` for a large block.
    ///
    /// # Safety
    /// As for [`Engine::free_sized`]; the class is that of the requested size and alignment.
    #[inline(always)]
    unsafe fn free_as(&self, block: *mut u8, size: usize, class: Option<SizeClass>) {
        let Some(class) = class else {
            return self.free_large_sized_slow(block, size);
        };
        if cfg!(debug_assertions) {
            self.check_class(block, class);
        }
        // SAFETY: the caller gives the block up, and guarantees its class.
        unsafe { self.free_small::<true>(block, size, class) }
    }

    /// Frees a block of this size. Aborts the program if the block has another one.
    ///
    /// # Safety
    /// As for [`Engine::free`].
    #[inline]
    pub unsafe fn free_if_sized(&self, block: *mut u8, size: usize, align: usize) {
        match SizeClass::of_aligned(size, align) {
            Some(class) if self.class_at(block) == Some(class) => {
                // SAFETY: the caller gives the block up, and the page map says that it is of this
                // class.
                unsafe { self.free_small::<false>(block, 0, class) }
            }
            Some(class) => self.free_sized_slow(block, size, class),
            None => self.free_large_sized_slow(block, size),
        }
    }

    /// Frees a block of this class. `SIZED`: the class comes from the size that the program gave.
    ///
    /// # Safety
    /// The block is of this class, and the program does not use it any more.
    #[inline(always)]
    unsafe fn free_small<const SIZED: bool>(&self, block: *mut u8, size: usize, class: SizeClass) {
        let area = if SIZED { &self.hot_sized_area } else { &self.hot_area };
        if let Some(base) = self.base_if_open(area) {
            // SAFETY: set-up writes the base before it publishes `area`. The caller gives the block
            // up.
            if unsafe { rseq::push(base, class, block) } {
                return;
            }
        }
        self.free_small_by_thread::<SIZED>(block, size, class.index());
    }

    /// Frees to the thread's own cache, as the counterpart of [`Engine::alloc_small_by_thread`].
    /// `SIZED`: the slow path checks the class, which comes from the program's size.
    ///
    /// The class is passed as its index, which the sequences have in a register already.
    #[inline(never)]
    fn free_small_by_thread<const SIZED: bool>(&self, block: *mut u8, size: usize, class: usize) {
        let Some(class) = SizeClass::from_index(class) else { return };
        if PROFILING && SIZED {
            // Nested as in `alloc_small_by_thread`.
            if self.profile.is_watching() {
                return self.free_watched(block, size, class);
            }
        }
        if self.push_own(class, block) {
            return;
        }
        if SIZED {
            return self.free_sized_slow(block, size, class);
        }
        self.free_small_slow(block, class);
    }

    /// Pushes a block to the thread's own cache. False if it has none, or no capacity left.
    #[inline(always)]
    fn push_own(&self, class: SizeClass, block: *mut u8) -> bool {
        let cache = Ready::hot(self.os.thread_words());
        cache.is_some_and(|cache| cache.with(class, |stack| stack.push(block)))
    }

    /// Frees a block of this class, by the size that the program gave, while the block may lie in
    /// the profile's heap.
    #[inline(never)]
    fn free_watched(&self, block: *mut u8, size: usize, class: SizeClass) {
        if self.region.class_at_first(block) == Some(class) {
            // SAFETY: set-up writes the base before any block exists. The caller gives the block
            // up, and the page map says that it is of this class.
            if unsafe { rseq::push(self.base_to_free(), class, block) }
                || self.push_own(class, block)
            {
                return;
            }
        }
        self.free_sized_slow(block, size, class);
    }

    /// Frees an address that the hot path does not know. It may be null, or a small block that
    /// begins in a later unit of its span. Or it is a block of a heap, a sampled block, a large
    /// block, or a mistake.
    #[cold]
    #[inline(never)]
    pub(crate) fn free_slow(&self, block: *mut u8, operation: &str) {
        if block.is_null() {
            // The engine may not be set up yet.
            return;
        }
        if let Some(class) = self.region.class_at_later(block) {
            // SAFETY: all callers of `free_slow` demand that the program gives the block up. The
            // page map says that it is of this class.
            return unsafe { self.free_small::<false>(block, 0, class) };
        }
        if let Some(found) = self.heap_block(block) {
            return self.free_in_heap(found, operation);
        }
        if self.is_sampled(block) {
            return self.free_sampled(block, None, operation);
        }
        self.profile_free(block);
        self.free_large(block, self.large_at(block, operation));
        self.notify_scavenger();
    }

    /// Frees a block for which the program gave the size of a large one.
    #[cold]
    #[inline(never)]
    fn free_large_sized_slow(&self, block: *mut u8, size: usize) {
        if self.all_in_heaps() {
            return self.free_sized_in_heap(block, size);
        }
        // All units of a heap's large block are usable; of another large block, only whole OS
        // pages.
        let given = match self.heap_block(block) {
            Some(_) => Units::for_bytes(size).map_or(usize::MAX, Units::bytes),
            None => self.usable_for(size, None),
        };
        self.check_size(block, given);
        self.free_slow(block, "free");
    }

    /// Frees a block for which the program gave the size of a small one, of this class.
    #[cold]
    #[inline(never)]
    fn free_sized_slow(&self, block: *mut u8, size: usize, class: SizeClass) {
        if self.all_in_heaps() {
            return self.free_sized_in_heap(block, size);
        }
        if self.is_sampled(block) {
            return self.free_sampled(block, Some(size), "free");
        }
        if let Some(found) = self.profiled_block(block) {
            self.check_size(block, class.size());
            return self.free_profiled(found, "free");
        }
        self.check_class(block, class);
        // While blocks are sampled, all sized frees come here. This one is checked, so it goes on
        // like a plain free.
        // SAFETY: all callers demand that the program gives the block up; `check_class` found its
        // class.
        unsafe { self.free_small::<false>(block, size, class) }
    }

    #[cold]
    #[inline(never)]
    fn free_small_slow(&self, block: *mut u8, class: SizeClass) {
        self.count_free(class.size());
        // Where the hot path is open, it has tried to push.
        if self.hot_area.load(Ordering::Relaxed) == 0 && self.front().push(class, block) {
            return;
        }
        // The stack is full, or the block comes from another CPU, or it seems to be in the stack
        // already.
        if self.is_cached_slow(block, class) {
            self.fault("double free", block, "free");
        }
        let mut others = BURYING_BLOCKS;
        // `push_batch` does not ask the marks.
        let push = || self.front().push_batch(class, &[block]) > 0;
        if !push() {
            others = self.overflow(class);
            if !push() {
                self.release(class, &[block]);
                others = 0;
            }
        }
        if others > 0 && class.shares_lines() && self.bury(class, others) {
            self.reclaim_if_due(class.span_units() as usize * UNIT, 1);
        }
        self.notify_scavenger();
    }

    /// Aborts the program if a block has another size than the one that it is freed with.
    #[inline(never)]
    pub(crate) fn check_size(&self, block: *mut u8, given: usize) {
        let found = self.size_at(block, "free");
        if found != given {
            self.say_wrong_size(block, given, found, "free");
            self.os.abort();
        }
    }

    /// Aborts the program unless this is a block of this class that no heap owns. Does nothing
    /// where the engine knows requested sizes: then [`Engine::free_sized_in_heap`] or the sampler
    /// compares them.
    pub(crate) fn check_class(&self, block: *mut u8, class: SizeClass) {
        if self.knows_size_of(block) {
            return;
        }
        self.check_size(block, class.size());
        if self.class_at(block).is_none() && self.profiled_block(block).is_none() {
            self.fault("block of a heap", block, "a sized free");
        }
    }

    /// Frees an address with a size, in check and harden mode.
    pub(crate) fn free_sized_in_heap(&self, block: *mut u8, size: usize) {
        let Some(found) = self.heap_block(block) else {
            return self.free_slow(block, "free");
        };
        self.profile_free(block);
        match self.hardening() {
            true => self.free_hardened(found, Some(size), "free"),
            false => self.free_checked(block, Some(size), "free"),
        }
    }
}
