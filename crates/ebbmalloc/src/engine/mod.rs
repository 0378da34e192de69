//! The engine: all layers together, their set-up, and how they pass through a fork.
//! What a program calls is in `blocks.rs`.

#[cfg(not(loom))]
pub(crate) mod mode;
#[cfg(not(loom))]
pub(crate) mod cpu_slabs;
#[cfg(not(loom))]
pub(crate) mod entry;
#[cfg(not(loom))]
pub(crate) mod large;
#[cfg(not(loom))]
pub(crate) mod refill;
#[cfg(not(loom))]
pub(crate) mod flush;
#[cfg(not(loom))]
pub(crate) mod drain;
#[cfg(not(loom))]
pub(crate) mod reclaim;
#[cfg(not(loom))]
pub(crate) mod scavenge;
#[cfg(not(loom))]
pub(crate) mod user_heaps;
#[cfg(not(loom))]
pub(crate) mod careful;
pub(crate) mod report;

use core::cell::UnsafeCell;
use core::num::NonZeroUsize;
use core::sync::atomic::{AtomicBool, AtomicIsize, AtomicUsize};

use crate::frontend::slab::lock_of;
use crate::central::Central;
use crate::safety::check_table::CheckTable;
use crate::frontend::{Front, PerCpu, Preferred, Slots, Thread, per_thread as thread};
use crate::central::heap_record::Heaps;
use crate::telemetry::ledger::{CHECKED, HARDENED, SAMPLED, name_of_care};
use crate::engine::mode::{Choice, Decision, Mode, own_caches};
use crate::platform::options::{ExplainChoice, LimitChoice, Options, ScavengerChoice, StatsChoice, TELLING};
use crate::platform::os::Os;
use crate::backend::page_heap::Pages;
use crate::backend::region::{Region, UnitIndex};
use crate::frontend::rseq::Place;
use crate::safety::guarded_slots::Samples;
use crate::backend::scavenger_state::{Rounds, Scavenger};
use crate::safety::seal::Secret;
use crate::size_class::CLASSES;
use crate::platform::sync::{AtomicU32, Lock, Ordering};
use crate::platform::message::Line;
use crate::frontend::thread_slabs::ThreadSlabs;
use crate::telemetry::counters::Totals;
use crate::frontend::transfer_cache as transfer;
use crate::backend::zeroing::Zeroing;

/// Not set up yet.
const COLD: u32 = 0;
/// Set up; nothing written in the course of it changes any more.
const READY: u32 = 1;
/// The region could not be reserved; the next call tries again.
const FAILED: u32 = 2;

/// An allocator over an operating system. Sets itself up on first use.
///
/// Begins at a page, and what the hot path reads lies apart from where in its page a slab has its headers and marks: a load
/// at the same place in a page as a store that is under way waits for it (decisions/0002).
#[repr(C, align(4096))]
pub struct Engine<O: Os> {
    state: AtomicU32,
    starting: Lock<()>,
    preferred: Preferred,
    pub(crate) heaps: Lock<Heaps>,
    pub(crate) pages: Lock<Pages>,
    pub(crate) scavenger: Scavenger,
    /// The fork that is under way is that of the process's only thread.
    forks_alone: AtomicBool,
    /// Held while memory is given back that may be in use.
    pub(crate) rounds: Lock<Rounds>,
    pub(crate) samples: Samples,
    pub(crate) os: O,
    /// Has what follows begin a cache line, which the hot path reads.
    line: CacheLine,
    /// [`Place::area`] for the hot path in percpu mode; 0 in the others, before set-up, and
    /// while operations are counted or blocks are checked.
    pub(crate) hot_area: AtomicIsize,
    /// The same for frees that trust their size; 0 also where blocks are sampled, whose addresses must be looked at.
    pub(crate) hot_sized_area: AtomicIsize,
    /// Where the hot path finds caches to free to. Written during set-up, before anything is committed, and read only after it.
    hot_place: UnsafeCell<Place>,
    pub(crate) region: Region,
    /// Written during set-up only, and read only after it.
    setup: UnsafeCell<Setup>,
    pub(crate) centrals: [Central; CLASSES],
    pub(crate) totals: Totals,
    pub(crate) thread_slabs: ThreadSlabs,
    pub(crate) zeroing: Zeroing,
    /// What check mode knows. No other lock is taken while this is held.
    pub(crate) check_table: Lock<CheckTable>,
    /// How many of the caches of CPUs were ever in use.
    pub(crate) caches_used: AtomicUsize,
    /// Which care is taken of blocks, for whoever reads the ledger: `ledger.rs`.
    pub(crate) told_care: AtomicUsize,
}

