//! What the process tells the engine: forks, threads that end, its exit, and calls to trim or idle.

use crate::engine::Engine;
use crate::engine::mode::Mode;
use crate::engine::tuning::QUIET_CYCLES;
use crate::frontend::per_thread as thread;
use crate::frontend::slab::lock_of;
use crate::platform::os::Os;
use crate::platform::sync::Lock;
use crate::platform::sync::Ordering;
use crate::size_class::UNIT;

impl<O: Os> Engine<O> {
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
        if threaded && self.is_ready() && self.setup().mode == Mode::Thread {
            self.thread_slabs.orphan_all_but(thread::own(self.os.thread_words()));
        }
    }

    fn for_each_slab_lock(&self, work: impl Fn(&Lock<()>)) {
        // SAFETY: slabs live as long as the engine.
        self.locked_slabs().for_each(|slab| work(unsafe { lock_of(slab) }));
    }

    /// What the process does when it exits.
    pub fn finish(&self) {
        self.finish_safety_mode();
        if self.counting() {
            self.print_stats();
        }
    }

    /// Gives the calling thread's cache back, because the thread is about to exit: what it still
    /// allocates and frees then goes past caches. Does nothing where threads have nothing to give back.
    pub fn leave_thread(&self) {
        if self.setup().joining {
            self.os.leave_rseq();
        }
        let slab = thread::leave(self.os.thread_words());
        if !slab.is_null() {
            self.thread_slabs.disown(slab);
            self.flush_slab(slab);
            // SAFETY: it was this thread's, which let go of it.
            unsafe { self.thread_slabs.give(&self.os, slab) }
        }
    }

    /// What a program calls when it has nothing else to do, an event loop before it waits: gives
    /// some memory back that nobody needs. True if it is worth calling again, after a fifth of a
    /// second: before, it does nothing.
    pub fn idle(&self) -> bool {
        if !self.ready() || self.scavenger.call() {
            return false;
        }
        self.scavenge_if_due();
        self.rounds.lock().quiet < QUIET_CYCLES
    }

    /// Gives back what caches hold, and returns all free memory to the kernel. True if any went.
    pub fn trim(&self) -> bool {
        if !self.ready() {
            return false;
        }
        if self.checking() {
            self.verify_all("malloc_trim");
        }
        self.flush_all();
        let mut rounds = self.rounds.lock();
        self.drain_threads();
        rounds.quiet = 0;
        let purged =
            self.purge_free_pages(self.region.units_in(0..self.region.committed() / UNIT), false);
        let mut pages = self.pages.lock();
        let before = pages.counts.purged;
        pages.purge(&self.region, &self.os, 0);
        purged > 0 || pages.counts.purged > before
    }
}
