//! Serves the calls of a program: allocate, free, resize.
//!
//! The hot paths leave rare or slow cases to functions whose names end in `_slow`.

use core::ptr;
use core::sync::atomic::{AtomicIsize, Ordering};

use crate::backend::page_heap::Granted;
use crate::backend::region::UnitIndex;
use crate::backend::units::Units;
use crate::engine::Engine;
use crate::engine::start::Caller;
use crate::engine::tuning::BURYING_BLOCKS;
use crate::frontend::per_thread::Ready;
use crate::frontend::rseq::{self, PerCpuBase};
use crate::frontend::slab::OwnedStack;
use crate::options::PROFILING;
use crate::platform::os::{Os, copy};
use crate::size_class::{MIN_ALIGN, SizeClass, UNIT};
use crate::telemetry::profile::gate::FAST;

impl<O: Os> Engine<O> {
    /// Allocates a block of at least `size` bytes, aligned to 16. Size 0 gets a block too. Null if
    /// memory is short, after [`Os::out_of_memory`], which sets `errno`.
    #[inline(always)]
    pub fn alloc(&self, size: usize) -> *mut u8 {
        Self::alloc_for(self, size)
    }

    /// Allocates like [`Engine::alloc`], for a caller that may have settings.
    #[inline(always)]
    fn alloc_for(this: impl Caller<O>, size: usize) -> *mut u8 {
        match SizeClass::of(size) {
            Some(class) => Self::alloc_small::<false>(this, size, class),
            None => Self::alloc_large_slow(this, size, 1).0,
        }
    }

    /// Allocates like [`Engine::alloc`], and clears all usable bytes of the block. No standard
    /// demands that beyond `size` bytes, but most allocators do it, and programs rely on it.
    #[inline]
    pub fn alloc_zeroed(&self, size: usize) -> *mut u8 {
        Self::alloc_zeroed_for(self, size)
    }

    #[inline(never)]
    fn alloc_zeroed_for(this: impl Caller<O>, size: usize) -> *mut u8 {
        let class = SizeClass::of(size);
        let new = match class {
            Some(class) => (Self::alloc_small::<false>(this, size, class), false),
            None => Self::alloc_large_slow(this, size, 1),
        };
        let exact = this.knows_size_of(new.0);
        this.clear_new(new, if exact { size } else { this.usable_for(size, class) })
    }

    /// Allocates a block of at least `size` bytes at a multiple of `align`, a power of two. Null if
    /// memory is short.
    #[inline]
    pub fn alloc_aligned(&self, size: usize, align: usize) -> *mut u8 {
        Self::alloc_aligned_for(self, size, align)
    }

    /// Allocates like [`Engine::alloc_aligned`], for a caller that may have settings.
    #[inline]
    pub(crate) fn alloc_aligned_for(this: impl Caller<O>, size: usize, align: usize) -> *mut u8 {
        debug_assert!(align.is_power_of_two());
        if align <= MIN_ALIGN {
            Self::alloc_for(this, size)
        } else {
            Self::alloc_over_aligned(this, size, align)
        }
    }

    /// Out of line: few programs ask for such alignments, and all run the code around the call.
    #[inline(never)]
    fn alloc_over_aligned(this: impl Caller<O>, size: usize, align: usize) -> *mut u8 {
        match SizeClass::of_aligned(size, align) {
            Some(class) => Self::alloc_small::<true>(this, size, class),
            None => Self::alloc_large_slow(this, size, align).0,
        }
    }

    /// Allocates like [`Engine::alloc_aligned`], and clears the first `size` bytes.
    pub fn alloc_aligned_zeroed(&self, size: usize, align: usize) -> *mut u8 {
        Self::alloc_aligned_zeroed_for(self, size, align)
    }

    /// Allocates like [`Engine::alloc_aligned_zeroed`], for a caller that may have settings.
    pub(crate) fn alloc_aligned_zeroed_for(
        this: impl Caller<O>,
        size: usize,
        align: usize,
    ) -> *mut u8 {
        if align <= MIN_ALIGN {
            return Self::alloc_zeroed_for(this, size);
        }
        let new = match SizeClass::of_aligned(size, align) {
            Some(class) => (Self::alloc_small::<true>(this, size, class), false),
            None => Self::alloc_large_slow(this, size, align),
        };
        this.clear_new(new, size)
    }

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

