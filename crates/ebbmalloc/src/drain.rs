//! Emptying caches that others may be using: the blocks go back to their spans, the memory of the
//! cache to the kernel.
//!
//! Percpu mode: a thread on that virtual CPU may be in the middle of a sequence. Headers are closed by a
//! swap; then the kernel restarts what is in progress on any CPU (membarrier(2), a command for
//! restartable sequences). A header that still is closed then was closed in time: a sequence begun
//! before would have stored its own in its place, or is restarted and finds it closed. So what the
//! stack holds is ours until the header is opened again. The idea to stop single CPUs that way is
//! tcmalloc's; that a header alone can say so, and the sequences need not ask, is because one that is
//! closed looks empty to a pop and full to a push.

use core::ptr;

use crate::cache::{Header, OwnedStack, Slab, has_changed, header_of, lock_of, used_bytes};
use crate::engine::{Engine, Mode};
use crate::os::Os;
use crate::size_class::{CLASSES, SizeClass};
use crate::sync::Ordering;

/// Blocks that are taken at a time.
const BATCH: usize = 64;

/// Which stacks to empty.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Which {
    /// Those that nobody has used since this was last asked.
    Unused,
    All,
}

impl<O: Os> Engine<O> {
    /// Empties stacks in the caches of CPUs. False if none is in use: changed since the last time, or
    /// not empty. The caller holds the lock of the rounds.
    pub(crate) fn drain(&self, which: Which) -> bool {
        let mut in_use = false;
        for number in 0..self.setup().caches {
            // SAFETY: there are as many.
            let slab = unsafe { self.region.slabs().add(number) };
            let mut chosen = [false; CLASSES];
            let (mut none_used, mut any_set_up) = (true, false);
            for class in SizeClass::all() {
                // SAFETY: it is a slab of this engine, all of which live as long.
                let (changed, header) =
                    unsafe { (has_changed(slab, class), header_of(slab, class)) };
                let used = changed && which == Which::Unused;
                let set_up = header.load(Ordering::Relaxed) != 0;
                none_used &= !used;
                any_set_up |= set_up;
                chosen[class.index()] = set_up && !used;
            }
            in_use |= any_set_up;
            if none_used && any_set_up {
                // Then all of the slab's memory can go, for which all stacks must stand still.
                chosen = [true; CLASSES];
            }
            if chosen.contains(&true) {
                self.drain_slab(slab, &chosen);
            }
        }
        in_use
    }

    /// Empties these stacks of a cache, as far as nobody is using them right now; does nothing where
    /// nobody can be stopped.
    fn drain_slab(&self, slab: *mut Slab, chosen: &[bool; CLASSES]) {
        let classes = || SizeClass::all().filter(|class| chosen[class.index()]);
        // SAFETY: as above.
        let header = |class| unsafe { header_of(slab, class) };
        let locking = self.setup().mode == Mode::Slot;
        // SAFETY: as above.
        let guard = locking.then(|| unsafe { lock_of(slab) }.lock());
        let mut old = [Header::default(); CLASSES];
        for class in classes() {
            let closed = Header::closed(class).to_bits();
            old[class.index()] = Header::from_bits(header(class).swap(closed, Ordering::AcqRel));
        }
        let stopped = locking || self.os.restart_sequences();
        let mut emptied = 0;
        for class in classes() {
            let closed = Header::closed(class).to_bits();
            let old = &mut old[class.index()];
            if !stopped {
                // Nothing has happened meanwhile that the old header would not be true for.
                let (same, header) = (old.to_bits(), header(class));
                let _ = header.compare_exchange(closed, same, Ordering::AcqRel, Ordering::Relaxed);
            } else if header(class).load(Ordering::Acquire) == closed {
                self.release_all(slab, class, old);
                emptied += 1;
            }
            // Else a sequence was just about to end: this is no idle stack.
        }
        if emptied == CLASSES - 1 {
            self.purge_slots(slab);
        }
        for class in classes() {
            let closed = Header::closed(class).to_bits();
            let _ = header(class).compare_exchange(closed, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
        drop(guard);
    }

    /// Gives back what the class's stack in this slab holds by this header. It is ours.
    fn release_all(&self, slab: *mut Slab, class: SizeClass, header: &mut Header) {
        // SAFETY: the header is closed, and nobody is in a sequence that began before.
        let stack = unsafe { OwnedStack::new(slab, class) };
        let mut batch = [ptr::null_mut(); BATCH];
        loop {
            let taken = stack.take(header, &mut batch);
            if taken == 0 {
                break;
            }
            self.release(class, &batch[..taken]);
        }
    }

    /// Returns the slots of a slab to the kernel, all of whose headers are closed. They read as zero,
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
