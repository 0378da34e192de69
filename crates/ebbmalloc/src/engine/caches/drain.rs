//! Drains caches that other threads may be using: returns the blocks to their spans, and the memory
//! of an unused cache to the kernel.
//!
//! Percpu mode: a thread on that virtual CPU may be in the middle of a sequence. The drainer closes
//! headers by compare-and-swap; then the sequences in progress must end. Each of them has stored a
//! header of its own, or restarted and found the stack closed. So if a header is still closed, the
//! blocks in the stack are the drainer's until the header is opened again. Sequences need not ask
//! for the closed state: a closed header looks empty to a pop and full to a push.
//!
//! Thread mode: the owner works on its slab by plain loads and stores, which nothing restarts. But
//! it stores that it is busy before it loads a header, and that it is not after it has stored one.
//! The drainer closes headers; then these stores must become visible. If the owner is not busy now,
//! it has finished all earlier work, and its later work finds the closed headers: the stacks are
//! the drainer's. A busy owner may still store a header that it made from an earlier one. Then the
//! drainer opens the stacks again, and leaves them alone until the next time.
//!
//! In programs, the drainer makes no system call to stop other threads (decisions/0032): the
//! program may have installed a filter of system calls that kills for it. In a process with one
//! thread there is none to stop ([`can_stop`](crate::platform::os::OsThreads::can_stop); tests stop
//! threads). Otherwise a stack stays closed for [`PERCPU_SETTLE_MS`] or
//! [`THREAD_SETTLE_MS`] first. A thread that needs it meanwhile opens it again, with all its
//! blocks: then it is in use. Rounds close such stacks, but only those that no thread has used
//! since the last round; in thread mode malloc_trim closes them too, and waits (`drain_threads`).
//! Otherwise, with several threads, [`DrainScope::All`] and [`DrainScope::Classes`] close none of
//! them. They drain the slabs that have a lock, and stacks that a round has closed for long enough.
//!
//! The drainer may be descheduled. So it first marks a closed stack as *taken* and then empties it.
//! No other thread opens a taken stack.

use core::ptr;
use core::sync::atomic::AtomicU32;

use crate::backend::scavenger_state::Rounds;
use crate::engine::Engine;
use crate::engine::tuning::{
    DRAIN_BATCH_BLOCKS, PERCPU_SETTLE_MS, THREAD_SETTLE_MS, TRIM_WAIT_MS, TRIM_WAITS_AT_ONCE,
};
use crate::frontend::Mode;
use crate::frontend::owned_stack::OwnedStack;
use crate::frontend::per_thread as thread;
use crate::frontend::slab::{Digests, Header, Slab, used_bytes};
use crate::platform::os::{Os, ThreadWords};
use crate::platform::sync::Ordering;
use crate::size_class::{CLASSES, SizeClass};

/// Selects the stacks to drain.
#[derive(Clone, Copy)]
pub(crate) enum DrainScope {
    /// Stacks that no thread has used since the last drain with this scope.
    Unused,
    All,
    /// Stacks of the classes whose index has `true`.
    Classes([bool; CLASSES]),
}

impl DrainScope {
    /// Whether the scope may contain stacks of this class.
    pub fn has(self, class: SizeClass) -> bool {
        match self {
            Self::Unused | Self::All => true,
            Self::Classes(classes) => classes[class.index()],
        }
    }
}

