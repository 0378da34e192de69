//! The engine: all layers together, their set-up, and how they pass through a fork.
//! What a program calls is in `blocks.rs`.

// Lowest first: each uses only modules above it in this list.
pub(crate) mod tuning;
pub(crate) mod mode;
pub(crate) mod lookup;
pub(crate) mod misuse;
pub(crate) mod sample;
pub(crate) mod caches;
pub(crate) mod large;
pub(crate) mod scavenge;
pub(crate) mod careful;
pub(crate) mod choose_mode;
pub(crate) mod start;
pub(crate) mod user_heaps;
pub(crate) mod entry;
pub(crate) mod report;
pub(crate) mod lifecycle;

use crate::platform::options::CAREFUL;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicIsize, AtomicUsize};

use crate::backend::page_heap::PageHeap;
use crate::backend::region::{Region, UnitIndex};
use crate::backend::scavenger_state::{Rounds, Scavenger};
use crate::backend::zeroing::Zeroing;
use crate::central::Central;
use crate::central::heap_record::Heaps;
use crate::engine::mode::{Choice, Mode};
use crate::frontend::rseq::PerCpuBase;
use crate::frontend::thread_slabs::ThreadSlabs;
use crate::frontend::{Front, PerCpu, Preferred, Slots, Thread, per_thread as thread};
use crate::platform::message::Line;
use crate::platform::options::{Options, StatsChoice, TELLING};
use crate::platform::os::Os;
use crate::platform::sync::{AtomicU32, Lock, Ordering};
use crate::safety::check_table::CheckTable;
use crate::safety::guarded_slots::Samples;
use crate::safety::seal::Secret;
use crate::size_class::CLASSES;
use crate::telemetry::counters::Counters;

/// [`Engine::state`] before set-up.
const COLD: u32 = 0;
/// The same once set up: nothing that set-up wrote changes any more.
pub(crate) const READY: u32 = 1;

/// An allocator over an operating system. Sets itself up on first use.
///
/// Begins at a page, and what the hot path reads lies apart from where in its page a slab has its headers and marks: a load
/// at the same place in a page as a store that is under way waits for it (decisions/0002).
#[repr(C, align(4096))]
pub struct Engine<O: Os> {
    pub(crate) state: AtomicU32,
    pub(crate) starting: Lock<()>,
    preferred: Preferred,
    pub(crate) heaps: Lock<Heaps>,
    pub(crate) pages: Lock<PageHeap>,
    pub(crate) scavenger: Scavenger,
    /// The fork that is under way is that of the process's only thread.
    pub(crate) forks_alone: AtomicBool,
    /// Held while memory is given back that may be in use.
    pub(crate) rounds: Lock<Rounds>,
    pub(crate) samples: Samples,
    pub(crate) os: O,
    /// Has what follows begin a cache line, which the hot path reads.
    line: CacheLine,
    /// [`PerCpuBase::area`] for the hot path in percpu mode; 0 in the others, before set-up, and
    /// while operations are counted or blocks are checked.
    pub(crate) hot_area: AtomicIsize,
    /// The same for frees that trust their size; 0 also where blocks are sampled, whose addresses must be looked at.
    pub(crate) hot_sized_area: AtomicIsize,
    /// Where the hot path finds caches to free to. Written during set-up, before anything is committed, and read only after it.
    pub(crate) hot_place: UnsafeCell<PerCpuBase>,
    pub(crate) region: Region,
    /// Written during set-up only, and read only after it.
    pub(crate) setup: UnsafeCell<Setup>,
    pub(crate) centrals: [Central; CLASSES],
    pub(crate) counters: Counters,
    pub(crate) thread_slabs: ThreadSlabs,
    pub(crate) zeroing: Zeroing,
    /// What check mode knows. No other lock is taken while this is held.
    pub(crate) check_table: Lock<CheckTable>,
    /// How many of the caches of CPUs were ever in use.
    pub(crate) caches_used: AtomicUsize,
    /// Which care is taken of blocks, for whoever reads the ledger: `ledger.rs`.
    pub(crate) published_safety_mode: AtomicUsize,
}

/// Takes no room, and begins a cache line.
#[repr(align(64))]
struct CacheLine;

/// What set-up finds out and decides.
#[repr(C)]
pub(crate) struct Setup {
    pub place: PerCpuBase,
    /// How many caches of CPUs there are.
    pub caches: usize,
    /// How many transfer caches there are, whose slabs follow.
    pub transfers: usize,
    /// How many threads may have caches of their own, in thread mode.
    pub own_caches: usize,
    pub options: Options,
    pub mode: Mode,
    /// Whether threads register themselves for restartable sequences.
    pub joining: bool,
    /// None before set-up.
    pub choice: Option<Choice>,
    /// [`Engine::care`] tells it.
    pub care: SafetyMode,
    pub default_heaps: DefaultHeaps,
    /// What blocks are sealed with.
    pub secret: Secret,
}