/// Takes no room, and begins a cache line.
#[repr(align(64))]
struct CacheLine;

/// What set-up finds out and decides.
#[repr(C)]
pub(crate) struct Setup {
    pub place: Place,
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
    pub care: Care,
    pub homes: Homes,
    /// What blocks are sealed with.
    pub secret: Secret,
}

/// What is done with each block beside handing it out and taking it back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Care {
    /// Nothing.
    None,
    /// Everything that finds mistakes: `check`.
    Checked,
    /// What makes mistakes hard to exploit: `harden`.
    Hardened,
}

/// The heaps that blocks are of which are no other's, where all are blocks of heaps: their records lie one after
/// the other.
#[derive(Clone, Copy)]
pub(crate) struct Homes {
    pub first: UnitIndex,
    pub count: u32,
    /// Units that the record of a heap takes, of any; 0 for one.
    pub units: u32,
}

impl Homes {
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
            pages: Lock::new(Pages::new()),
            scavenger: Scavenger::new(),
            forks_alone: AtomicBool::new(false),
            rounds: Lock::new(Rounds::new()),
            samples: Samples::new(),
            os,
            line: CacheLine,
            hot_area: AtomicIsize::new(0),
            hot_sized_area: AtomicIsize::new(0),
            hot_place: UnsafeCell::new(Place::UNSET),
            region: Region::unset(),
            setup: UnsafeCell::new(Setup {
                place: Place::UNSET,
                caches: 0,
                transfers: 0,
                own_caches: 0,
                options: Options::DEFAULT,
                mode: Mode::Slot,
                joining: false,
                choice: None,
                care: Care::None,
                homes: Homes::NONE,
                secret: Secret::NONE,
            }),
            centrals: [const { Central::new() }; CLASSES],
            totals: Totals::new(),
            thread_slabs: ThreadSlabs::new(),
            zeroing: Zeroing::new(),
            check_table: Lock::new(CheckTable::new()),
            caches_used: AtomicUsize::new(0),
            told_care: AtomicUsize::new(0),
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

    /// Where a free finds the cache of its virtual CPU; [`Place::UNSET`] where there are none, or where each operation is counted.
    #[inline(always)]
    pub(crate) fn place_to_free(&self) -> Place {
        // SAFETY: callers have seen that something is committed, or `hot_area`, which is set later still.
        unsafe { *self.hot_place.get() }
    }

    /// True once the engine can serve. Sets it up if need be.
    #[inline]
    pub(crate) fn ready(&self) -> bool {
        self.state.load(Ordering::Acquire) == READY || self.start()
    }