impl<O: Os> Engine<O> {
    /// Drains near caches, unless the scope is a choice of classes, and stacks in transfer caches,
    /// shared caches, per-CPU caches, and own caches whose threads do not work on them now. False
    /// if no cache is in use: no stack was set up since the last drain, and near caches are empty.
    /// The caller holds the lock of the rounds.
    ///
    /// With several threads, per-CPU caches and own caches are drained only as the module says.
    #[inline(never)]
    pub(crate) fn drain(&self, scope: DrainScope) -> bool {
        let mut in_use = match scope {
            DrainScope::Classes(_) => false,
            DrainScope::Unused | DrainScope::All => {
                self.drain_near(matches!(scope, DrainScope::Unused))
            }
        };
        // A slab that was never used stays untouched, so that it does not become resident.
        for slab in self.locked_slabs().filter(|&slab| is_any_set_up(slab)) {
            // SAFETY: it is no slab of a thread.
            let (digests, _guard) = (unsafe { slab.digests() }, slab.lock().lock());
            in_use |= close_chosen(slab, digests, scope).0;
            self.empty_closed(slab);
        }
        match self.setup().mode {
            Mode::Slot => in_use,
            Mode::PerCpu => {
                // SAFETY: slabs of per-CPU caches are no slabs of threads.
                let with_digests = |slab: Slab| (slab, unsafe { slab.digests() }, ptr::null());
                let slabs = || self.unlocked_slabs().map(with_digests);
                in_use | self.drain_shared(slabs, scope, PERCPU_SETTLE_MS, |_| true)
            }
            Mode::Thread => {
                let is_at_rest = |words| thread::is_at_rest(&self.os, words);
                self.thread_slabs.batches().fold(in_use, |in_use, batch| {
                    let slabs = || batch.owned();
                    in_use | self.drain_shared(slabs, scope, THREAD_SETTLE_MS, is_at_rest)
                })
            }
        }
    }

    /// In thread mode with several threads: drains the own caches of threads that do not work on
    /// them now, after a wait of [`THREAD_SETTLE_MS`] if other threads have any. Where the program
    /// has trimmed too often for one more wait ([`TRIM_WAIT_MS`]), it drains nothing.
    pub(crate) fn drain_threads(&self, rounds: &mut Rounds) {
        let may_wait = self.setup().mode == Mode::Thread && !self.os.can_stop();
        let now_ms = self.os.now_ms();
        if !may_wait || now_ms < rounds.wait_due_ms {
            return;
        }
        let own_words = ptr::from_ref(self.os.thread_words());
        let mut must_settle = false;
        for batch in self.thread_slabs.batches() {
            for (slab, digests, owner) in batch.owned() {
                close_chosen(slab, digests, DrainScope::All);
                must_settle |= is_any_closed(slab) && !ptr::eq(owner, own_words);
            }
        }
        if must_settle {
            self.os.sleep_ms(THREAD_SETTLE_MS);
            let saved_ms = TRIM_WAIT_MS * TRIM_WAITS_AT_ONCE;
            let since_ms = rounds.wait_due_ms.max(now_ms.saturating_sub(saved_ms));
            rounds.wait_due_ms = since_ms + TRIM_WAIT_MS;
        }
        for batch in self.thread_slabs.batches() {
            for (slab, _, owner) in batch.owned().filter(|&(slab, ..)| is_any_closed(slab)) {
                self.empty_if(thread::is_at_rest(&self.os, owner), slab);
            }
        }
    }

