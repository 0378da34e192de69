//! What a program asks of the engine: allocate, free, resize. The hot paths stand first; what
//! they leave to `_slow` functions is rare or slow anyway.

use core::ptr;

use crate::backend::units::Units;
use crate::engine::Engine;
use crate::engine::tuning::BURYING_BLOCKS;
use crate::frontend::per_thread::Ready;
use crate::frontend::rseq::{self};
use crate::frontend::slab::{OwnedStack, bottom_of};
use crate::platform::os::{Os, clear, copy};
use crate::size_class::{MIN_ALIGN, SizeClass};

impl<O: Os> Engine<O> {
    /// A block of at least `size` bytes, aligned to 16; null if memory is short, which the
    /// operating system below is told. Never null for size 0.
    #[inline(always)]
    pub fn alloc(&self, size: usize) -> *mut u8 {
        match SizeClass::of(size) {
            Some(class) => self.alloc_small::<false>(size, class),
            None => self.alloc_large_slow(size, 1).0,
        }
    }

    /// As [`Engine::alloc`], and all that may be used of the block is zero. Nobody promises that beyond `size` bytes, but
    /// most allocators do it, and programs have come to rely on it.
    #[inline]
    pub fn alloc_zeroed(&self, size: usize) -> *mut u8 {
        let class = SizeClass::of(size);
        let (block, zeroed) = match class {
            Some(class) => (self.alloc_small::<false>(size, class), false),
            None => self.alloc_large_slow(size, 1),
        };
        if !zeroed && !block.is_null() {
            let exact = self.knows_size_of(block);
            let bytes = if exact { size } else { self.usable_for(size, class) };
            // SAFETY: the block has as many bytes and is ours until we return it.
            unsafe {
                match class {
                    Some(_) => clear(block, bytes),
                    None => self.clear(block, bytes),
                }
            }
        }
        if class.is_none() {
            self.mark_zeroed(block);
        }
        block
    }

    /// A block of at least `size` bytes at a multiple of `align`, a power of two; null if memory
    /// is short.
    #[inline]
    pub fn alloc_aligned(&self, size: usize, align: usize) -> *mut u8 {
        debug_assert!(align.is_power_of_two());
        if align <= MIN_ALIGN { self.alloc(size) } else { self.alloc_over_aligned(size, align) }
    }

    /// Rare enough to be out of the way of all others.
    #[inline(never)]
    fn alloc_over_aligned(&self, size: usize, align: usize) -> *mut u8 {
        match SizeClass::of_aligned(size, align) {
            Some(class) => self.alloc_small::<true>(size, class),
            None => self.alloc_large_slow(size, align).0,
        }
    }

    /// As [`Engine::alloc_aligned`], and the first `size` bytes are zero.
    pub fn alloc_aligned_zeroed(&self, size: usize, align: usize) -> *mut u8 {
        if align <= MIN_ALIGN {
            return self.alloc_zeroed(size);
        }
        let (block, zeroed) = match SizeClass::of_aligned(size, align) {
            Some(class) => (self.alloc_small::<true>(size, class), false),
            None => self.alloc_large_slow(size, align),
        };
        if !zeroed && !block.is_null() {
            // SAFETY: as above.
            unsafe { self.clear(block, size) };
        }
        block
    }

    /// Frees a block. An address that is none stops the program.
    ///
    /// # Safety
    /// Nobody uses the block any more.
    #[inline(always)]
    pub unsafe fn free(&self, block: *mut u8) {
        match self.region.class_at_first(block) {
            Some(class) => {
                // SAFETY: what is committed is committed after the place is set up; the block is the caller's to give.
                if unsafe { rseq::push(self.place_to_free(), class, block) } {
                    return;
                }
                self.free_small_by_thread::<false>(block, 0, class.index());
            }
            None => self.free_slow(block, "free"),
        }
    }

    /// Frees a block of a known size, without looking at the map if it is small; debug builds look, and
    /// stop the program where no block of that size class begins (decisions/0010).
    ///
    /// A wrong size stops the program where checking costs nothing: if either size is a large one, if
    /// the block does not go to the cache, and always while operations are counted.
    ///
    /// # Safety
    /// As for [`Engine::free`]; `size` and `align` are those that the block was last asked for
    /// with.
    #[inline(always)]
    pub unsafe fn free_sized(&self, block: *mut u8, size: usize, align: usize) {
        if align > MIN_ALIGN {
            // SAFETY: the caller's.
            return unsafe { self.free_over_aligned(block, size, align) };
        }
        // SAFETY: the caller's.
        unsafe { self.free_as(block, size, SizeClass::of(size)) }
    }

