//! Allocates blocks: plain, cleared, and aligned.

use core::ptr;
use core::sync::atomic::{AtomicIsize, Ordering};

use crate::engine::Engine;
use crate::frontend::owned_stack::OwnedStack;
use crate::frontend::per_thread::Ready;
use crate::frontend::rseq::{self, PerCpuBase};
use crate::options::{PROFILING, Settings};
use crate::platform::os::Os;
use crate::size_class::{MIN_ALIGN, SizeClass, UNIT};
use crate::telemetry::profile::gate::FAST;

impl<O: Os> Engine<O> {
    /// Allocates a block of at least `size` bytes, aligned to 16. Size 0 gets a block too. Null if
    /// memory is short, after `OsProcess::out_of_memory`, which sets `errno`.
    #[inline(always)]
    pub fn alloc(&self, size: usize) -> *mut u8 {
        match SizeClass::of(size) {
            Some(class) => self.alloc_small::<false>(size, class),
            None => self.alloc_large_slow(size, 1).0,
        }
    }

    /// Allocates like [`Engine::alloc`], and clears all usable bytes of the block. No standard
    /// demands that beyond `size` bytes, but most allocators do it, and programs rely on it.
    #[inline(never)]
    pub fn alloc_zeroed(&self, size: usize) -> *mut u8 {
        let class = SizeClass::of(size);
        let new = match class {
            Some(class) => (self.alloc_small::<false>(size, class), false),
            None => self.alloc_large_slow(size, 1),
        };
        let exact = self.knows_size_of(new.0);
        self.clear_new(new, if exact { size } else { self.usable_for(size, class) })
    }

    /// Allocates a block of at least `size` bytes at a multiple of `align`, a power of two. Null if
    /// memory is short.
    #[inline]
    pub fn alloc_aligned(&self, size: usize, align: usize) -> *mut u8 {
        debug_assert!(align.is_power_of_two());
        if align <= MIN_ALIGN { self.alloc(size) } else { self.alloc_over_aligned(size, align) }
    }

    /// Out of line: few programs ask for such alignments, and all run the code around the call.
    #[inline(never)]
    fn alloc_over_aligned(&self, size: usize, align: usize) -> *mut u8 {
        match SizeClass::of_aligned(size, align) {
            Some(class) => self.alloc_small::<true>(size, class),
            None => self.alloc_large_slow(size, align).0,
        }
    }

    /// Allocates like [`Engine::alloc_aligned`], and clears the first `size` bytes.
    pub fn alloc_aligned_zeroed(&self, size: usize, align: usize) -> *mut u8 {
        if align <= MIN_ALIGN {
            return self.alloc_zeroed(size);
        }
        let new = match SizeClass::of_aligned(size, align) {
            Some(class) => (self.alloc_small::<true>(size, class), false),
            None => self.alloc_large_slow(size, align),
        };
        self.clear_new(new, size)
    }

    /// Allocates like [`Engine::alloc_aligned`], for an allocator with these settings: the first
    /// call sets the engine up with them.
    #[inline(always)]
    pub fn alloc_with(&self, settings: &Settings, size: usize, align: usize) -> *mut u8 {
        match SizeClass::of(size) {
            Some(class) if align <= MIN_ALIGN => match self.pop_hot(class) {
                Some(block) => block,
                None => self.alloc_small_with(settings, size, class),
            },
            _ => self.alloc_rare_with(settings, size, align),
        }
    }

    /// As [`Engine::alloc_with`], where the hot path found no block.
    #[inline(never)]
    fn alloc_small_with(&self, settings: &Settings, size: usize, class: SizeClass) -> *mut u8 {
        match self.is_ready() {
            true => self.alloc_small_by_thread::<false>(size, class),
            false => self.alloc_first(settings, size, 1),
        }
    }

    /// As [`Engine::alloc_with`], for a large or over-aligned block.
    #[inline(never)]
    fn alloc_rare_with(&self, settings: &Settings, size: usize, align: usize) -> *mut u8 {
        match self.is_ready() {
            true => self.alloc_aligned(size, align),
            false => self.alloc_first(settings, size, align),
        }
    }

    #[cold]
    #[inline(never)]
    fn alloc_first(&self, settings: &Settings, size: usize, align: usize) -> *mut u8 {
        if self.start_with(settings) {
            return self.alloc_aligned(size, align);
        }
        self.refuse(size);
        ptr::null_mut()
    }

    /// Allocates like [`Engine::alloc_aligned_zeroed`], with settings as [`Engine::alloc_with`].
    pub fn alloc_zeroed_with(&self, settings: &Settings, size: usize, align: usize) -> *mut u8 {
        if self.is_ready() || self.start_with(settings) {
            return self.alloc_aligned_zeroed(size, align);
        }
        self.refuse(size);
        ptr::null_mut()
    }

    /// Allocates a block of a size class. `ALIGNED`: the request may have an alignment above
    /// [`MIN_ALIGN`].
    #[inline(always)]
    fn alloc_small<const ALIGNED: bool>(&self, size: usize, class: SizeClass) -> *mut u8 {
        match self.pop_hot(class) {
            Some(block) => block,
            None => self.alloc_small_by_thread::<ALIGNED>(size, class),
        }
    }

    /// Pops a block from the cache of this virtual CPU. `None` if it has no such block, or the hot
    /// path is closed.
    #[inline(always)]
    fn pop_hot(&self, class: SizeClass) -> Option<*mut u8> {
        let base = self.base_if_open(&self.hot_area)?;
        // SAFETY: set-up writes the base before it publishes `hot_area`.
        let block = unsafe { rseq::pop(base, class) };
        (!block.is_null()).then_some(block)
    }