    /// Drains slabs on which other threads may work meanwhile. `is_at_rest` says whether an owner
    /// is not busy.
    ///
    /// Where other threads can be stopped, it closes stacks and empties them. Else it empties those
    /// that have stayed closed for `settle_ms`, and a round ([`DrainScope::Unused`]) closes more.
    #[inline(never)]
    fn drain_shared<'a, I>(
        &self,
        slabs: impl Fn() -> I,
        scope: DrainScope,
        settle_ms: u32,
        is_at_rest: impl Fn(*const ThreadWords) -> bool,
    ) -> bool
    where
        I: Iterator<Item = (Slab, &'a Digests, *const ThreadWords)>,
    {
        let (can_stop, now_ms) = (self.os.can_stop(), self.os.now_ms() as u32);
        let (mut in_use, mut any_closed) = (false, false);
        for (slab, digests, owner) in slabs() {
            if !can_stop && is_any_closed(slab) {
                if now_ms.wrapping_sub(closed_at_ms(digests).load(Ordering::Relaxed)) < settle_ms {
                    in_use = true;
                    continue;
                }
                self.empty_if(is_at_rest(owner), slab);
            }
            if can_stop || matches!(scope, DrainScope::Unused) {
                let (any_set_up, closed) = close_chosen(slab, digests, scope);
                in_use |= any_set_up;
                any_closed |= closed;
                if closed {
                    // Read again, after the closing: this thread may have been descheduled since
                    // `now_ms`.
                    closed_at_ms(digests).store(self.os.now_ms() as u32, Ordering::Relaxed);
                }
            }
        }
        if can_stop && any_closed {
            let stopped = self.os.stop_others(self.setup().mode == Mode::PerCpu);
            for (slab, _, owner) in slabs().filter(|&(slab, ..)| is_any_closed(slab)) {
                self.empty_if(stopped && is_at_rest(owner), slab);
            }
        }
        in_use
    }

    /// Empties the closed stacks of a slab if they are the drainer's (`ours`), and reopens them if
    /// not.
    fn empty_if(&self, ours: bool, slab: Slab) {
        if ours {
            self.empty_closed(slab);
        } else {
            reopen_all(slab);
        }
    }

    /// Takes the stacks that are still closed, returns their blocks to the spans, and makes the
    /// stacks new.
    ///
    /// If all stacks are closed, it renews none before it has emptied the last. If it could take
    /// them all, it purges the slab's slots first.
    #[inline(never)]
    fn empty_closed(&self, slab: Slab) {
        let all_closed = closed(slab).count() == CLASSES - 1;
        for class in SizeClass::all().filter(|&class| slab.change(class, Header::taken)) {
            // SAFETY: this thread has taken the stack, and no other thread may store an earlier
            // header.
            let stack = unsafe { OwnedStack::new(slab, class) };
            let mut header = slab.header(class).opened(class);
            self.release_all(class, |batch| stack.take(&mut header, batch));
            if !all_closed {
                renew(slab, class);
            }
        }
        let taken = || SizeClass::all().filter(|&class| slab.header(class).is_taken());
        if taken().count() == CLASSES - 1 {
            self.purge_slots(slab);
        }
        taken().for_each(|class| renew(slab, class));
    }

    /// Returns the blocks of a stack to their spans, in batches that `take` fetches.
    fn release_all(&self, class: SizeClass, mut take: impl FnMut(&mut [*mut u8]) -> usize) {
        let mut batch = [ptr::null_mut(); DRAIN_BATCH_BLOCKS];
        loop {
            let taken = take(&mut batch);
            if taken == 0 {
                break;
            }
            self.release(class, &batch[..taken]);
        }
    }

    /// Purges the slots of a slab whose stacks are all taken. They then read as zero, as the bottom
    /// slot of each stack must.
    fn purge_slots(&self, slab: Slab) {
        let page = self.os.page_size();
        let bytes = used_bytes().next_multiple_of(page) - page;
        // SAFETY: the bytes lie in the slab, behind the page of the headers. No thread uses the
        // slots while all stacks are taken.
        unsafe {
            let slots = slab.address().add(page);
            if !self.os.purge(slots, bytes) {
                slots.write_bytes(0, bytes);
            }
        }
    }

    /// Returns the blocks of caches to their spans, as far as the caches can be emptied. Waits for
    /// a round that another thread runs.
    ///
    /// That is the calling thread's cache, those of ended threads, and those that [`Engine::drain`]
    /// empties. While several threads run, it leaves the caches of other CPUs and threads to the
    /// rounds.
    pub(crate) fn flush_all(&self) {
        self.flush_own(DrainScope::All);
        let _rounds = self.rounds.lock();
        self.drain(DrainScope::All);
    }

    /// Empties the calling thread's cache.
    pub fn flush_cache(&self) {
        if self.is_ready() {
            self.flush_own(DrainScope::All);
        }
    }

    /// As [`Engine::flush_all`] for the stacks in `scope`, but skips [`Engine::drain`] if another
    /// thread runs a round. Caches of ended threads lose the blocks of all classes.
    pub(crate) fn try_drain(&self, scope: DrainScope) {
        self.flush_own(scope);
        if let Some(_rounds) = self.rounds.try_lock() {
            self.drain(scope);
        }
    }

    /// Empties stacks in the calling thread's cache, and the caches of ended threads.
    #[inline(never)]
    fn flush_own(&self, scope: DrainScope) {
        for class in SizeClass::all().filter(|&class| scope.has(class)) {
            self.flush(class, usize::MAX, false);
        }
        self.flush_idle();
    }

    /// Number of blocks of a class in all caches. An estimate while other threads use their caches.
    pub(crate) fn cached_blocks(&self, class: SizeClass) -> usize {
        let cached_in = |slab: Slab| slab.cached_blocks(class);
        let mut cached = self.slabs().map(cached_in).sum();
        self.thread_slabs.for_each(|slab| cached += cached_in(slab));
        cached
    }

    /// Returns the blocks in caches of ended threads to their spans, and purges these caches.
    pub(crate) fn flush_idle(&self) {
        while let Some(slab) = self.thread_slabs.take_idle() {
            self.flush_slab(slab);
            // SAFETY: `take_idle` has just given us the slab, and it is empty.
            unsafe { self.thread_slabs.put_away(&self.os, slab) }
        }
    }

    /// Returns all blocks in a slab to their spans. No other thread uses the slab.
    #[inline(never)]
    pub(crate) fn flush_slab(&self, slab: Slab) {
        // An earlier round may have closed stacks while a thread owned the slab. Rounds skip it
        // now.
        reopen_all(slab);
        for class in SizeClass::all() {
            // SAFETY: all callers own the slab: no other thread uses it, and rounds skip it.
            let mut stack = unsafe { OwnedStack::new(slab, class) };
            self.release_all(class, |batch| stack.pop_batch(batch));
        }
    }
}

