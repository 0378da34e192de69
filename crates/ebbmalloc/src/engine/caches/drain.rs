//! Emptying caches that others may be using: the blocks go back to their spans, the memory of the
//! cache to the kernel.
//!
//! Percpu mode: a thread on that virtual CPU may be in the middle of a sequence. Headers are closed by a
//! swap; then the sequences in progress must end. A header that still is closed afterwards was closed in
//! time: a sequence begun before would have stored its own in its place, or is restarted and finds it closed.
//! So what the stack holds may be ours until the header is opened again. That a header alone can say so, and
//! the sequences need not ask, is because one that is closed looks empty to a pop and full to a push.
//!
//! Thread mode: the owner works on its slab by plain loads and stores, which nothing restarts. But it says
//! that it is busy before it loads a header, and that it is not after it has stored one. Headers are closed;
//! then these stores must become visible. An owner that is not busy now is done with what it began before,
//! and what it begins later finds a header closed that still is: ours. One that is busy may be about to store
//! what it made of a header from before, so its stacks are opened again, and left alone until the next time.
//!
//! The drainer makes no system call to stop others (decisions/0032): a filter of system calls, which a
//! program may have installed since the start, may kill for it. In a process with one thread there is nobody
//! to stop. Else a stack stays closed for [`settle_ms`] first, and whoever needs it meanwhile opens it again,
//! as it was: it is in use. Only rounds close such stacks, those that nobody has used since the last round.
//!
//! The drainer may be descheduled. So a stack that is closed still is *taken* before it is emptied, and from
//! then on nobody else opens it.

use core::ptr;
use core::sync::atomic::AtomicU32;

use crate::engine::Engine;
use crate::engine::mode::Mode;
use crate::engine::tuning::{DRAIN_BATCH_BLOCKS, PERCPU_SETTLE_MS, THREAD_SETTLE_MS};
use crate::frontend::per_thread as thread;
use crate::frontend::slab::{
    Digests, Header, OwnedStack, Slab, digests_of, has_changed, header_of, lock_of, used_bytes,
};
use crate::platform::os::{Os, ThreadWords};
use crate::platform::sync::{AtomicU64, Ordering};
use crate::size_class::{CLASSES, SizeClass};

/// Which stacks to empty.
#[derive(Clone, Copy)]
pub(crate) enum DrainScope {
    /// Those that nobody has used since this was last asked.
    Unused,
    All,
    /// Those of these classes, by index.
    Classes([bool; CLASSES]),
}

impl DrainScope {
    /// Whether stacks of this class may be among them.
    pub fn has(self, class: SizeClass) -> bool {
        match self {
            Self::Unused | Self::All => true,
            Self::Classes(classes) => classes[class.index()],
        }
    }
}

impl<O: Os> Engine<O> {
    /// Empties stacks in the caches of CPUs, and of threads that are not at work on theirs. False if none is in use: changed since
    /// the last time, or not empty. The caller holds the lock of the rounds.
    #[inline(never)]
    pub(crate) fn drain(&self, which: DrainScope) -> bool {
        let mut in_use = false;
        // Slabs that nobody uses stay untouched, their locks too.
        for slab in self.locked_slabs().filter(|&slab| is_any_set_up(slab)) {
            // SAFETY: it is a slab of this engine, all of which live as long, and none of a thread's.
            let (seen, _guard) = unsafe { (digests_of(slab), lock_of(slab).lock()) };
            in_use |= close_chosen(slab, seen, which).0;
            self.empty_closed(slab);
        }
        match self.setup().mode {
            Mode::Slot => in_use,
            Mode::PerCpu => {
                // SAFETY: they are none of a thread's.
                let seen = |slab| (slab, unsafe { digests_of(slab) }, ptr::null());
                let slabs = || self.unlocked_slabs().map(seen);
                let stop = || self.os.restart_sequences();
                in_use | self.drain_under_work(slabs, which, PERCPU_SETTLE_MS, stop, |_| true)
            }
            Mode::Thread => {
                let stop = || self.os.pass_barrier();
                let is_at_rest = |words| thread::is_at_rest(&self.os, words);
                self.thread_slabs.batches().fold(in_use, |in_use, batch| {
                    let slabs = || batch.owned();
                    in_use | self.drain_under_work(slabs, which, THREAD_SETTLE_MS, stop, is_at_rest)
                })
            }
        }
    }

