//! The engine of this process, its hooks, and [`EbbMalloc`], the global allocator for Rust.

use core::alloc::{GlobalAlloc, Layout};

use crate::engine::Engine;
use crate::engine::report::stats::Stats;
use crate::platform::os::{Hooks, LinuxFor, Process, constructors_run, destructors_run};

/// The engine behind [`EbbMalloc`] and behind the C library. Sets itself up on first use.
pub static ENGINE: Engine<LinuxFor<This>> = Engine::new(LinuxFor::NEW);

/// This process, which gives the engine its hooks.
#[derive(Clone, Copy, Debug)]
pub struct This;

impl Process for This {
    const HOOKS: Option<&'static Hooks> = Some(&Hooks {
        before_fork,
        after_fork,
        after_fork_in_child,
        at_thread_exit,
        at_exit,
        at_fault,
        at_profile_signal,
        scavenge,
    });
}

extern "C" fn before_fork() {
    ENGINE.before_fork();
}

extern "C" fn after_fork() {
    ENGINE.after_fork();
}

extern "C" fn after_fork_in_child() {
    ENGINE.after_fork_in_child();
}

extern "C" fn at_thread_exit(is_last: bool) {
    ENGINE.uncount_thread();
    if is_last {
        ENGINE.leave_thread();
        ENGINE.wake_scavenger();
    }
}

extern "C" fn at_exit() {
    ENGINE.finish();
}

extern "C" fn at_fault(address: usize, instruction: usize) {
    ENGINE.explain_fault(address, instruction);
}

extern "C" fn at_profile_signal() {
    ENGINE.ask_for_profile();
}

/// Starts sampling when constructors run. Before that, an unwinder may not be ready.
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = {
    extern "C" fn begin() {
        constructors_run();
        ENGINE.begin_sampling();
        ENGINE.begin_profile();
    }
    begin
};

/// Stops use of the unwinder of a fully static program when destructors run.
#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = {
    extern "C" fn end() {
        destructors_run();
    }
    end
};

extern "C" fn scavenge() {
    ENGINE.scavenge();
}

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
#[derive(Clone, Copy, Default, Debug)]
pub struct EbbMalloc;

impl EbbMalloc {
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
    /// nothing more to return, or if the engine's scavenger thread does this. Only processes
    /// that have or had several threads have one.
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

// SAFETY: the engine hands out each block once until it is freed. Blocks are at least as large and
// as aligned as the layout says. The engine never unwinds.
//
// With link-time optimization and the feature `inline`, `alloc` and `dealloc` are inlined, and the
// size class is mostly a constant. The other two functions would take more space than that is
// worth.
unsafe impl GlobalAlloc for EbbMalloc {
    #[cfg_attr(feature = "inline", inline)]
    #[cfg_attr(not(feature = "inline"), inline(never))]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ENGINE.alloc_aligned(layout.size(), layout.align())
    }

    #[cfg_attr(feature = "inline", inline)]
    #[cfg_attr(not(feature = "inline"), inline(never))]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller guarantees that the block is in use and has this layout.
        unsafe { ENGINE.free_sized(block, layout.size(), layout.align()) }
    }

    #[inline(never)]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        ENGINE.alloc_aligned_zeroed(layout.size(), layout.align())
    }

    #[inline(never)]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller guarantees that the block is in use and has this layout.
        unsafe { ENGINE.realloc(block, size, layout.align()) }
    }
}
