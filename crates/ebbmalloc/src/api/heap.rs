//! Implements [`Heap`], a heap of its own for Rust programs.

use core::alloc::Layout;
use core::fmt;
use core::ptr::NonNull;

use crate::this_process::{ENGINE, HeapId};

/// A heap of its own: dropping it frees all its blocks at once, and a limit may bound it.
///
/// Containers choose it through the `Allocator` traits, which `&Heap` and `Heap` implement with
/// the features `allocator-api2` and `allocator-api`. Threads may share a heap. But each call
/// takes the heap's lock, and a heap has no caches. So [`EbbMalloc`](struct@crate::EbbMalloc) is
/// faster if many threads allocate all the time.
///
#[cfg_attr(feature = "allocator-api2", doc = "```")]
#[cfg_attr(not(feature = "allocator-api2"), doc = "```ignore (needs the feature allocator-api2)")]
/// use allocator_api2::vec::Vec;
/// use ebbmalloc::Heap;
///
/// let heap = Heap::with_limit(1 << 20);
/// let mut squares = Vec::new_in(&heap);
/// squares.extend((0..1000u64).map(|n| n * n));
/// assert!(heap.used() >= 8000);
///
/// // Beyond the limit, allocation fails; `try_reserve` and similar methods return an error.
/// assert!(squares.try_reserve(1 << 20).is_err());
/// assert_eq!(squares[999], 998_001);
/// ```
///
/// Values in a heap cannot outlive it:
///
#[cfg_attr(feature = "allocator-api2", doc = "```compile_fail,E0505")]
#[cfg_attr(not(feature = "allocator-api2"), doc = "```ignore (needs the feature allocator-api2)")]
/// use allocator_api2::vec::Vec;
/// use ebbmalloc::Heap;
///
/// let heap = Heap::new();
/// let mut kept = Vec::new_in(&heap);
/// kept.push(1);
/// drop(heap); // cannot move out of `heap` because it is borrowed
/// kept.push(2);
/// ```
///
/// If no lifetime says how long a heap is needed, containers can own it. A clone is the same heap,
/// as with [`Arc`](https://doc.rust-lang.org/std/sync/struct.Arc.html). The heap lives until the
/// last clone is dropped.
///
#[cfg_attr(feature = "allocator-api2", doc = "```")]
#[cfg_attr(not(feature = "allocator-api2"), doc = "```ignore (needs the feature allocator-api2)")]
/// use allocator_api2::vec::Vec;
/// use ebbmalloc::Heap;
///
/// let heap = Heap::new();
/// let mut words = Vec::new_in(heap.clone());
/// let worker = std::thread::spawn(move || {
///     words.push("ebb");
///     words
/// });
/// drop(heap);
/// assert_eq!(worker.join().unwrap(), ["ebb"]);
/// ```
///
/// A heap does not drop the values in it. If the program does not drop them either, then memory
/// that they own elsewhere leaks, as with [`mem::forget`](core::mem::forget).
pub struct Heap(Option<HeapId>);

impl Heap {
    /// Makes a heap without a limit of its own.
    ///
    /// If there is no memory for its record, which takes 64 KiB, then all allocations from it fail.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Self::with_limit(usize::MAX)
    }

    /// Makes a heap whose blocks may use at most `bytes` bytes together. Beyond this, allocation
    /// fails.
    ///
    /// The bytes are counted as in [`Heap::used`]: rounded up to size classes, or to a multiple of
    /// 64 KiB for blocks larger than that.
    pub fn with_limit(bytes: usize) -> Self {
        Self(ENGINE.new_heap(bytes))
    }

    /// Returns the bytes that all blocks of this heap use.
    ///
    /// ```
    /// use std::alloc::Layout;
    ///
    /// use ebbmalloc::Heap;
    ///
    /// let heap = Heap::new();
    /// let layout = Layout::from_size_align(100, 1).unwrap();
    /// let block = heap.alloc(layout).unwrap();
    /// assert_eq!(heap.used(), 112);
    /// // SAFETY: it is a block of this heap that is not used any more.
    /// unsafe { heap.dealloc(block) };
    /// assert_eq!(heap.used(), 0);
    /// ```
    pub fn used(&self) -> usize {
        self.0.map_or(0, |id| ENGINE.heap_used(id, "Heap::used"))
    }

    /// Allocates a block for this layout. Returns `None` if memory is short, or if the limit
    /// forbids it. A block of size zero is a block like any other.
    pub fn alloc(&self, layout: Layout) -> Option<NonNull<u8>> {
        let id = self.0?;
        NonNull::new(ENGINE.heap_alloc(id, layout.size(), layout.align(), "Heap::alloc"))
    }

    /// Allocates like [`Heap::alloc`], and zeroes all bytes of the layout.
    pub fn alloc_zeroed(&self, layout: Layout) -> Option<NonNull<u8>> {
        let id = self.0?;
        NonNull::new(ENGINE.heap_alloc_zeroed(
            id,
            layout.size(),
            layout.align(),
            "Heap::alloc_zeroed",
        ))
    }

    /// Resizes a block of this heap, and moves it if necessary. The result has the alignment of the
    /// new layout. On failure, returns `None` and leaves the block as it was.
    ///
    /// # Safety
    /// The block is one of this heap, and not freed yet. If the call succeeds, the program must use
    /// the returned block only.
    pub unsafe fn realloc(&self, block: NonNull<u8>, layout: Layout) -> Option<NonNull<u8>> {
        let (id, size, align) = (self.0?, layout.size(), layout.align());
        // SAFETY: the caller guarantees that the block is this heap's and in use.
        NonNull::new(unsafe {
            ENGINE.heap_realloc(id, block.as_ptr(), size, align, "Heap::realloc")
        })
    }

    /// Frees a block of this heap. The program stops if no block of this heap begins there, unless
    /// the system's allocator serves ([`EbbMalloc::is_active`](crate::EbbMalloc::is_active)).
    ///
    /// # Safety
    /// The block is one of this heap, and is not used any more.
    pub unsafe fn dealloc(&self, block: NonNull<u8>) {
        if let Some(id) = self.0 {
            // SAFETY: the caller guarantees that the block is not used any more.
            unsafe { ENGINE.heap_free(id, block.as_ptr(), "Heap::dealloc") }
        }
    }
}

/// A clone is the same heap.
impl Clone for Heap {
    fn clone(&self) -> Self {
        if let Some(id) = self.0 {
            ENGINE.share_heap(id, "Heap::clone");
        }
        Self(self.0)
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        if let Some(id) = self.0
            && ENGINE.unshare_heap(id, "Heap::drop")
        {
            // SAFETY: no block is used any more. Containers borrow the heap or own a clone. Blocks
            // from `alloc` can be used by unsafe code only, which must not do so now.
            unsafe { ENGINE.delete_heap(id, "Heap::drop") }
        }
    }
}

impl fmt::Debug for Heap {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_struct("Heap").field("used", &self.used()).finish_non_exhaustive()
    }
}