    /// Empties all caches of threads that are not at work on theirs, also where nobody can be stopped: takes a moment
    /// then. The caller holds the lock of the rounds.
    pub(crate) fn drain_threads(&self) {
        if self.setup().mode != Mode::Thread || self.os.can_stop() {
            return;
        }
        for batch in self.thread_slabs.batches() {
            batch.owned().for_each(|(slab, seen, _)| {
                close_chosen(slab, seen, DrainScope::All);
            });
        }
        self.os.sleep_ms(THREAD_SETTLE_MS);
        for batch in self.thread_slabs.batches() {
            for (slab, _, owner) in batch.owned().filter(|&(slab, ..)| is_any_closed(slab)) {
                self.empty_if(thread::is_at_rest(&self.os, owner), slab);
            }
        }
    }

    /// The same for some slabs on which others may work meanwhile. `stop` sees to it that nobody has a header
    /// from before any more who does not say so, or fails; `is_at_rest` tells that of an owner.
    fn drain_under_work<'a, I>(
        &self,
        slabs: impl Fn() -> I,
        which: DrainScope,
        settle_ms: u32,
        stop: impl Fn() -> bool,
        is_at_rest: impl Fn(*const ThreadWords) -> bool,
    ) -> bool
    where
        I: Iterator<Item = (*mut Slab, &'a Digests, *const ThreadWords)>,
    {
        if !self.os.can_stop() {
            return self.drain_settled(slabs, which, settle_ms, is_at_rest);
        }
        let (mut in_use, mut any_closed) = (false, false);
        for (slab, seen, _) in slabs() {
            let (any_set_up, any) = close_chosen(slab, seen, which);
            in_use |= any_set_up;
            any_closed |= any;
        }
        if any_closed {
            let stopped = stop();
            for (slab, _, owner) in slabs().filter(|&(slab, ..)| is_any_closed(slab)) {
                self.empty_if(stopped && is_at_rest(owner), slab);
            }
            // Where nobody can be stopped there is nothing to wait for either.
            in_use &= stopped;
        }
        in_use
    }

    /// The same where nobody can be stopped: empties stacks that have stayed closed for long enough. Rounds
    /// close others then.
    #[inline(never)]
    fn drain_settled<'a, I>(
        &self,
        slabs: impl Fn() -> I,
        which: DrainScope,
        settle_ms: u32,
        is_at_rest: impl Fn(*const ThreadWords) -> bool,
    ) -> bool
    where
        I: Iterator<Item = (*mut Slab, &'a Digests, *const ThreadWords)>,
    {
        let mut in_use = false;
        let now_ms = self.os.now_ms() as u32;
        for (slab, seen, owner) in slabs() {
            if is_any_closed(slab) {
                if now_ms.wrapping_sub(closed_at(seen).load(Ordering::Relaxed)) < settle_ms {
                    in_use = true;
                    continue;
                }
                self.empty_if(is_at_rest(owner), slab);
            }
            if matches!(which, DrainScope::Unused) {
                in_use |= close_chosen(slab, seen, which).0;
                // A time after the closing: this thread may have lost the CPU since `now_ms`.
                closed_at(seen).store(self.os.now_ms() as u32, Ordering::Relaxed);
            }
        }
        in_use
    }

    /// Empties the closed stacks of a slab if they are ours, or else opens them again.
    fn empty_if(&self, ours: bool, slab: *mut Slab) {
        if ours {
            self.empty_closed(slab);
        } else {
            reopen_all(slab);
        }
    }

    /// Gives back what closed stacks hold, if nobody has opened them again, and opens them, empty: one after the other, or
    /// together where the slab's memory can go.
    #[inline(never)]
    fn empty_closed(&self, slab: *mut Slab) {
        let together = closed(slab).count() == CLASSES - 1;
        for class in SizeClass::all().filter(|&class| change(slab, class, Header::taken)) {
            self.release_all(slab, class, header(slab, class).opened(class));
            if !together {
                open_empty(slab, class);
            }
        }
        let taken = || SizeClass::all().filter(|&class| header(slab, class).is_taken());
        if taken().count() == CLASSES - 1 {
            self.purge_slots(slab);
        }
        taken().for_each(|class| open_empty(slab, class));
    }

    /// Gives back what the class's stack in this slab holds by this header. It is ours.
    fn release_all(&self, slab: *mut Slab, class: SizeClass, mut header: Header) {
        // SAFETY: the stack is taken, and nobody has a header from before that it may store.
        let stack = unsafe { OwnedStack::new(slab, class) };
        let mut batch = [ptr::null_mut(); DRAIN_BATCH_BLOCKS];
        loop {
            let taken = stack.take(&mut header, &mut batch);
            if taken == 0 {
                break;
            }
            self.release(class, &batch[..taken]);
        }
    }

    /// Returns the slots of a slab to the kernel, all of whose stacks are taken. They read as zero,
    /// as the bottom of each stack must.
    fn purge_slots(&self, slab: *mut Slab) {
        let page = self.os.page_size();
        let bytes = used_bytes().next_multiple_of(page) - page;
        // SAFETY: in the slab, behind the headers, where nobody looks meanwhile.
        unsafe {
            let slots = slab.cast::<u8>().add(page);
            if !self.os.purge(slots, bytes) {
                slots.write_bytes(0, bytes);
            }
        }
    }
}