/// Opens all stacks of a slab again that are closed and not taken.
#[inline(never)]
fn reopen_all(slab: Slab) {
    SizeClass::all().for_each(|class| slab.reopen(class));
}

/// Makes a stack new that this thread has taken and emptied.
fn renew(slab: Slab, class: SizeClass) {
    // SAFETY: this thread has taken the stack, and no other thread opens or changes a taken stack.
    unsafe { OwnedStack::new(slab, class) }.set_header(Header::default());
}

/// The classes whose stacks are closed.
fn closed(slab: Slab) -> impl Iterator<Item = SizeClass> {
    SizeClass::all().filter(move |&class| slab.header(class).is_closed())
}

/// The low bits of `now_ms` when a round last closed stacks of the slab to settle. Only the
/// holder of the lock of the rounds reads or writes it.
fn closed_at_ms(digests: &Digests) -> &AtomicU32 {
    // No class has index 0.
    &digests[0]
}

fn is_any_set_up(slab: Slab) -> bool {
    SizeClass::all().any(|class| !slab.header(class).is_new())
}

#[inline(never)]
fn is_any_closed(slab: Slab) -> bool {
    closed(slab).next().is_some()
}

/// Closes the stacks to drain. Returns whether any was ever set up, and whether it has closed any.
#[inline(never)] // None of its callers is hot.
fn close_chosen(slab: Slab, digests: &Digests, scope: DrainScope) -> (bool, bool) {
    let (chosen, any_set_up) = choose(slab, digests, scope);
    (any_set_up, close(slab, &chosen))
}

/// Chooses the stacks to close, by class index; also returns whether any was ever set up.
fn choose(slab: Slab, digests: &Digests, scope: DrainScope) -> ([bool; CLASSES], bool) {
    let mut chosen = [false; CLASSES];
    let (mut none_used, mut any_set_up) = (true, false);
    for class in SizeClass::all() {
        let header = slab.header(class);
        let set_up = !header.is_new();
        let stays = || match scope {
            DrainScope::Unused => slab.has_changed(class, digests),
            DrainScope::All | DrainScope::Classes(_) => !scope.has(class),
        };
        // Asked only of stacks that were set up: `has_changed` writes a digest, and memory of a
        // slab that was never used must not become resident.
        let used = set_up && stays();
        none_used &= !used;
        any_set_up |= set_up;
        // A stack that waits for capacity starts to wait again with each round, so that rare misses
        // do not add up (decisions/0012).
        let restarts = matches!(scope, DrainScope::Unused) && header.waits(class);
        chosen[class.index()] = set_up && (!used || restarts);
    }
    if none_used && any_set_up {
        // No stack is in use, so all slots can be purged. For that, all stacks must be closed.
        chosen = [true; CLASSES];
    }
    (chosen, any_set_up)
}

/// Closes the chosen stacks; false if none is chosen.
fn close(slab: Slab, chosen: &[bool; CLASSES]) -> bool {
    let mut any = false;
    for class in SizeClass::all().filter(|class| chosen[class.index()]) {
        any |= slab.change(class, |header| Some(header.closed(class)));
    }
    any
}