    /// Rare enough to be out of the way of all others.
    ///
    /// # Safety
    /// As for [`Engine::free_sized`].
    #[inline(never)]
    unsafe fn free_over_aligned(&self, block: *mut u8, size: usize, align: usize) {
        // SAFETY: the caller's.
        unsafe { self.free_as(block, size, SizeClass::of_aligned(size, align)) }
    }

    /// # Safety
    /// As for [`Engine::free_sized`]; the class is that of the size, none if that is a large one.
    #[inline(always)]
    unsafe fn free_as(&self, block: *mut u8, size: usize, class: Option<SizeClass>) {
        let Some(class) = class else {
            return self.free_large_sized_slow(block, size);
        };
        if cfg!(debug_assertions) {
            self.check_class(block, class);
        }
        // SAFETY: the caller's.
        unsafe { self.free_small::<true>(block, size, class) }
    }

    /// Frees a block of this size; any other stops the program.
    ///
    /// # Safety
    /// As for [`Engine::free`].
    #[inline]
    pub unsafe fn free_if_sized(&self, block: *mut u8, size: usize, align: usize) {
        match SizeClass::of_aligned(size, align) {
            Some(class) if self.class_at(block) == Some(class) => {
                // SAFETY: the caller's; the block is of this class.
                unsafe { self.free_small::<false>(block, 0, class) }
            }
            Some(class) => self.free_sized_slow(block, size, class),
            None => self.free_large_sized_slow(block, size),
        }
    }

    /// How many bytes of the block may be used. An address that is no block stops the program.
    pub fn usable_size(&self, block: *mut u8) -> usize {
        self.size_at(block, "malloc_usable_size")
    }

    /// Resizes a block in place; its contents stay up to the smaller size. False, and nothing happens,
    /// if it has no room, or would waste some: a small block stays one of its class.
    ///
    /// # Safety
    /// Nobody uses what is beyond `size`. `align` is what the block was asked for with.
    pub unsafe fn resize(&self, block: *mut u8, size: usize, align: usize) -> bool {
        let class = SizeClass::of_aligned(size, align);
        if let Some(old) = self.class_at(block) {
            return Some(old) == class;
        }
        // Those of a class are, if they are of that which has the alignment.
        let is_aligned = align <= MIN_ALIGN || block.addr().is_multiple_of(align);
        if let Some(found) = self.heap_block(block) {
            if self.all_in_heaps() {
                self.size_in_heap(found, "resize");
                return false;
            }
            let units = self.units_of(found.first);
            let fits = || is_aligned && Units::for_bytes(size) == Units::new(units);
            return class == found.class && (class.is_some() || fits());
        }
        if self.is_sampled(block) {
            self.size_sampled(block, "resize");
            return false;
        }
        let (first, units) = self.large_units(block, "resize");
        let resized = class.is_none() && is_aligned && self.resize_large(first, units, size);
        if resized {
            self.wake_scavenger();
        }
        resized
    }

    /// Resizes a block without copying: in place, or by moving its pages. Null, and nothing happens,
    /// where that is not possible.
    ///
    /// # Safety
    /// As for [`Engine::resize`]; and if the block has moved, nobody uses it where it was.
    pub unsafe fn remap(&self, block: *mut u8, size: usize, align: usize) -> *mut u8 {
        // SAFETY: the caller's.
        if unsafe { self.resize(block, size, align) } {
            return block;
        }
        let small = self.class_at(block).is_some() || SizeClass::of_aligned(size, align).is_some();
        if small || self.heap_block(block).is_some() || self.is_sampled(block) {
            return ptr::null_mut();
        }
        self.move_large(self.large_units(block, "remap"), size, align)
    }

