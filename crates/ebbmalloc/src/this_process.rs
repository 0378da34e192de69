//! The engine of this process, and its hooks. Where the engine does not run, `forward` takes this
//! file's place.

use core::alloc::{GlobalAlloc, Layout};

pub use crate::central::heap_record::HeapId;
use crate::engine::Engine;
use crate::options::Settings;
#[cfg(unix)]
use crate::platform::os::stay_loaded;
use crate::platform::os::{Hooks, NativeFor, Process};
#[cfg(all(target_os = "linux", not(ebbmalloc_posix)))]
use crate::platform::os::{constructors_run, destructors_run};

/// Whether the engine serves [`ENGINE`].
pub const IS_ACTIVE: bool = true;

/// The engine behind `EbbMalloc` and behind the C library. Sets itself up on first use.
pub static ENGINE: Engine<NativeFor<This>> = Engine::new(NativeFor::NEW);

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
        ENGINE.notify_scavenger();
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
#[cfg_attr(all(unix, not(target_os = "macos")), unsafe(link_section = ".init_array"))]
#[cfg_attr(target_os = "macos", unsafe(link_section = "__DATA,__mod_init_func"))]
#[cfg_attr(windows, unsafe(link_section = ".CRT$XCU"))]
static BEGIN: extern "C" fn() = {
    extern "C" fn begin() {
        #[cfg(all(target_os = "linux", not(ebbmalloc_posix)))]
        constructors_run();
        #[cfg(unix)]
        stay_loaded();
        ENGINE.begin_sampling();
        ENGINE.begin_profile();
    }
    begin
};

/// Stops use of the unwinder of a fully static program when destructors run.
#[used]
#[cfg(all(target_os = "linux", not(ebbmalloc_posix)))]
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

/// Allocates a block for an allocator that has these settings.
///
/// # Safety
/// As for `GlobalAlloc::alloc`.
#[inline(always)]
pub unsafe fn alloc_with(settings: &Settings, layout: Layout) -> *mut u8 {
    ENGINE.alloc_with(settings, layout.size(), layout.align())
}

/// Allocates a block of zeros for an allocator that has these settings.
///
/// # Safety
/// As for `GlobalAlloc::alloc_zeroed`.
#[inline(always)]
pub unsafe fn alloc_zeroed_with(settings: &Settings, layout: Layout) -> *mut u8 {
    ENGINE.alloc_zeroed_with(settings, layout.size(), layout.align())
}

// SAFETY: the engine hands out each block once until it is freed. Blocks are at least as large and
// as aligned as the layout says. The engine never unwinds.
unsafe impl GlobalAlloc for Engine<NativeFor<This>> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.alloc_aligned(layout.size(), layout.align())
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller guarantees that the block is in use and has this layout.
        unsafe { self.free_sized(block, layout.size(), layout.align()) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        self.alloc_aligned_zeroed(layout.size(), layout.align())
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller guarantees that the block is in use and has this layout.
        unsafe { Self::realloc(self, block, size, layout.align()) }
    }
}