    /// Where the hot path finds caches; `None` where every operation takes the slow path.
    #[inline(always)]
    pub(super) fn base_if_open(&self, area: &AtomicIsize) -> Option<PerCpuBase> {
        let area = area.load(Ordering::Acquire);
        if area == 0 {
            return None;
        }
        // `hot_area` and `hot_sized_area` have the same value wherever they are not 0.
        Some(PerCpuBase { area, ..self.base_to_free() })
    }

    /// Where the hot path finds the cache of its virtual CPU; [`PerCpuBase::UNSET`] outside of
    /// percpu mode, and while the engine counts operations. Only frees need no other test.
    #[inline(always)]
    pub(super) fn base_to_free(&self) -> PerCpuBase {
        // SAFETY: callers have a small block or have seen `hot_area`. Both exist only after set-up
        // has written `hot_base`.
        unsafe { *self.hot_base.get() }
    }

    /// Allocates from the thread's own cache, where there are no restartable sequences or they
    /// found no block. Out of line, to keep the code with the sequences short.
    #[inline(never)]
    fn alloc_small_by_thread<const ALIGNED: bool>(&self, size: usize, class: SizeClass) -> *mut u8 {
        if PROFILING {
            // Nested: otherwise builds without profiles have the function, for its sequences.
            let gate = self.profile.gate();
            if gate != 0 {
                return self.alloc_small_counted::<ALIGNED>(size, class, gate);
            }
        }
        self.alloc_small_own::<ALIGNED>(size, class)
    }

    /// Allocates from the thread's own cache, else by the slow path.
    #[inline(always)]
    fn alloc_small_own<const ALIGNED: bool>(&self, size: usize, class: SizeClass) -> *mut u8 {
        if let Some(cache) = Ready::hot(self.os.thread_words()) {
            let block = cache.with(class, OwnedStack::pop);
            if !block.is_null() {
                return block;
            }
        }
        self.alloc_small_slow::<ALIGNED>(size, class)
    }

    /// Allocates a block while a profile counts allocations. `gate` is what the caller saw. It
    /// calls other functions only as its last step, so it need not save registers.
    #[inline(never)]
    fn alloc_small_counted<const ALIGNED: bool>(
        &self,
        size: usize,
        class: SizeClass,
        gate: u32,
    ) -> *mut u8 {
        let is_fast = gate & FAST != 0;
        // Blocks of heaps are counted where heaps allocate.
        if !is_fast && self.all_in_heaps() {
            return self.alloc_small_slow::<ALIGNED>(size, class);
        }
        if !self.is_counted(gate, size) {
            return self.alloc_small_uncounted::<ALIGNED>(size, class, gate);
        }
        if is_fast {
            // SAFETY: the gate is fast only in percpu mode, in which set-up writes the base.
            let block = unsafe { rseq::pop(self.base_to_free(), class) };
            if !block.is_null() {
                return block;
            }
        }
        self.alloc_small_own::<ALIGNED>(size, class)
    }

    /// Allocates a block that was not counted, since it is to be sampled, or the thread does not
    /// count in this session yet.
    #[cold]
    #[inline(never)]
    fn alloc_small_uncounted<const ALIGNED: bool>(
        &self,
        size: usize,
        class: SizeClass,
        gate: u32,
    ) -> *mut u8 {
        if self.is_sample_due_slow(gate, size) {
            let block = self.alloc_profiled(size, class);
            if !block.is_null() {
                return block;
            }
        }
        self.alloc_small_slow::<ALIGNED>(size, class)
    }

    #[cold]
    #[inline(never)]
    fn alloc_small_slow<const ALIGNED: bool>(&self, size: usize, class: SizeClass) -> *mut u8 {
        let mut block = ptr::null_mut();
        let refill = || {
            let (block, has_grown) = self.refill(size, class);
            if has_grown {
                self.reclaim_if_due(class.span_units() as usize * UNIT, 1);
            }
            block
        };
        if self.ready() {
            if self.all_in_heaps() {
                // Blocks of a class are aligned to the power of two in its size. The request may
                // need that, and does not say how much of it.
                let align = if ALIGNED { 1 << class.size().trailing_zeros() } else { 1 };
                return self.alloc_in_default_heap(size, align).0;
            }
            if self.hot_area.load(Ordering::Relaxed) == 0 {
                // The hot path is closed, so it has not tried to pop.
                if self.is_closed_in_vain() {
                    self.restore_switch();
                }
                block = self.front().pop(class);
            }
            if block.is_null() {
                block = refill();
                self.start_scavenger_if_due();
                self.tell_pressure_if_due();
            }
            if block.is_null() {
                self.flush_all();
                block = refill();
            }
        }
        if block.is_null() {
            self.refuse(size);
        } else {
            self.count_alloc(class.size());
        }
        block
    }

    /// Allocates a large block; also whether it reads as zero. If memory is short, it empties
    /// caches and tries again: cached blocks may keep spans that are otherwise free.
    #[cold]
    #[inline(never)]
    fn alloc_large_slow(&self, size: usize, align: usize) -> (*mut u8, bool) {
        if self.ready() && self.all_in_heaps() {
            return self.alloc_in_default_heap(size, align);
        }
        let mut granted = self.take_near(size, align).map(|block| (block, false));
        if granted.is_none() {
            self.reclaim_if_due(size, align);
            granted = self.large(size, align);
        }
        if granted.is_none() && self.ready() && self.could_hold(size, align) {
            self.flush_all();
            granted = self.large(size, align);
        }
        let Some((block, zeroed)) = granted else {
            self.refuse(size);
            return (ptr::null_mut(), false);
        };
        self.profile_alloc(block, size, 0);
        self.start_scavenger_if_due();
        self.tell_pressure_if_due();
        (block, zeroed)
    }
}