    /// Resizes a block, in place where that is possible; its contents stay up to the smaller
    /// size. Null if memory is short, and then the block stays as it was.
    ///
    /// # Safety
    /// As for [`Engine::free`], but if null comes back. `align` is a power of two.
    pub unsafe fn realloc(&self, block: *mut u8, size: usize, align: usize) -> *mut u8 {
        let class = SizeClass::of_aligned(size, align);
        let old_size = match self.class_at(block) {
            Some(old) if Some(old) == class => {
                if self.is_cached(block, old) {
                    self.fault("double free", block, "realloc");
                }
                return block;
            }
            Some(old) => old.size(),
            // Always moves: whoever still uses the old one is found.
            None if self.is_sampled(block) => self.size_sampled(block, "realloc"),
            None => {
                if let Some(found) = self.heap_block(block) {
                    // SAFETY: the caller's.
                    return unsafe { self.realloc_in_heap(found, size, align, "realloc") };
                }
                let (first, units) = self.large_units(block, "realloc");
                if class.is_none() && block.addr().is_multiple_of(align) {
                    if self.resize_large(first, units, size) {
                        self.wake_scavenger();
                        return block;
                    }
                    let moved = self.move_large((first, units), size, align);
                    if !moved.is_null() {
                        return moved;
                    }
                }
                self.large_size(first)
            }
        };
        let new = self.alloc_aligned(size, align);
        if !new.is_null() {
            // SAFETY: both blocks are as large, and distinct.
            unsafe {
                copy(block, new, old_size.min(size));
                self.free(block);
            }
        }
        new
    }

    /// Whether the block was freed, and is in the cache, as far as can be told at once: true is certain.
    #[inline(always)]
    fn is_cached(&self, block: *mut u8, class: SizeClass) -> bool {
        match self.hot_place(&self.hot_area) {
            // SAFETY: as in `alloc_small`.
            Some(place) => unsafe { rseq::holds(place, class, bottom_of(class), block) },
            None => self.is_cached_slow(block, class),
        }
    }

    #[inline(never)]
    fn is_cached_slow(&self, block: *mut u8, class: SizeClass) -> bool {
        self.front(|front| front.holds(class, block))
    }

    /// A block of a class, which is perhaps aligned to more than [`MIN_ALIGN`], where `ALIGNED`.
    #[inline(always)]
    fn alloc_small<const ALIGNED: bool>(&self, size: usize, class: SizeClass) -> *mut u8 {
        let block = self.pop_of_cpu(class);
        if !block.is_null() {
            return block;
        }
        self.alloc_small_by_thread::<ALIGNED>(size, class)
    }

    /// # Safety
    /// The block is of this class and nobody uses it any more.
    #[inline(always)]
    unsafe fn free_small<const SIZED: bool>(&self, block: *mut u8, size: usize, class: SizeClass) {
        let area = if SIZED { &self.hot_sized_area } else { &self.hot_area };
        if let Some(place) = self.hot_place(area) {
            // SAFETY: as in `alloc_small`; the block is the caller's to give.
            if unsafe { rseq::push(place, class, block) } {
                return;
            }
        }
        self.free_small_by_thread::<SIZED>(block, size, class.index());
    }

    /// Where there are no sequences, or they found nothing: the thread's own cache. Out of line,
    /// and so out of the way of the sequences.
    #[inline(never)]
    fn alloc_small_by_thread<const ALIGNED: bool>(&self, size: usize, class: SizeClass) -> *mut u8 {
        if let Some(cache) = Ready::hot(self.os.thread_words()) {
            let block = cache.with(class, OwnedStack::pop);
            if !block.is_null() {
                return block;
            }
        }
        self.alloc_small_slow::<ALIGNED>(size, class)
    }