    /// Bytes of the block that the program may use. Aborts the program if no block begins at the
    /// address.
    pub fn usable_size(&self, block: *mut u8) -> usize {
        self.size_at(block, "malloc_usable_size")
    }

    /// Resizes a block in place; its contents stay up to the smaller size. False, and nothing
    /// happens, if the block has no room for `size` bytes, or `size` has another size class.
    ///
    /// # Safety
    /// The program does not use the bytes beyond `size` any more. `align` is that of the request
    /// for the block.
    pub unsafe fn resize(&self, block: *mut u8, size: usize, align: usize) -> bool {
        let class = SizeClass::of_aligned(size, align);
        if let Some(old) = self.class_at(block) {
            // A profile counts a block that is resized as a new one, which may have to move.
            return Some(old) == class && self.profile.gate() == 0;
        }
        // For large blocks: a small one is aligned if its class is that of the size and the
        // alignment.
        let is_aligned = align <= MIN_ALIGN || block.addr().is_multiple_of(align);
        if let Some(found) = self.heap_block(block) {
            if self.profile.is_heap(found.heap) {
                return false;
            }
            if self.all_in_heaps() {
                self.size_in_heap(found, "resize");
                return false;
            }
            let units = self.units_of(found.first);
            let fits = || is_aligned && Units::for_bytes(size) == Units::new(units);
            let resized = class == found.class && (class.is_some() || fits());
            if resized {
                let taken = self.profile_free(block);
                self.profile_resized(taken, block, block, size, found.heap);
            }
            return resized;
        }
        if self.is_sampled(block) {
            self.size_sampled(block, "resize");
            return false;
        }
        let (first, units) = self.large_units(block, "resize");
        let taken = self.profile_free(block);
        let resized = class.is_none() && is_aligned && self.resize_large(first, units, size);
        let resized_block = if resized { block } else { ptr::null_mut() };
        self.profile_resized(taken, block, resized_block, size, 0);
        if resized {
            self.notify_scavenger();
        }
        resized
    }

