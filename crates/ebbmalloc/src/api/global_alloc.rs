//! [`EbbMalloc`], the global allocator for Rust.

use core::alloc::{GlobalAlloc, Layout};

use crate::figures::stats::Stats;
use crate::this_process::{ENGINE, IS_ACTIVE};

/// The allocator, for `#[global_allocator]`:
///
/// ```
/// #[global_allocator]
/// static GLOBAL: ebbmalloc::EbbMalloc = ebbmalloc::EbbMalloc;
///
/// assert_eq!(vec![1u8; 1000].iter().map(|&n| n as u32).sum::<u32>(), 1000);
/// ```
///
/// Environment variables configure it (`docs/options.md`). It serves any alignment.
///
/// It builds on every target that has the standard library. Where the engine does not run, all
/// calls go to the system's allocator ([`EbbMalloc::is_active`]).
#[derive(Clone, Copy, Default, Debug)]
pub struct EbbMalloc;

impl EbbMalloc {
    /// Returns whether the engine runs on this target: 64-bit little-endian Linux, so far.
    ///
    /// Elsewhere, the system's allocator serves `EbbMalloc` and [`Heap`](crate::Heap). Then
    /// statistics are zero, there are no heap profiles, environment variables have no effect, and
    /// wrong use is not noticed.
    pub const fn is_active() -> bool {
        IS_ACTIVE
    }

    /// Returns statistics of this process's memory at this moment. Does not allocate.
    ///
    /// ```
    /// use ebbmalloc::EbbMalloc;
    ///
    /// #[global_allocator]
    /// static GLOBAL: EbbMalloc = EbbMalloc;
    ///
    /// let before = EbbMalloc::stats().live_bytes;
    /// let kept = vec![1u8; 1 << 20];
    /// assert!(EbbMalloc::stats().live_bytes >= before + (1 << 20));
    /// drop(kept);
    ///
    /// // For Prometheus and similar tools; `write_json` and `write_text` exist too.
    /// let mut page = String::new();
    /// EbbMalloc::stats().write_openmetrics(&mut page).unwrap();
    /// assert!(page.contains("# TYPE ebbmalloc_live_bytes gauge"));
    /// ```
    pub fn stats() -> Stats {
        ENGINE.stats()
    }

    /// Returns free memory to the kernel, also from the calling thread's cache. Returns true if
    /// there was any.
    ///
    /// Programs need not call it regularly: ebbmalloc returns free memory by itself.
    ///
    /// ```
    /// use ebbmalloc::EbbMalloc;
    ///
    /// #[global_allocator]
    /// static GLOBAL: EbbMalloc = EbbMalloc;
    ///
    /// drop(vec![1u8; 1 << 20]);
    /// assert!(EbbMalloc::trim());
    /// assert_eq!(EbbMalloc::stats().dirty_bytes, 0);
    /// ```
    pub fn trim() -> bool {
        ENGINE.trim()
    }

    /// Returns some memory to the kernel that was not needed recently: for programs without
    /// threads, when they have nothing else to do.
    ///
    /// An event loop calls it before it waits. It returns true if the program should call it again
    /// after a fifth of a second; before then, a call does nothing. It returns false if there is
    /// nothing more to return, or if the engine's scavenger thread does this. That exists only
    /// while several threads have allocated and 4 MiB are in use.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use ebbmalloc::EbbMalloc;
    ///
    /// #[global_allocator]
    /// static GLOBAL: EbbMalloc = EbbMalloc;
    ///
    /// /// The longest time to wait for the next event.
    /// fn timeout() -> Option<Duration> {
    ///     EbbMalloc::idle().then_some(Duration::from_millis(200))
    /// }
    /// # timeout();
    /// ```
    pub fn idle() -> bool {
        ENGINE.idle()
    }
}

// SAFETY: that of `ENGINE`, to which all calls go.
//
// With link-time optimization and the feature `inline`, `alloc` and `dealloc` are inlined, and the
// size class is mostly a constant. The other two functions would take more space than that is
// worth.
unsafe impl GlobalAlloc for EbbMalloc {
    #[cfg_attr(feature = "inline", inline)]
    #[cfg_attr(not(feature = "inline"), inline(never))]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps to the same contract. For the functions below too.
        unsafe { GlobalAlloc::alloc(&ENGINE, layout) }
    }

    #[cfg_attr(feature = "inline", inline)]
    #[cfg_attr(not(feature = "inline"), inline(never))]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as for `alloc`.
        unsafe { GlobalAlloc::dealloc(&ENGINE, block, layout) }
    }

    #[inline(never)]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as for `alloc`.
        unsafe { GlobalAlloc::alloc_zeroed(&ENGINE, layout) }
    }

    #[inline(never)]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as for `alloc`.
        unsafe { GlobalAlloc::realloc(&ENGINE, block, layout, size) }
    }
}
