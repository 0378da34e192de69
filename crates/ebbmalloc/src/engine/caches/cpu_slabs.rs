//! Lists the slabs of the caches that belong to no thread: per-CPU caches, then transfer caches.
//! Reads and changes the headers of stacks that other threads may be using.
//!
//! In slot mode and thread mode threads share the per-CPU caches, each behind its lock.

use core::ops::Range;

use crate::engine::Engine;
use crate::engine::mode::Mode;
use crate::frontend::slab::{Header, Slab, header_of};
use crate::platform::os::Os;
use crate::platform::sync::{AtomicU64, Ordering};
use crate::size_class::SizeClass;

impl<O: Os> Engine<O> {
    /// Number of per-CPU caches and transfer caches.
    pub(crate) fn slab_count(&self) -> usize {
        self.setup().cpu_cache_count + self.setup().transfer_cache_count
    }

    /// The slabs of per-CPU caches and transfer caches.
    pub(crate) fn slabs(&self) -> impl Iterator<Item = *mut Slab> {
        self.slabs_of(0..self.slab_count())
    }

    /// The slabs that threads use without a lock: in percpu mode, those of the per-CPU caches.
    pub(crate) fn unlocked_slabs(&self) -> impl Iterator<Item = *mut Slab> {
        self.slabs_of(0..self.unlocked_count())
    }

    /// The slabs that only the holder of their lock uses: transfer caches, and all in the other
    /// modes.
    pub(crate) fn locked_slabs(&self) -> impl Iterator<Item = *mut Slab> {
        self.slabs_of(self.unlocked_count()..self.slab_count())
    }

    fn unlocked_count(&self) -> usize {
        if self.setup().mode == Mode::PerCpu { self.setup().cpu_cache_count } else { 0 }
    }

    fn slabs_of(&self, numbers: Range<usize>) -> impl Iterator<Item = *mut Slab> {
        // SAFETY: all callers stay below `slab_count`, the number of slabs in the region.
        numbers.map(|number| unsafe { self.region.slabs().add(number) })
    }
}

fn word<'a>(slab: *mut Slab, class: SizeClass) -> &'a AtomicU64 {
    // SAFETY: all callers pass slabs of an engine, which live as long as it does.
    unsafe { header_of(slab, class) }
}

pub(crate) fn header(slab: *mut Slab, class: SizeClass) -> Header {
    Header::from_bits(word(slab, class).load(Ordering::Acquire))
}

/// Atomically replaces the header of the class's stack by `to(header)`; false if that is `None`.
pub(crate) fn change(
    slab: *mut Slab,
    class: SizeClass,
    to: impl Fn(Header) -> Option<Header>,
) -> bool {
    let to = |bits| to(Header::from_bits(bits)).map(Header::to_bits);
    word(slab, class).try_update(Ordering::AcqRel, Ordering::Acquire, to).is_ok()
}

/// Calls [`reopen`] for all stacks of a slab.
#[inline(never)]
pub(crate) fn reopen_all(slab: *mut Slab) {
    SizeClass::all().for_each(|class| reopen(slab, class));
}

/// Opens the class's stack again with all its blocks, if it is closed and not taken.
///
/// A closed stack that is not taken has not changed. So an operation in progress may still store a
/// header that it made from the one before the closing. Any thread may do this for any slab.
pub(crate) fn reopen(slab: *mut Slab, class: SizeClass) {
    change(slab, class, |header| header.reopened(class));
}