    /// Sets the engine up, which otherwise the first allocation does. False if no address space
    /// can be had; the next call tries again.
    #[cold]
    #[inline(never)]
    pub fn start(&self) -> bool {
        let guard = self.starting.lock();
        if self.state.load(Ordering::Acquire) == READY {
            return true;
        }
        if let Some(why) = self.os.objection() {
            self.fail(why);
        }
        // SAFETY: under the lock, and nobody reads before the state says ready.
        let setup = unsafe { &mut *self.setup.get() };
        setup.options = Options::read(&self.os);
        if !TELLING && setup.options.is_telling() {
            let text = format_args!(
                "EBB_STATS and EBB_EXPLAIN are ignored: this program has ebbmalloc without its feature `stats`"
            );
            Line::print(&self.os, text);
        }
        let Decision { mode, area, refused, choice } = self.choose_mode(setup.options.mode);
        let caches = self.os.cpus();
        let transfers = transfer::count(caches);
        let slabs = caches + transfers;
        let reserved = self.region.set_up(&self.os, slabs);
        if let Some(area) = area {
            setup.place = Place::new(area, self.region.slabs(), caches);
            setup.joining = area.ours;
        }
        let counted = TELLING && setup.options.stats != StatsChoice::Off;
        // SAFETY: under the lock, and nobody reads before something is committed.
        unsafe {
            let open = mode == Mode::PerCpu && !counted;
            *self.hot_place.get() = if open { setup.place } else { Place::UNSET };
        }
        let lit = reserved && self.light_beacon(mode.name(), slabs);
        let care = if lit {
            let memory = self.os.memory_limit();
            self.pages.lock().retention.pressure.set_limit(memory);
            self.set_limit(setup.options.limit, memory);
            self.set_up_care(&setup.options)
        } else {
            None
        };
        let Some((care, homes)) = care else {
            if self.state.swap(FAILED, Ordering::Relaxed) != FAILED {
                Line::print(&self.os, format_args!("cannot map memory; is `ulimit -v` too low?"));
            }
            return false;
        };
        (setup.care, setup.homes) = (care, homes);
        if let Some(asked) = refused {
            let (asked, why, mode) = (asked.name(), choice.why, choice.mode);
            let text = format_args!("EBB_MODE={asked} is not possible: {why}; using {mode}");
            Line::print(&self.os, text);
        }
        match setup.care {
            Care::None => self.set_up_samples(setup.options.sample),
            Care::Checked => {}
            Care::Hardened => setup.secret = Secret(self.os.random(), self.os.random()),
        }
        let care = match setup.care {
            Care::Checked => CHECKED,
            Care::Hardened => HARDENED,
            Care::None if self.sampling() => SAMPLED,
            Care::None => 0,
        };
        self.told_care.store(care, Ordering::Relaxed);
        let choice = Choice { care: name_of_care(care), ..choice };
        if TELLING && setup.options.explain == ExplainChoice::On {
            Line::print(&self.os, format_args!("{}", self.told(choice)));
        }
        (setup.mode, setup.choice) = (mode, Some(choice));
        (setup.caches, setup.transfers) = (caches, transfers);
        setup.own_caches = own_caches(setup.options.mode, caches);
        let area = setup.place.area;
        let watched = counted || setup.care != Care::None;
        if setup.options.scavenger == ScavengerChoice::Off {
            self.scavenger.never();
        } else {
            self.look_for_first(self.os.thread_words());
        }
        // The kernel's function for this is found by a file, which a filter may forbid later.
        self.os.now_ms();
        self.state.store(READY, Ordering::Release);
        if mode == Mode::PerCpu && !watched {
            self.hot_area.store(area, Ordering::Release);
            if !self.sampling() {
                self.hot_sized_area.store(area, Ordering::Release);
            }
        }
        drop(guard);
        // These may allocate, which by now is possible.
        if let Some(hooks) = self.os.hooks() {
            if setup.options.scavenger != ScavengerChoice::Off {
                let _ = self.os.watch_threads(Some(hooks.at_thread_exit));
            }
            self.os.claim_thread_key();
            self.os.at_fork(hooks.before_fork, hooks.after_fork, hooks.after_fork_in_child);
            if watched {
                // A program in production keeps the descriptors that it has without.
                self.os.at_exit(hooks.at_exit, counted || setup.care == Care::Checked);
            }
            if self.sampling() {
                self.os.watch_faults(hooks.at_fault);
            }
        }
        true
    }