fn word<'a>(slab: *mut Slab, class: SizeClass) -> &'a AtomicU64 {
    // SAFETY: it is a slab of an engine, all of which live as long.
    unsafe { header_of(slab, class) }
}

fn header(slab: *mut Slab, class: SizeClass) -> Header {
    Header::from_bits(word(slab, class).load(Ordering::Acquire))
}

/// Replaces the header of the class's stack at once by what `to` makes of it; false if that is nothing.
fn change(slab: *mut Slab, class: SizeClass, to: impl Fn(Header) -> Option<Header>) -> bool {
    let to = |bits| to(Header::from_bits(bits)).map(Header::to_bits);
    word(slab, class).try_update(Ordering::AcqRel, Ordering::Acquire, to).is_ok()
}

/// Opens a stack that is taken, and empty by now.
fn open_empty(slab: *mut Slab, class: SizeClass) {
    // SAFETY: only we open what is taken.
    unsafe { OwnedStack::new(slab, class) }.set_header(Header::default());
}

/// The classes whose stacks are closed.
fn closed(slab: *mut Slab) -> impl Iterator<Item = SizeClass> {
    SizeClass::all().filter(move |&class| header(slab, class).is_closed())
}

/// When stacks of the slab were last closed to stay so for a while, in milliseconds by the clock of the operating
/// system below, of which these are the lower bits. Under the lock of the rounds.
fn closed_at(seen: &Digests) -> &AtomicU32 {
    // No class has this index.
    &seen[0]
}

fn is_any_set_up(slab: *mut Slab) -> bool {
    SizeClass::all().any(|class| !header(slab, class).is_new())
}

#[inline(never)]
fn is_any_closed(slab: *mut Slab) -> bool {
    closed(slab).next().is_some()
}

/// Closes the stacks that are to be emptied. Whether any was ever set up, and whether any is closed now.
#[inline(never)] // Three ways lead here, none of which is hot.
fn close_chosen(slab: *mut Slab, seen: &Digests, which: DrainScope) -> (bool, bool) {
    let (chosen, any_set_up) = choose(slab, seen, which);
    (any_set_up, close(slab, &chosen))
}

/// Which stacks to close, by class; and whether any was ever set up.
fn choose(slab: *mut Slab, seen: &Digests, which: DrainScope) -> ([bool; CLASSES], bool) {
    let mut chosen = [false; CLASSES];
    let (mut none_used, mut any_set_up) = (true, false);
    for class in SizeClass::all() {
        let header = header(slab, class);
        let set_up = !header.is_new();
        let stays = || match which {
            // SAFETY: as above.
            DrainScope::Unused => unsafe { has_changed(slab, class, seen) },
            DrainScope::All | DrainScope::Classes(_) => !which.has(class),
        };
        // Slabs that nobody uses stay untouched.
        let used = set_up && stays();
        none_used &= !used;
        any_set_up |= set_up;
        // Who waits for room begins anew with each round: rare misses shall not add up to it.
        let anew = matches!(which, DrainScope::Unused) && header.waits(class);
        chosen[class.index()] = set_up && (!used || anew);
    }
    if none_used && any_set_up {
        // Then all of the slab's memory can go, for which all stacks must stand still.
        chosen = [true; CLASSES];
    }
    (chosen, any_set_up)
}

/// Closes these stacks; false if there are none.
fn close(slab: *mut Slab, chosen: &[bool; CLASSES]) -> bool {
    let mut any = false;
    for class in SizeClass::all().filter(|class| chosen[class.index()]) {
        any |= change(slab, class, |header| Some(header.closed(class)));
    }
    any
}

/// Opens closed stacks again, as [`reopen`].
#[inline(never)]
pub(crate) fn reopen_all(slab: *mut Slab) {
    SizeClass::all().for_each(|class| reopen(slab, class));
}

/// Opens the class's stack again, if it is closed and nobody has taken it. Nothing has happened meanwhile: whoever is in progress may
/// store what it made of the header that was there before, as it is. Anybody may do this for any slab.
pub(crate) fn reopen(slab: *mut Slab, class: SizeClass) {
    change(slab, class, |header| header.reopened(class));
}
