//! Handles events of the process: forks, exits of threads, its own exit; and what the program asks
//! for: to trim, to idle, to start a heap profile, to change an option.

use crate::engine::Engine;
use crate::engine::tuning::QUIET_CYCLES;
use crate::frontend::Mode;
use crate::frontend::per_thread as thread;
use crate::options::{PROFILING, Place, ProfileChoice, SetError, StatsChoice, TELLING};
use crate::platform::os::Os;
use crate::platform::sync::{Lock, Ordering};
use crate::size_class::UNIT;
use crate::telemetry::tuning::PROFILE_MEAN_BYTES;

impl<O: Os> Engine<O> {
    /// Takes all locks, so that no other thread is inside the engine and the child of a fork finds
    /// it consistent. The same thread calls [`Engine::after_fork`] next.
    ///
    /// Restartable sequences need no waiting: one that has not committed has changed nothing. The
    /// only thread of a process takes no locks. It may fork in a signal handler that interrupted
    /// code which holds some. That code unlocks them after the fork, in both processes.
    pub fn before_fork(&self) {
        let is_single = self.os.is_single();
        self.fork_is_single_threaded.store(is_single, Ordering::Relaxed);
        if is_single {
            return;
        }
        self.setup_lock.hold();
        self.rounds.hold();
        self.profile.switch.hold();
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
        self.profile.table.hold();
        self.samples.slots.hold();
        self.near_caches().iter().for_each(|cache| cache.contents().hold());
    }

    /// Unlocks everything in the parent after a fork. In the child, [`Engine::after_fork_in_child`]
    /// does.
    pub fn after_fork(&self) {
        if self.fork_is_single_threaded.load(Ordering::Relaxed) {
            return;
        }
        // SAFETY: `before_fork` took all these locks, in this thread or in the parent's thread that
        // this one is a copy of.
        unsafe {
            self.near_caches().iter().for_each(|cache| cache.contents().force_unlock());
            self.samples.slots.force_unlock();
            self.profile.table.force_unlock();
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
            self.profile.switch.force_unlock();
            self.rounds.force_unlock();
            self.setup_lock.force_unlock();
        }
    }

    /// Does the work of [`Engine::after_fork`] in the child, which has one thread and no scavenger.
    ///
    /// Caches of threads that exist only in the parent become free slabs: new threads take them
    /// over, blocks included, and a flush empties them.
    pub fn after_fork_in_child(&self) {
        self.after_fork();
        if self.hardening() {
            self.reseed();
        }
        self.os.thread_words().number.store(0, Ordering::Relaxed);
        if self.wants_stacks() {
            // Asks the kernel for the child's id now: later a filter of system calls may be
            // installed.
            self.os.thread_id();
        }
        self.profile.written_bytes.store(0, Ordering::Relaxed);
        self.profile.is_writing.store(false, Ordering::Relaxed);
        self.callbacks.is_refusing.store(false, Ordering::Relaxed);
        self.scavenger.end_in_child(self.os.thread_words());
        let threaded = !self.fork_is_single_threaded.load(Ordering::Relaxed);
        if threaded && self.is_ready() && self.setup().mode == Mode::Thread {
            self.thread_slabs.orphan_all_but(thread::own(self.os.thread_words()));
        }
    }

    /// Calls `work` with the lock of each slab that has one.
    fn for_each_slab_lock(&self, work: impl Fn(&Lock<()>)) {
        self.locked_slabs().for_each(|slab| work(slab.lock()));
    }

    /// Reports at the exit of the process: findings of the safety mode, and statistics.
    pub fn finish(&self) {
        self.os.compare_stderr();
        self.finish_safety_mode();
        self.finish_profile();
        self.finish_stats();
    }

    /// Unregisters the calling thread, if the engine registered it, and flushes and frees its own
    /// cache, if it has one: the thread is about to exit. Its later calls go past caches.
    pub fn leave_thread(&self) {
        if self.setup().registers_threads {
            self.os.leave_rseq();
        }
        if let Some(slab) = thread::leave(self.os.thread_words()) {
            self.thread_slabs.disown(slab);
            self.flush_slab(slab);
            // SAFETY: the slab was this thread's. The thread has left it, and it is disowned and
            // flushed.
            unsafe { self.thread_slabs.give(&self.os, slab) }
        }
    }

    /// Switches the heap profile on: a block is sampled each `mean_bytes` bytes, on average. One
    /// that is on with this mean goes on; with another mean, a new one begins. Returns false if
    /// memory is short, the mean is 0, or this build has no profiles.
    pub fn start_profile(&self, mean_bytes: u64) -> bool {
        self.ready() && self.switch_profile_on(mean_bytes)
    }

    /// Runs a round of the scavenger if one is due and no scavenger thread exists. For programs
    /// with nothing else to do, such as an event loop before it waits.
    ///
    /// True if a later call may return more memory to the kernel. A call does nothing until a
    /// purge delay (`EBB_PURGE_DELAY`, 200 ms) has passed since the last round.
    pub fn idle(&self) -> bool {
        if !self.ready() || self.scavenger.notify() {
            return false;
        }
        self.scavenge_if_due(false);
        let mut rounds = self.rounds.lock();
        if self.scavenger.take_freed() {
            rounds.quiet = 0;
        }
        rounds.quiet < QUIET_CYCLES
    }

    /// Empties the caches that can be emptied, and returns all free memory and its addresses to the
    /// kernel. True if it returned memory.
    pub fn trim(&self) -> bool {
        if !self.ready() {
            return false;
        }
        if self.checking() {
            self.verify_all("malloc_trim");
        }
        self.flush_all();
        let mut rounds = self.rounds.lock();
        self.drain_threads(&mut rounds);
        rounds.quiet = 0;
        let purged =
            self.purge_free_pages(self.region.units_in(0..self.region.committed() / UNIT), false);
        let mut pages = self.pages();
        let before = pages.counts.purged;
        pages.make_room();
        purged > 0 || pages.counts.purged > before
    }

    /// Changes an option from now on. Its name is that of the variable in lower case, without the
    /// prefix, and its values are those of the variable.
    ///
    /// # Errors
    /// The reason why it stays as it was.
    pub fn set(&self, name: &str, value: &str) -> Result<(), SetError> {
        if !self.ready() {
            return Err(SetError::NotNow);
        }
        let mut options = self.setup().options;
        let place = options.change(name.as_bytes(), value.as_bytes())?;
        let is_done = match place {
            Place::profile if !PROFILING => false,
            Place::profile => match options.profile {
                ProfileChoice::Off => {
                    self.stop_profile();
                    true
                }
                ProfileChoice::Usual => self.start_profile(PROFILE_MEAN_BYTES),
                ProfileChoice::Mean(mean_bytes) => self.start_profile(mean_bytes.get() as u64),
            },
            Place::stats if TELLING => self.change_stats(options.stats),
            _ => return self.change_live(place, &options),
        };
        if is_done { Ok(()) } else { Err(SetError::NotNow) }
    }

    /// Sets the format of the statistics at exit. Operations are counted from the start or never.
    fn change_stats(&self, stats: StatsChoice) -> bool {
        self.stats_at_exit.store(stats as u8 + 1, Ordering::Relaxed);
        if let Some(hooks) = self.os.hooks()
            && !self.has_exit_hook.swap(true, Ordering::Relaxed)
        {
            self.os.keep_stderr(true);
            self.os.at_exit(hooks.at_exit);
        }
        true
    }
}