    /// Resizes a block without copying: in place, or by moving its pages. Null, and nothing
    /// happens, where that is not possible.
    ///
    /// # Safety
    /// As for [`Engine::resize`]; if the block has moved, the program does not use its old address.
    pub unsafe fn remap(&self, block: *mut u8, size: usize, align: usize) -> *mut u8 {
        // SAFETY: the caller guarantees what `resize` demands.
        if unsafe { self.resize(block, size, align) } {
            return block;
        }
        let small = self.class_at(block).is_some() || SizeClass::of_aligned(size, align).is_some();
        if small || self.heap_block(block).is_some() || self.is_sampled(block) {
            return ptr::null_mut();
        }
        let taken = self.profile_free(block);
        let moved = self.move_large(self.large_units(block, "remap"), size, align);
        self.profile_resized(taken, block, moved, size, 0);
        moved
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
                        let (first, units) = self.large_units(block, "realloc");
                        let aligned = class.is_none() && block.addr().is_multiple_of(align);
                        if aligned {
                            let new = self.realloc_large(block, (first, units), size, align);
                            if !new.is_null() {
                                return new;
                            }
                        }
                        self.large_size(first)
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

    /// Resizes a large block without copying. Null if that is not possible.
    fn realloc_large(
        &self,
        block: *mut u8,
        (first, units): (UnitIndex, u32),
        size: usize,
        align: usize,
    ) -> *mut u8 {
        let taken = self.profile_free(block);
        let new = match self.resize_large(first, units, size) {
            true => {
                self.notify_scavenger();
                block
            }
            false => self.move_large((first, units), size, align),
        };
        self.profile_resized(taken, block, new, size, 0);
        self.tell_pressure_if_due();
        new
    }

    /// Resizes a small block to a size of the same class. It stays where it is, unless a profile
    /// is to sample it.
    #[inline(always)]
    fn realloc_in_class(&self, block: *mut u8, size: usize, class: SizeClass) -> *mut u8 {
        match self.hot_base(&self.hot_area) {
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

    #[inline(never)]
    pub(crate) fn is_cached_slow(&self, block: *mut u8, class: SizeClass) -> bool {
        self.front().holds(class, block)
    }

    /// Where the hot path finds caches; `None` where every operation takes the slow path.
    #[inline(always)]
    fn hot_base(&self, area: &AtomicIsize) -> Option<PerCpuBase> {
        let area = area.load(Ordering::Acquire);
        if area == 0 {
            return None;
        }
        // `hot_area` and `hot_sized_area` have the same value wherever they are not 0.
        Some(PerCpuBase { area, ..self.base_to_free() })
    }

    /// Allocates a block of a size class. `ALIGNED`: the request may have an alignment above
    /// [`MIN_ALIGN`].
    #[inline(always)]
    fn alloc_small<const ALIGNED: bool>(
        this: impl Caller<O>,
        size: usize,
        class: SizeClass,
    ) -> *mut u8 {
        if let Some(base) = this.hot_base(&this.hot_area) {
            // SAFETY: set-up writes the base before it publishes `hot_area`.
            let block = unsafe { rseq::pop(base, class) };
            if !block.is_null() {
                return block;
            }
        }
        Self::alloc_small_by_thread::<ALIGNED>(this, size, class)
    }

    /// Frees a block of this class. `SIZED`: the class comes from the size that the program gave.
    ///
    /// # Safety
    /// The block is of this class, and the program does not use it any more.
    #[inline(always)]
    unsafe fn free_small<const SIZED: bool>(&self, block: *mut u8, size: usize, class: SizeClass) {
        let area = if SIZED { &self.hot_sized_area } else { &self.hot_area };
        if let Some(base) = self.hot_base(area) {
            // SAFETY: set-up writes the base before it publishes `area`. The caller gives the block
            // up.
            if unsafe { rseq::push(base, class, block) } {
                return;
            }
        }
        self.free_small_by_thread::<SIZED>(block, size, class.index());
    }

    /// Allocates from the thread's own cache, where there are no restartable sequences or they
    /// found no block. Out of line, to keep the code with the sequences short.
    #[inline(never)]
    fn alloc_small_by_thread<const ALIGNED: bool>(
        this: impl Caller<O>,
        size: usize,
        class: SizeClass,
    ) -> *mut u8 {
        if PROFILING {
            // Nested: otherwise builds without profiles have the function, for its sequences.
            let gate = this.profile.gate();
            if gate != 0 {
                return Self::alloc_small_counted::<ALIGNED>(this, size, class, gate);
            }
        }
        if let Some(cache) = Ready::hot(this.os.thread_words()) {
            let block = cache.with(class, OwnedStack::pop);
            if !block.is_null() {
                return block;
            }
        }
        Self::alloc_small_slow::<ALIGNED>(this, size, class)
    }

    /// Allocates a block while a profile counts allocations. `gate` is what the caller saw. It
    /// calls other functions only as its last step, so it need not save registers.
    #[inline(never)]
    fn alloc_small_counted<const ALIGNED: bool>(
        this: impl Caller<O>,
        size: usize,
        class: SizeClass,
        gate: u32,
    ) -> *mut u8 {
        let is_fast = gate & FAST != 0;
        // Blocks of heaps are counted where heaps allocate.
        if !is_fast && this.all_in_heaps() {
            return Self::alloc_small_slow::<ALIGNED>(this, size, class);
        }
        if !this.is_counted(gate, size) {
            return Self::alloc_small_uncounted::<ALIGNED>(this, size, class, gate);
        }
        // SAFETY: the gate is fast only in percpu mode, in which set-up writes the base.
        let mut block = if is_fast {
            unsafe { rseq::pop(this.base_to_free(), class) }
        } else {
            ptr::null_mut()
        };
        if block.is_null()
            && let Some(cache) = Ready::hot(this.os.thread_words())
        {
            block = cache.with(class, OwnedStack::pop);
        }
        if !block.is_null() {
            return block;
        }
        Self::alloc_small_slow::<ALIGNED>(this, size, class)
    }

    /// Allocates a block that was not counted, since it is to be sampled, or the thread does not
    /// count in this session yet.
    #[cold]
    #[inline(never)]
    fn alloc_small_uncounted<const ALIGNED: bool>(
        this: impl Caller<O>,
        size: usize,
        class: SizeClass,
        gate: u32,
    ) -> *mut u8 {
        if this.is_sample_due_slow(gate, size) {
            let block = this.alloc_profiled(size, class);
            if !block.is_null() {
                return block;
            }
        }
        Self::alloc_small_slow::<ALIGNED>(this, size, class)
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
        if let Some(cache) = Ready::hot(self.os.thread_words())
            && cache.with(class, |stack| stack.push(block))
        {
            return;
        }
        if SIZED {
            return self.free_sized_slow(block, size, class);
        }
        self.free_small_slow(block, class);
    }

    /// Frees a block of this class, by the size that the program gave, while the block may lie in
    /// the profile's heap.
    #[inline(never)]
    fn free_watched(&self, block: *mut u8, size: usize, class: SizeClass) {
        if self.region.class_at_first(block) == Some(class) {
            // SAFETY: set-up writes the base before any block exists. The caller gives the block
            // up, and the page map says that it is of this class.
            if unsafe { rseq::push(self.base_to_free(), class, block) } {
                return;
            }
            if let Some(cache) = Ready::hot(self.os.thread_words())
                && cache.with(class, |stack| stack.push(block))
            {
                return;
            }
        }
        self.free_sized_slow(block, size, class);
    }

    #[cold]
    #[inline(never)]
    fn alloc_small_slow<const ALIGNED: bool>(
        this: impl Caller<O>,
        size: usize,
        class: SizeClass,
    ) -> *mut u8 {
        let mut block = ptr::null_mut();
        let refill = || {
            let (block, has_grown) = this.refill(size, class);
            if has_grown {
                this.reclaim_if_due(class.span_units() as usize * UNIT, 1);
            }
            block
        };
        if Self::ready_for(this) {
            if this.all_in_heaps() {
                // Blocks of a class are aligned to the power of two in its size. The request may
                // need that, and does not say how much of it.
                let align = if ALIGNED { 1 << class.size().trailing_zeros() } else { 1 };
                return this.alloc_in_default_heap(size, align).0;
            }
            if this.hot_area.load(Ordering::Relaxed) == 0 {
                // The hot path is closed, so it has not tried to pop.
                if this.is_closed_in_vain() {
                    this.restore_switch();
                }
                block = this.front().pop(class);
            }
            if block.is_null() {
                block = refill();
                this.start_scavenger_if_due();
                this.tell_pressure_if_due();
            }
            if block.is_null() {
                this.flush_all();
                block = refill();
            }
        }
        if block.is_null() {
            this.refuse(size);
        } else {
            this.count_alloc(class.size());
        }
        block
    }

    /// Allocates a large block; also whether it reads as zero. If memory is short, it empties
    /// caches and tries again: cached blocks may keep spans that are otherwise free.
    #[cold]
    #[inline(never)]
    fn alloc_large_slow(this: impl Caller<O>, size: usize, align: usize) -> (*mut u8, bool) {
        if Self::ready_for(this) && this.all_in_heaps() {
            return this.alloc_in_default_heap(size, align);
        }
        this.reclaim_if_due(size, align);
        let mut granted = this.large_run(size, align, 0);
        if granted.is_none() && Self::ready_for(this) && this.could_hold(size, align) {
            this.flush_all();
            granted = this.large_run(size, align, 0);
        }
        let Some(Granted { first, zeroed, .. }) = granted else {
            this.refuse(size);
            return (ptr::null_mut(), false);
        };
        let block = this.region.address(first);
        this.profile_alloc(block, size, 0);
        this.start_scavenger_if_due();
        this.tell_pressure_if_due();
        (block, zeroed)
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
        let (first, units) = self.large_units(block, operation);
        self.free_large_run(first, units);
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

    /// Bytes that the program may use of the block at this address. Aborts the program if there is
    /// none.
    pub(crate) fn size_at(&self, block: *mut u8, operation: &str) -> usize {
        match self.class_at(block) {
            Some(class) => class.size(),
            None => match self.heap_block(block) {
                Some(found) => self.size_in_heap(found, operation),
                None if self.is_sampled(block) => self.size_sampled(block, operation),
                None => self.large_size(self.large_units(block, operation).0),
            },
        }
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
