//! [`EbbMalloc`](struct@EbbMalloc), the global allocator for Rust.

use core::alloc::{GlobalAlloc, Layout};

use crate::figures::stats::Stats;
use crate::options::{
    CheckChoice, DelayChoice, ExplainChoice, HardenChoice, HugeChoice, LimitChoice, ModeChoice,
    OnPressure, OnRefusal, PathChoice, Place, ProfileAtChoice, ProfileChoice, SampleChoice,
    ScavengerChoice, SetError, Settings, StatsChoice, methods_of_options,
};
use crate::this_process::{self, ENGINE, IS_ACTIVE};

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
///
/// A program may set options in its code. Their names are those of the environment variables, which
/// have the last word unless the code says [`fixed`](EbbMalloc::fixed):
///
/// ```
/// use ebbmalloc::EbbMalloc;
///
/// #[global_allocator]
/// static GLOBAL: EbbMalloc = EbbMalloc::new().limit_percent(75).harden();
/// # assert!(EbbMalloc::stats().limit_bytes > 0);
/// # assert_eq!(EbbMalloc::stats().choice.care, "harden");
/// ```
///
/// They take effect with the first block that this allocator serves, which Rust programs ask for
/// before `main`. Containers that allocate from an `EbbMalloc` keep a copy of all options; use
/// [`Global`] there, which has no size.
#[derive(Clone, Copy, Debug)]
pub struct EbbMalloc {
    settings: Settings,
}

/// The allocator with the options that the environment sets.
#[expect(non_upper_case_globals, reason = "reads as a value of a unit type")]
pub const EbbMalloc: EbbMalloc = EbbMalloc::new();

impl Default for EbbMalloc {
    fn default() -> Self {
        Self::new()
    }
}

/// The same allocator for containers: a value without size.
#[derive(Clone, Copy, Default, Debug)]
pub struct Global;

/// Sets options in code.
impl EbbMalloc {
    /// The allocator with all options at their defaults.
    pub const fn new() -> Self {
        Self { settings: Settings::NONE }
    }

    /// Fixes the options that are set here: the environment cannot change them.
    #[must_use]
    pub const fn fixed(mut self) -> Self {
        self.settings.is_fixed = true;
        self
    }

    methods_of_options!();
}

impl EbbMalloc {
    /// Returns whether the engine runs on this target: 64-bit little-endian Linux, and Windows on
    /// x86-64, so far.
    ///
    /// Elsewhere, the system's allocator serves `EbbMalloc` and [`Heap`](crate::Heap). Then
    /// statistics are zero, there are no heap profiles, options have no effect, functions for
    /// refusals and pressure are not called, and wrong use is not noticed.
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

    /// Changes an option from now on. The name is that of its variable in lower case without
    /// `EBB_`, and the value one of the variable's (`docs/options.md`). These can be changed:
    /// `limit`, `purge_delay`, `huge`, `scavenger`, `profile`, and `stats` (what is printed at
    /// exit).
    ///
    /// # Errors
    /// The reason why the option stays as it was.
    ///
    /// ```
    /// use ebbmalloc::{EbbMalloc, SetError};
    ///
    /// #[global_allocator]
    /// static GLOBAL: EbbMalloc = EbbMalloc;
    ///
    /// EbbMalloc::set("limit", "64MiB")?;
    /// assert!(Vec::<u8>::new().try_reserve(100 << 20).is_err());
    /// EbbMalloc::set("limit", "off")?;
    /// assert_eq!(EbbMalloc::set("harden", "on"), Err(SetError::OnlyAtStart));
    /// # Ok::<(), SetError>(())
    /// ```
    pub fn set(name: &str, value: &str) -> Result<(), SetError> {
        ENGINE.set(name, value)
    }

    /// Calls this function when a request for memory is refused, in the thread that makes it. It
    /// may allocate and free, but must not panic. `None` calls none.
    pub fn on_refusal(call: Option<OnRefusal>) {
        ENGINE.on_refusal(call);
    }

    /// Calls this function when `percent` percent of the limit are held, so that a server can shed
    /// load: in a thread that allocates, and again after a sixteenth less was held in between. It
    /// may allocate and free, but must not panic. `None` calls none.
    ///
    /// Without `EBB_LIMIT`, the limit is that of the control group, or the machine's memory.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicBool, Ordering};
    ///
    /// use ebbmalloc::EbbMalloc;
    ///
    /// #[global_allocator]
    /// static GLOBAL: EbbMalloc = EbbMalloc::new().limit(64 << 20);
    ///
    /// static IS_SHEDDING: AtomicBool = AtomicBool::new(false);
    ///
    /// extern "C" fn shed(_held_bytes: usize, _limit_bytes: usize) {
    ///     IS_SHEDDING.store(true, Ordering::Relaxed);
    /// }
    ///
    /// EbbMalloc::on_pressure(90, Some(shed));
    /// let much = vec![1u8; 60 << 20];
    /// assert!(IS_SHEDDING.load(Ordering::Relaxed));
    /// # drop(much);
    /// ```
    pub fn on_pressure(percent: u8, call: Option<OnPressure>) {
        ENGINE.on_pressure(percent, call);
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
    /// after the purge delay (`EBB_PURGE_DELAY`, 200 ms); before then, a call does nothing. It
    /// returns false if there is nothing more to return, or if the engine's scavenger thread does
    /// this. Only processes that have or had several threads have one.
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
        unsafe { this_process::alloc_with(&self.settings, layout) }
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
        unsafe { this_process::alloc_zeroed_with(&self.settings, layout) }
    }

    #[inline(never)]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as for `alloc`.
        unsafe { GlobalAlloc::realloc(&ENGINE, block, layout, size) }
    }
}

// SAFETY: as for `EbbMalloc`.
#[doc(hidden)]
unsafe impl GlobalAlloc for Global {
    #[cfg_attr(feature = "inline", inline)]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps to the same contract. For the functions below too.
        unsafe { GlobalAlloc::alloc(&ENGINE, layout) }
    }

    #[cfg_attr(feature = "inline", inline)]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as for `alloc`.
        unsafe { GlobalAlloc::dealloc(&ENGINE, block, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as for `alloc`.
        unsafe { GlobalAlloc::alloc_zeroed(&ENGINE, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as for `alloc`.
        unsafe { GlobalAlloc::realloc(&ENGINE, block, layout, size) }
    }
}