    /// As above. If the class comes from a size that the program gave, it is checked where there is time. It comes as its
    /// index, which sequences have in a register; the class itself would need another.
    #[inline(never)]
    fn free_small_by_thread<const SIZED: bool>(&self, block: *mut u8, size: usize, class: usize) {
        let Some(class) = SizeClass::from_index(class) else { return };
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

    #[cold]
    #[inline(never)]
    fn alloc_small_slow<const ALIGNED: bool>(&self, size: usize, class: SizeClass) -> *mut u8 {
        let mut block = ptr::null_mut();
        if self.ready() {
            if self.all_in_heaps() {
                // They are aligned where the class's size is, and perhaps have to be.
                let align = if ALIGNED { 1 << class.size().trailing_zeros() } else { 1 };
                return self.alloc_in_default_heap(size, align).0;
            }
            block = self.front(|front| front.pop(class));
            if block.is_null() {
                block = self.refill(size, class);
                self.start_scavenger_if_due();
            }
            if block.is_null() {
                self.flush_all();
                block = self.refill(size, class);
            }
        }
        if block.is_null() {
            self.os.out_of_memory();
        } else if self.counting() {
            self.count_alloc(class.size());
        }
        block
    }

    /// A large block, and whether it reads as zero. Where there is no room, free blocks in this
    /// thread's cache may be all that keeps spans from going back.
    #[cold]
    #[inline(never)]
    fn alloc_large_slow(&self, size: usize, align: usize) -> (*mut u8, bool) {
        if self.ready() && self.all_in_heaps() {
            return self.alloc_in_default_heap(size, align);
        }
        if let Some(units) = Units::for_bytes(size) {
            self.reclaim_before_growth(units.get());
        }
        let mut granted = self.alloc_large(size, align);
        if granted.0.is_null() && self.ready() && self.could_hold(size, align) {
            self.flush_all();
            granted = self.alloc_large(size, align);
        }
        if granted.0.is_null() {
            self.os.out_of_memory();
        } else {
            self.start_scavenger_if_due();
        }
        granted
    }

    /// Frees what is no block of the first unit of a span that caches serve: nothing, one of a later unit, a large block, one of a
    /// heap, or a mistake.
    #[cold]
    #[inline(never)]
    pub(crate) fn free_slow(&self, block: *mut u8, operation: &str) {
        if block.is_null() {
            // Perhaps before the engine is set up.
            return;
        }
        if let Some(class) = self.region.class_at_later(block) {
            // SAFETY: the caller's, as for `free`.
            return unsafe { self.free_small::<false>(block, 0, class) };
        }
        if let Some(found) = self.heap_block(block) {
            return self.free_in_heap(found, operation);
        }
        if self.is_sampled(block) {
            return self.free_sampled(block, None, operation);
        }
        self.free_large(block, operation);
        self.wake_scavenger();
    }

    /// Frees a block that was given the size of a large one.
    #[cold]
    #[inline(never)]
    fn free_large_sized_slow(&self, block: *mut u8, size: usize) {
        if self.all_in_heaps() {
            return self.free_sized_in_heap(block, size);
        }
        // Of a heap's block all of its units may be used.
        let given = match self.heap_block(block) {
            Some(_) => Units::for_bytes(size).map_or(usize::MAX, Units::bytes),
            None => self.usable_for(size, None),
        };
        self.check_size(block, given);
        self.free_slow(block, "free");
    }

    /// As above, a small one.
    #[cold]
    #[inline(never)]
    fn free_sized_slow(&self, block: *mut u8, size: usize, class: SizeClass) {
        if self.all_in_heaps() {
            return self.free_sized_in_heap(block, size);
        }
        if self.is_sampled(block) {
            return self.free_sampled(block, Some(size), "free");
        }
        self.check_class(block, class);
        // Where blocks are sampled, this is the way of all: now that the address was looked at, as of any other.
        // SAFETY: the caller's, and checked.
        unsafe { self.free_small::<false>(block, size, class) }
    }

    /// Bytes of the block at this address. One that is none stops the program.
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
        if self.counting() {
            self.count_free(class.size());
        }
        if self.front(|front| front.push(class, block)) {
            return;
        }
        // No room, it comes from elsewhere, or it seems to be there already. A closer look tells.
        if self.is_cached_slow(block, class) {
            self.fault("double free", block, "free");
        }
        let mut others = BURYING_BLOCKS;
        // A batch is put there whatever marks say.
        if self.push_to_cache(class, &[block]) == 0 {
            others = self.overflow(class);
            if self.push_to_cache(class, &[block]) == 0 {
                self.release(class, &[block]);
                others = 0;
            }
        }
        if others > 0 && class.shares_lines() {
            self.bury(class, others);
        }
        self.wake_scavenger();
    }

    /// Stops the program if a block has not the size that it was freed with.
    #[inline(never)]
    pub(crate) fn check_size(&self, block: *mut u8, given: usize) {
        let found = self.size_at(block, "free");
        if found != given {
            self.say_wrong_size(block, given, found, "free");
            self.os.abort();
        }
    }

    /// The same for a size of this class, which takes the block to be none of a heap.
    pub(crate) fn check_class(&self, block: *mut u8, class: SizeClass) {
        if self.knows_size_of(block) {
            return;
        }
        self.check_size(block, class.size());
        if self.class_at(block).is_none() {
            self.fault("block of a heap", block, "free with a size");
        }
    }

    /// Frees an address with a size, where all blocks are blocks of heaps.
    pub(crate) fn free_sized_in_heap(&self, block: *mut u8, size: usize) {
        match self.heap_block(block) {
            None => self.free_slow(block, "free"),
            Some(found) if self.hardening() => self.free_hardened(found, Some(size), "free"),
            Some(_) => self.free_checked(block, Some(size), "free"),
        }
    }
}
