//! Puts the layers together as one allocator, the engine, and keeps its state.
//!
//! `entry` has the functions that a program calls, `start.rs` the set-up, and `lifecycle.rs`
//! what runs at forks and exits.

// Lowest first: each uses only modules above it in this list.
pub(crate) mod tuning;
pub(crate) mod callbacks;
pub(crate) mod lookup;
pub(crate) mod refuse;
pub(crate) mod misuse;
pub(crate) mod sample;
pub(crate) mod caches;
pub(crate) mod change_options;
pub(crate) mod profile;
pub(crate) mod large;
pub(crate) mod scavenge;
pub(crate) mod heap_blocks;
pub(crate) mod profiled_blocks;
pub(crate) mod careful;
pub(crate) mod start;
pub(crate) mod user_heaps;
pub(crate) mod entry;
pub(crate) mod packing;
pub(crate) mod report;
pub(crate) mod lifecycle;

use crate::options::CAREFUL;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicIsize, AtomicU8, AtomicUsize};

use crate::backend::page_heap::PageHeap;
use crate::backend::region::{Region, UnitIndex};
use crate::backend::scavenger_state::{Rounds, Scavenger};
use crate::central::Central;
use crate::central::heap_record::Heaps;
use crate::engine::callbacks::Callbacks;
use crate::figures::choice::Choice;
use crate::frontend::near_cache::NearCache;
use crate::frontend::rseq::PerCpuBase;
use crate::frontend::thread_slabs::ThreadSlabs;
use crate::frontend::tuning::TRANSFER_CACHES_MAX;
use crate::frontend::{Mode, Preferred};
use crate::options::{Options, StatsChoice, TELLING};
use crate::platform::message::Line;
use crate::platform::os::Os;
use crate::platform::path::Path;
use crate::platform::sync::{AtomicU32, Lock, Ordering};
use crate::safety::check_table::CheckTable;
use crate::safety::guarded_slots::Samples;
use crate::safety::seal::Secret;
use crate::size_class::CLASSES;
use crate::telemetry::counters::Counters;
use crate::telemetry::profile::state::Profile;

/// [`Engine::state`] before set-up.
const COLD: u32 = 0;
/// [`Engine::state`] after set-up: from now on, nothing changes what set-up wrote.
pub(crate) const READY: u32 = 1;

/// An allocator over an operating system. Sets itself up on first use.
///
/// It begins at a page boundary. The fields that the hot path reads have other page offsets than
/// the headers and marks of a slab: a load waits for a store in progress at the same offset of
/// another page (decisions/0002).
#[repr(C, align(4096))]
pub struct Engine<O: Os> {
    pub(crate) state: AtomicU32,
    pub(crate) setup_lock: Lock<()>,
    pub(crate) preferred_slots: Preferred,
    pub(crate) heaps: Lock<Heaps>,
    pub(crate) scavenger: Scavenger,
    /// Whether the process has one thread only, in the fork that is in progress.
    pub(crate) fork_is_single_threaded: AtomicBool,
    /// Held by a round of the scavenger, and by all code that empties caches of other threads.
    pub(crate) rounds: Lock<Rounds>,
    /// Without a scavenger: bytes of small blocks that went back to spans since the last check for
    /// a burst.
    pub(crate) freed_bytes: AtomicUsize,
    pub(crate) samples: Samples,
    /// Number of per-CPU or shared caches that were ever used.
    pub(crate) caches_ever_used: AtomicUsize,
    /// The safety mode as a number of `telemetry/ledger.rs`, which other processes read.
    pub(crate) published_safety_mode: AtomicUsize,
    /// The program's functions for when memory is short.
    pub(crate) callbacks: Callbacks,
    pub(crate) os: O,
    /// Starts a cache line: the hot path reads the fields that follow.
    hot_line: CacheLine,
    /// [`PerCpuBase::area`] for the hot path in percpu mode; 0 before set-up, in the other modes,
    /// and while the engine counts operations, checks or hardens blocks, or profiles the heap.
    pub(crate) hot_area: AtomicIsize,
    /// [`Engine::hot_area`] for frees that trust their size; 0 also while blocks are sampled or the
    /// profile's heap has some, because such a free must then look at the address.
    pub(crate) hot_sized_area: AtomicIsize,
    /// The caches that the hot path of `free` pushes to. Set-up writes it before any block exists;
    /// it is read only afterwards.
    pub(crate) hot_base: UnsafeCell<PerCpuBase>,
    pub(crate) region: Region,
    /// Set-up alone writes it; it is read only afterwards.
    pub(crate) setup: UnsafeCell<Setup>,
    pub(crate) centrals: [Central; CLASSES],
    pub(crate) pages: Lock<PageHeap>,
    pub(crate) counters: Counters,
    pub(crate) thread_slabs: ThreadSlabs,
    /// The records of check mode. Its holder takes no other lock.
    pub(crate) check_table: Lock<CheckTable>,
    pub(crate) near_caches: [NearCache; TRANSFER_CACHES_MAX],
    pub(crate) profile: Profile,
    /// The format of the statistics at exit, if it was changed: a [`StatsChoice`] plus 1.
    pub(crate) stats_at_exit: AtomicU8,
    /// Whether [`Engine::finish`] is called at exit.
    pub(crate) has_exit_hook: AtomicBool,
}