/// What is done with each block beside handing it out and taking it back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SafetyMode {
    /// Nothing.
    Off,
    /// Everything that finds mistakes: `check`.
    Checked,
    /// What makes mistakes hard to exploit: `harden`.
    Hardened,
}

/// The heaps that blocks are of which are no other's, where all are blocks of heaps: their records lie one after
/// the other.
#[derive(Clone, Copy)]
pub(crate) struct DefaultHeaps {
    pub first: UnitIndex,
    pub count: u32,
    /// Units that the record of a heap takes, of any; 0 for one.
    pub units: u32,
}

impl DefaultHeaps {
    pub const NONE: Self = Self { first: 0, count: 0, units: 0 };
}

// SAFETY: `setup` is written once, before `state` says ready and under a lock, and is only read
// afterwards. Everything else is shared by design.
unsafe impl<O: Os> Sync for Engine<O> {}
// SAFETY: the engine refers to memory that is nobody else's.
unsafe impl<O: Os + Send> Send for Engine<O> {}

impl<O: Os> Engine<O> {
    /// An engine that will set itself up on first use.
    pub const fn new(os: O) -> Self {
        Self {
            state: AtomicU32::new(COLD),
            starting: Lock::new(()),
            preferred: Preferred::new(),
            heaps: Lock::new(Heaps::new()),
            pages: Lock::new(PageHeap::new()),
            scavenger: Scavenger::new(),
            forks_alone: AtomicBool::new(false),
            rounds: Lock::new(Rounds::new()),
            samples: Samples::new(),
            os,
            line: CacheLine,
            hot_area: AtomicIsize::new(0),
            hot_sized_area: AtomicIsize::new(0),
            hot_place: UnsafeCell::new(PerCpuBase::UNSET),
            region: Region::unset(),
            setup: UnsafeCell::new(Setup {
                place: PerCpuBase::UNSET,
                caches: 0,
                transfers: 0,
                own_caches: 0,
                options: Options::DEFAULT,
                mode: Mode::Slot,
                joining: false,
                choice: None,
                care: SafetyMode::Off,
                default_heaps: DefaultHeaps::NONE,
                secret: Secret::NONE,
            }),
            centrals: [const { Central::new() }; CLASSES],
            counters: Counters::new(),
            thread_slabs: ThreadSlabs::new(),
            zeroing: Zeroing::new(),
            check_table: Lock::new(CheckTable::new()),
            caches_used: AtomicUsize::new(0),
            published_safety_mode: AtomicUsize::new(0),
        }
    }

    /// The operating system below.
    pub fn os(&self) -> &O {
        &self.os
    }

    /// What set-up decided; the initial values before it.
    #[inline(always)]
    pub(crate) fn setup(&self) -> &Setup {
        // SAFETY: callers have seen `state` or `hot_area`, which are set after the last write.
        unsafe { &*self.setup.get() }
    }

    /// Where a free finds the cache of its virtual CPU; [`PerCpuBase::UNSET`] where there are none, or where each operation is counted.
    #[inline(always)]
    pub(crate) fn place_to_free(&self) -> PerCpuBase {
        // SAFETY: callers have seen that something is committed, or `hot_area`, which is set later still.
        unsafe { *self.hot_place.get() }
    }

