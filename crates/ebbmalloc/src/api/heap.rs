//! Heaps for Rust programs: [`Heap`].

use core::alloc::Layout;
use core::fmt;
use core::ptr::NonNull;

use crate::api::global_alloc::ENGINE;
use crate::central::heap_record::HeapId;

/// A heap of its own: what is allocated from it goes at once when it is dropped, and a limit may bound it.
///
/// Containers choose it by the `Allocator` traits, which `&Heap` and `Heap` implement with the features
/// `allocator-api2` and `allocator-api`. Threads may share a heap. Each call takes its
/// lock, and a heap has no caches, so where many threads allocate all the time,
/// [`EbbMalloc`](crate::EbbMalloc) is faster.
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
/// // Beyond the limit allocating fails; `try_reserve` and its kin say so.
/// assert!(squares.try_reserve(1 << 20).is_err());
/// assert_eq!(squares[999], 998_001);
/// ```
///
/// What is in a heap cannot outlive it:
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
/// Where no lifetime tells how long a heap is needed, containers own it: a clone is the same heap, as
/// with [`Arc`](https://doc.rust-lang.org/std/sync/struct.Arc.html), and it goes with the last of them.
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
/// Values in a heap that nobody drops are not dropped with it, they just go: as with
/// [`mem::forget`](core::mem::forget), what they own elsewhere leaks.
pub struct Heap(Option<HeapId>);

impl Heap {
    /// A heap without a limit of its own. If there is no memory for its record, which takes 64 KiB, then
    /// allocating from it fails.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Self::with_limit(usize::MAX)
    }

    /// A heap whose blocks may use `bytes` bytes together, as rounded up to size classes, or to
    /// 64 KiB if they are larger than that: [`Heap::used`]. Beyond it allocating fails.
    pub fn with_limit(bytes: usize) -> Self {
        Self(ENGINE.new_heap(bytes))
    }

    /// Bytes that blocks of this heap use.
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
    /// // SAFETY: it is a block of this heap that nobody uses any more.
    /// unsafe { heap.dealloc(block) };
    /// assert_eq!(heap.used(), 0);
    /// ```
    pub fn used(&self) -> usize {
        self.0.map_or(0, |id| ENGINE.heap_used(id, "Heap::used"))
    }

    /// A block as the layout says; `None` if memory is short, or the limit forbids it. A block of size
    /// zero is a block like any other.
    pub fn alloc(&self, layout: Layout) -> Option<NonNull<u8>> {
        let id = self.0?;
        NonNull::new(ENGINE.heap_alloc(id, layout.size(), layout.align(), "Heap::alloc"))
    }

    /// As [`Heap::alloc`], and all bytes of the layout are zero.
    pub fn alloc_zeroed(&self, layout: Layout) -> Option<NonNull<u8>> {
        let id = self.0?;
        NonNull::new(ENGINE.heap_alloc_zeroed(
            id,
            layout.size(),
            layout.align(),
            "Heap::alloc_zeroed",
        ))
    }

    /// Resizes a block of this heap, and moves it if need be; it is aligned as the new layout says. Where
    /// that fails, `None` comes back, and the block stays as it was.
    ///
    /// # Safety
    /// The block is one of this heap, and not freed yet. If another comes back, it takes its place.
    pub unsafe fn realloc(&self, block: NonNull<u8>, layout: Layout) -> Option<NonNull<u8>> {
        let (id, size, align) = (self.0?, layout.size(), layout.align());
        // SAFETY: the caller's.
        NonNull::new(unsafe {
            ENGINE.heap_realloc(id, block.as_ptr(), size, align, "Heap::realloc")
        })
    }

    /// Frees a block of this heap. An address at which none begins stops the program.
    ///
    /// # Safety
    /// The block is one of this heap, and nobody uses it any more.
    pub unsafe fn dealloc(&self, block: NonNull<u8>) {
        if let Some(id) = self.0 {
            // SAFETY: the caller's.
            unsafe { ENGINE.heap_free(id, block.as_ptr(), "Heap::dealloc") }
        }
    }
}

/// The same heap once more.
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
            // SAFETY: whoever holds a block borrows the heap, or has vouched for it.
            unsafe { ENGINE.delete_heap(id, "Heap::drop") }
        }
    }
}

impl fmt::Debug for Heap {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_struct("Heap").field("used", &self.used()).finish_non_exhaustive()
    }
}