/// Takes no bytes, but starts every fourth cache line: so a change of the fields before seldom
/// moves it.
#[repr(align(256))]
struct CacheLine;

/// The facts that set-up finds out, and the decisions that it makes.
#[repr(C)]
pub(crate) struct Setup {
    /// Where a thread finds its per-CPU cache, in percpu mode.
    pub percpu_base: PerCpuBase,
    /// Number of per-CPU caches. In the other modes, threads share as many.
    pub cpu_cache_count: usize,
    /// Number of transfer caches. Their slabs follow those of the per-CPU caches.
    pub transfer_cache_count: usize,
    /// In thread mode: threads that may have a cache of their own, at most.
    pub own_caches_max: usize,
    pub options: Options,
    pub mode: Mode,
    /// Whether the engine registers threads for restartable sequences, because no C library does.
    pub registers_threads: bool,
    /// `None` before set-up.
    pub choice: Option<Choice>,
    /// Read it by [`Engine::safety_mode`].
    pub safety_mode: SafetyMode,
    pub default_heaps: DefaultHeaps,
    /// The secret in the seals of hardened blocks.
    pub secret: Secret,
    /// `EBB_STATS_TO` and `EBB_PROFILE_TO` as they were given: the program may change its
    /// environment later. [`Path::of_process`] makes paths of them.
    pub stats_to: Path,
    pub profile_to: Path,
}

/// Whether the engine checks or hardens each block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SafetyMode {
    /// Neither.
    Off,
    /// It finds mistakes of the program (`careful/check`).
    Checked,
    /// It makes mistakes hard to exploit (`careful/harden`).
    Hardened,
}

/// In check and harden mode: the heaps of the blocks that belong to no heap of the program. Their
/// records are adjacent.
#[derive(Clone, Copy)]
pub(crate) struct DefaultHeaps {
    pub first: UnitIndex,
    pub count: u32,
    /// Units in the record of a heap, also of a heap of the program; 0 stands for 1.
    pub units: u32,
}

impl DefaultHeaps {
    pub const NONE: Self = Self { first: 0, count: 0, units: 0 };
}

// SAFETY: set-up alone writes `setup` and `hot_base`, under `setup_lock`. Threads read them only
// after set-up has published `state` or `hot_area`, or for a block. All other fields may be shared.
unsafe impl<O: Os> Sync for Engine<O> {}
// SAFETY: the pointers in an engine lead only to memory that this engine owns.
unsafe impl<O: Os + Send> Send for Engine<O> {}

impl<O: Os> Engine<O> {
    /// An engine that will set itself up on first use.
    pub const fn new(os: O) -> Self {
        Self {
            state: AtomicU32::new(COLD),
            setup_lock: Lock::new(()),
            preferred_slots: Preferred::new(),
            heaps: Lock::new(Heaps::new()),
            pages: Lock::new(PageHeap::new()),
            scavenger: Scavenger::new(),
            fork_is_single_threaded: AtomicBool::new(false),
            rounds: Lock::new(Rounds::new()),
            freed_bytes: AtomicUsize::new(0),
            samples: Samples::new(),
            os,
            hot_line: CacheLine,
            hot_area: AtomicIsize::new(0),
            hot_sized_area: AtomicIsize::new(0),
            hot_base: UnsafeCell::new(PerCpuBase::UNSET),
            region: Region::unset(),
            setup: UnsafeCell::new(Setup {
                percpu_base: PerCpuBase::UNSET,
                cpu_cache_count: 0,
                transfer_cache_count: 0,
                own_caches_max: 0,
                options: Options::DEFAULT,
                mode: Mode::Slot,
                registers_threads: false,
                choice: None,
                safety_mode: SafetyMode::Off,
                default_heaps: DefaultHeaps::NONE,
                secret: Secret::NONE,
                stats_to: Path::EMPTY,
                profile_to: Path::EMPTY,
            }),
            centrals: [const { Central::new() }; CLASSES],
            counters: Counters::new(),
            thread_slabs: ThreadSlabs::new(),
            check_table: Lock::new(CheckTable::new()),
            caches_ever_used: AtomicUsize::new(0),
            published_safety_mode: AtomicUsize::new(0),
            near_caches: [const { NearCache::new() }; TRANSFER_CACHES_MAX],
            profile: Profile::new(),
            callbacks: Callbacks::new(),
            stats_at_exit: AtomicU8::new(0),
            has_exit_hook: AtomicBool::new(false),
        }
    }

    /// The operating system that the engine runs on.
    pub fn os(&self) -> &O {
        &self.os
    }