    /// True once the engine can serve: after [`Engine::ready`] has said so.
    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        self.state.load(Ordering::Acquire) == READY
    }

    /// True where every operation is counted.
    #[inline]
    pub(crate) fn counting(&self) -> bool {
        TELLING && self.setup().options.stats != StatsChoice::Off
    }

    /// Counts an operation of the calling thread's.
    pub(crate) fn count_alloc(&self, bytes: usize) {
        self.counters.count(self.os.thread_key(), bytes, 0);
    }

    /// The same for a free.
    pub(crate) fn count_free(&self, bytes: usize) {
        self.counters.count(self.os.thread_key(), 0, bytes);
    }

    /// Runs `work` on the calling thread's front end. It is found at run time, lest each piece of work be there three times.
    #[inline]
    pub(crate) fn front<R>(&self, work: impl FnOnce(&dyn Front) -> R) -> R {
        let setup = self.setup();
        let (percpu, thread, slots);
        let front: &dyn Front = match setup.mode {
            Mode::PerCpu => {
                percpu = PerCpu { place: setup.place, os: &self.os, joining: setup.joining };
                &percpu
            }
            Mode::Thread if !self.shares_caches() => {
                thread = Thread {
                    os: &self.os,
                    words: self.os.thread_words(),
                    slabs: &self.thread_slabs,
                    hot: !self.counting() && !self.all_in_heaps() && !self.sampling(),
                };
                &thread
            }
            Mode::Thread | Mode::Slot => {
                slots = Slots {
                    slabs: self.region.slabs(),
                    count: setup.caches,
                    preferred: &self.preferred,
                    key: self.os.thread_key(),
                };
                &slots
            }
        };
        work(front)
    }

    /// In thread mode: whether the thread is one of those that get no cache of their own.
    #[inline(never)] // A dozen ways lead here, none of which is hot.
    pub(crate) fn shares_caches(&self) -> bool {
        thread::is_beyond(self.os.thread_words(), &self.thread_slabs, self.setup().own_caches)
    }

    /// Ends the process with one line that says why.
    #[cold]
    pub fn fail(&self, why: &str) -> ! {
        Line::print(&self.os, format_args!("{why}"));
        self.os.abort()
    }

    /// Ends the process because the engine itself is wrong: what a panic handler calls.
    #[cold]
    pub fn broken(&self, info: &core::panic::PanicInfo) -> ! {
        Line::print(&self.os, format_args!("bug in ebbmalloc, please report: {info}"));
        self.os.abort()
    }

    /// Where the hot path finds caches; none where everything is to go through the slow path.
    #[inline(always)]
    fn hot_place(&self, area: &AtomicIsize) -> Option<PerCpuBase> {
        let area = area.load(Ordering::Acquire);
        if area == 0 {
            return None;
        }
        // The same place, whichever of the areas it is.
        Some(PerCpuBase { area, ..self.place_to_free() })
    }

    /// Which care is taken of blocks.
    #[inline]
    pub(crate) fn safety_mode(&self) -> SafetyMode {
        if CAREFUL { self.setup().care } else { SafetyMode::Off }
    }

    /// Whether all blocks are blocks of heaps.
    #[inline]
    pub(crate) fn all_in_heaps(&self) -> bool {
        self.safety_mode() != SafetyMode::Off
    }

    /// Whether it is known to the byte what each block was asked for with, so that sized frees can be compared.
    #[inline]
    pub fn knows_sizes(&self) -> bool {
        self.all_in_heaps()
    }

    /// The same of this block: then what follows its end is not the program's.
    #[inline]
    pub(crate) fn knows_size_of(&self, block: *mut u8) -> bool {
        self.knows_sizes() || self.is_sampled(block)
    }

    /// Units that the record of a heap takes.
    pub(crate) fn heap_units(&self) -> u32 {
        self.setup().default_heaps.units.max(1)
    }

    /// True where each block is checked.
    #[inline]
    pub(crate) fn checking(&self) -> bool {
        self.safety_mode() == SafetyMode::Checked
    }

    /// Whether blocks are checked or sampled, and so whoever sees the program start should have an unwinder loaded where there is
    /// none, and then call [`Engine::begin_check`].
    pub fn wants_stacks(&self) -> bool {
        self.checking() || self.sampling()
    }

    /// True where mistakes are made hard to exploit.
    #[inline]
    pub(crate) fn hardening(&self) -> bool {
        self.safety_mode() == SafetyMode::Hardened
    }

    /// True where blocks are sampled.
    #[inline]
    pub(crate) fn sampling(&self) -> bool {
        self.samples.on()
    }

    /// Whether an address lies where sampled blocks do.
    #[inline]
    pub(crate) fn is_sampled(&self, address: *mut u8) -> bool {
        self.samples.contains(address.addr())
    }
}

#[cfg(all(test, not(any(miri, loom))))]
mod tests {
    use core::mem::offset_of;

    use super::*;
    use crate::frontend::slab::{HEADERS_AT, Header, MARKS_AT, Slab};
    use crate::platform::os::Linux;

    /// What lies where it is written takes twice as long to read.
    #[test]
    fn what_the_hot_path_reads_is_one_cache_line_and_not_where_it_writes_in_a_page() {
        const PAGE: usize = 4096;
        let begin = offset_of!(Engine<Linux>, hot_area);
        let end = offset_of!(Engine<Linux>, region) + Region::HOT_BYTES;
        assert_eq!(begin / 64, (end - 1) / 64, "{begin:#x} to {end:#x}");
        let headers_end = HEADERS_AT + CLASSES * size_of::<Header>();
        assert!(begin >= headers_end && end <= MARKS_AT % PAGE, "{begin:#x} to {end:#x}");
        assert_eq!(align_of::<Engine<Linux>>(), PAGE);
        assert_eq!(align_of::<Slab>(), PAGE);
    }
}