    fn set_limit(&self, choice: LimitChoice, memory: Option<u64>) {
        let bytes = match choice {
            LimitChoice::None => return,
            LimitChoice::Bytes(bytes) => Some(bytes),
            LimitChoice::Percent(share) => {
                memory.map(|all| (all as u128 * share as u128 / 100) as u64)
            }
        };
        match bytes {
            Some(bytes) => {
                let units = NonZeroUsize::new(bytes as usize / Region::UNIT_COST);
                self.pages.lock().limit = units.or(Some(NonZeroUsize::MIN));
            }
            None => Line::print(
                &self.os,
                format_args!(
                    "EBB_LIMIT is ignored: nothing says how much memory there is; give it in bytes"
                ),
            ),
        }
    }

    /// True where every operation is counted.
    #[inline]
    pub(crate) fn counting(&self) -> bool {
        TELLING && self.setup().options.stats != StatsChoice::Off
    }

    /// Counts an operation of the calling thread's.
    pub(crate) fn count_alloc(&self, bytes: usize) {
        self.totals.count(self.os.thread_key(), bytes, 0);
    }

    /// The same for a free.
    pub(crate) fn count_free(&self, bytes: usize) {
        self.totals.count(self.os.thread_key(), 0, bytes);
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

    /// Waits until no other thread is inside the engine and keeps all out, so that the child of
    /// a fork finds it whole. Followed by [`Engine::after_fork`] in the same thread.
    ///
    /// Restartable sequences need no waiting: what has not been committed was not done. Nor does the only thread of
    /// a process, which may be in a signal handler, and hold locks below it that it gives back after the fork, in both
    /// processes.
    pub fn before_fork(&self) {
        let alone = self.os.is_single();
        self.forks_alone.store(alone, Ordering::Relaxed);
        if alone {
            return;
        }
        self.starting.hold();
        self.rounds.hold();
        self.for_each_slab_lock(Lock::hold);
        self.thread_slabs.hold();
        for central in &self.centrals {
            central.spans().hold();
        }
        let heaps = self.heaps.lock();
        heaps.each(&self.region).for_each(|heap| heap.contents().hold());
        core::mem::forget(heaps);
        self.pages.hold();
        self.check_table.hold();
        self.samples.slots.hold();
    }

    /// Lets everybody in again, in the parent. In the child, [`Engine::after_fork_in_child`].
    pub fn after_fork(&self) {
        if self.forks_alone.load(Ordering::Relaxed) {
            return;
        }
        // SAFETY: `before_fork` took them, in this thread or in the one it is a copy of.
        unsafe {
            self.samples.slots.force_unlock();
            self.check_table.force_unlock();
            self.pages.force_unlock();
            let heaps = self.heaps.resume();
            heaps.each(&self.region).for_each(|heap| heap.contents().force_unlock());
            drop(heaps);
            for central in &self.centrals {
                central.spans().force_unlock();
            }
            self.thread_slabs.force_unlock();
            self.for_each_slab_lock(|lock| lock.force_unlock());
            self.rounds.force_unlock();
            self.starting.force_unlock();
        }
    }

    /// As [`Engine::after_fork`], in the child: it has no scavenger and one thread, and caches of threads that it
    /// does not have are for those that it starts, and for whoever trims.
    pub fn after_fork_in_child(&self) {
        self.after_fork();
        if self.hardening() {
            self.reseed();
        }
        self.os.thread_words().number.store(0, Ordering::Relaxed);
        if self.wants_stacks() {
            // Once more, before the child has a filter of system calls.
            self.os.thread_id();
        }
        self.scavenger.end_in_child(self.os.thread_words());
        let threaded = !self.forks_alone.load(Ordering::Relaxed);
        if threaded
            && self.state.load(Ordering::Acquire) == READY
            && self.setup().mode == Mode::Thread
        {
            self.thread_slabs.orphan_all_but(thread::own(self.os.thread_words()));
        }
    }

    fn for_each_slab_lock(&self, work: impl Fn(&Lock<()>)) {
        // SAFETY: slabs live as long as the engine.
        self.locked_slabs().for_each(|slab| work(unsafe { lock_of(slab) }));
    }

    /// What the process does when it exits.
    pub fn finish(&self) {
        self.finish_care();
        if self.counting() {
            self.print_stats();
        }
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