    /// The decisions of set-up; their initial values before it.
    #[inline(always)]
    pub(crate) fn setup(&self) -> &Setup {
        // SAFETY: callers have seen `state` or `hot_area`, which set-up stores after its last
        // write.
        unsafe { &*self.setup.get() }
    }

    /// Whether the engine is set up. [`Engine::ready`] sets it up first.
    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        self.state.load(Ordering::Acquire) == READY
    }

    /// Whether the engine counts every operation.
    #[inline]
    pub(crate) fn counting(&self) -> bool {
        TELLING && self.setup().options.stats != StatsChoice::Off
    }

    /// Counts an allocation of the calling thread, if the engine counts.
    #[inline]
    pub(crate) fn count_alloc(&self, bytes: usize) {
        if self.counting() {
            self.counters.count(self.os.thread_token(), bytes, 0);
        }
    }

    /// Counts a free of the calling thread, if the engine counts.
    #[inline]
    pub(crate) fn count_free(&self, bytes: usize) {
        if self.counting() {
            self.counters.count(self.os.thread_token(), 0, bytes);
        }
    }

    /// Counts a large block that takes this many bytes.
    pub(crate) fn count_large(&self, bytes: usize) {
        self.counters.add_large(bytes);
        self.count_alloc(bytes);
    }

    /// Counts a large block that was freed.
    pub(crate) fn count_large_freed(&self, bytes: usize) {
        self.counters.remove_large(bytes);
        self.count_free(bytes);
    }

    /// Prints the reason as one line and aborts the process.
    #[cold]
    pub fn fail(&self, why: &str) -> ! {
        Line::print(&self.os, format_args!("{why}"));
        self.os.abort()
    }

    /// Reports a bug of the engine itself and aborts the process. A panic handler calls it.
    #[cold]
    pub fn broken(&self, info: &core::panic::PanicInfo) -> ! {
        Line::print(&self.os, format_args!("bug in ebbmalloc, please report: {info}"));
        self.os.abort()
    }

    /// Whether the engine checks or hardens blocks.
    #[inline]
    pub(crate) fn safety_mode(&self) -> SafetyMode {
        if CAREFUL && self.is_ready() { self.setup().safety_mode } else { SafetyMode::Off }
    }

    /// Whether every block belongs to a heap, as in check and harden mode. Then the engine knows
    /// the requested size of each.
    #[inline]
    pub fn all_in_heaps(&self) -> bool {
        self.safety_mode() != SafetyMode::Off
    }

    /// Whether the engine knows the requested size of this block. The program may then not use the
    /// bytes behind that size.
    #[inline]
    pub(crate) fn knows_size_of(&self, block: *mut u8) -> bool {
        self.all_in_heaps() || self.is_sampled(block)
    }

    /// Units in the record of a heap.
    pub(crate) fn heap_units(&self) -> u32 {
        self.setup().default_heaps.units.max(1)
    }

    /// Whether the engine checks each block.
    #[inline]
    pub(crate) fn checking(&self) -> bool {
        self.safety_mode() == SafetyMode::Checked
    }

    /// Whether the engine records stack traces, because it checks or samples blocks. If so, the
    /// code that sees the program start loads an unwinder and then calls [`Engine::begin_check`].
    pub fn wants_stacks(&self) -> bool {
        self.checking() || self.sampling()
    }

    /// Whether the engine makes mistakes hard to exploit.
    #[inline]
    pub(crate) fn hardening(&self) -> bool {
        self.safety_mode() == SafetyMode::Hardened
    }

    /// Whether the engine samples blocks.
    #[inline]
    pub(crate) fn sampling(&self) -> bool {
        self.samples.on()
    }

    /// Whether an address lies in the slots of sampled blocks.
    #[inline]
    pub(crate) fn is_sampled(&self, address: *mut u8) -> bool {
        self.samples.contains(address.addr())
    }
}

#[cfg(all(test, not(any(miri, loom))))]
mod tests {
    use core::mem::offset_of;

    use super::*;
    use crate::frontend::slab::{HEADERS_AT, Header, MARKS_AT, SlabMemory};
    use crate::platform::os::NativeFor;

    /// A load takes twice as long after a store to the same page offset.
    #[test]
    fn what_the_hot_path_reads_is_one_cache_line_and_not_where_it_writes_in_a_page() {
        const PAGE: usize = 4096;
        let begin = offset_of!(Engine<NativeFor<()>>, hot_area);
        let end = offset_of!(Engine<NativeFor<()>>, region) + Region::HOT_BYTES;
        assert_eq!(begin / 64, (end - 1) / 64, "{begin:#x} to {end:#x}");
        let headers_end = HEADERS_AT + CLASSES * size_of::<Header>();
        assert!(begin >= headers_end && end <= MARKS_AT % PAGE, "{begin:#x} to {end:#x}");
        assert_eq!(align_of::<Engine<NativeFor<()>>>(), PAGE);
        assert_eq!(align_of::<SlabMemory>(), PAGE);
    }
}
