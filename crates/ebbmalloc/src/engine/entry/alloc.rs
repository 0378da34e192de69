//! Allocates blocks: plain, cleared, and aligned.

use core::ptr;
use core::sync::atomic::Ordering;

use crate::backend::page_heap::Granted;
use crate::engine::Engine;
use crate::engine::start::Caller;
use crate::frontend::rseq;
use crate::options::PROFILING;
use crate::platform::os::Os;
use crate::size_class::{MIN_ALIGN, SizeClass, UNIT};
use crate::telemetry::profile::gate::FAST;

impl<O: Os> Engine<O> {
    /// Allocates a block of at least `size` bytes, aligned to 16. Size 0 gets a block too. Null if
    /// memory is short, after `OsProcess::out_of_memory`, which sets `errno`.
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

    /// Allocates a block of a size class. `ALIGNED`: the request may have an alignment above
    /// [`MIN_ALIGN`].
    #[inline(always)]
    fn alloc_small<const ALIGNED: bool>(
        this: impl Caller<O>,
        size: usize,
        class: SizeClass,
    ) -> *mut u8 {
        if let Some(base) = this.base_if_open(&this.hot_area) {
            // SAFETY: set-up writes the base before it publishes `hot_area`.
            let block = unsafe { rseq::pop(base, class) };
            if !block.is_null() {
                return block;
            }
        }
        Self::alloc_small_by_thread::<ALIGNED>(this, size, class)
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
        Self::alloc_small_own::<ALIGNED>(this, size, class)
    }

    /// Allocates from the thread's own cache, else by the slow path.
    #[inline(always)]
    fn alloc_small_own<const ALIGNED: bool>(
        this: impl Caller<O>,
        size: usize,
        class: SizeClass,
    ) -> *mut u8 {
        let block = this.pop_own(class);
        if !block.is_null() {
            return block;
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
        if is_fast {
            // SAFETY: the gate is fast only in percpu mode, in which set-up writes the base.
            let block = unsafe { rseq::pop(this.base_to_free(), class) };
            if !block.is_null() {
                return block;
            }
        }
        Self::alloc_small_own::<ALIGNED>(this, size, class)
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
}
