//! The slabs of thread mode: commits one for each thread that starts, and hands the slabs of ended
//! threads to the next.
//!
//! A table beside the slabs records which are free, so that all the memory of an unused slab can go
//! back to the kernel. A free slab may hold blocks: the next thread takes them over. The table also
//! has the address of the owner's words, which a drainer needs (`engine/caches/drain.rs`).

use core::ops::Range;
use core::ptr;

use crate::frontend::slab::{Digests, Slab, used_bytes};
use crate::frontend::tuning::{
    SLABS_PER_BATCH, THREAD_SLABS_ADDRESS_DIVISOR, THREAD_SLABS_MAX, WARM_SLABS_MAX,
};
use crate::platform::os::{Os, ThreadWords, choose};
use crate::platform::sync::{AtomicUsize, Guard, Lock, Ordering, const_fn};

/// The link of a slab that a thread has. Other links are the number of the next slab plus 1; 0 ends
/// the list.
const OWNED: u32 = u32::MAX;

/// The record of a slab, in the table beside the slabs.
#[repr(C)]
struct SlabRecord {
    link: u32,
    /// The digests for [`Slab::has_changed`].
    digests: Digests,
    /// The words of the thread that has the slab. Null if no thread has it, or if the thread is
    /// about to give it up.
    owner: *const ThreadWords,
}

/// The lists of free slabs, in the order in which they are taken from.
#[derive(Clone, Copy)]
enum Tier {
    /// Resident. Those that a fork left behind, because it did not copy their threads, may hold
    /// blocks. Others are empty, but for a block that a signal handler freed at the last moment.
    Warm,
    /// Purged, so all zero.
    Cold,
}

/// All slabs of threads.
pub(crate) struct ThreadSlabs {
    slabs: Lock<Slabs>,
    /// Number of threads that have a slab.
    taken: AtomicUsize,
}

// The order of the first five fields is fixed: `telemetry/remote_ledger.rs` reads them in other
// processes, as [`ShownSlabs`].
#[repr(C)]
struct Slabs {
    /// The first slab; null before set-up.
    start: *mut u8,
    /// Distance between two slabs in bytes: less than the size of a [`Slab`], whose end is never
    /// used.
    stride: usize,
    /// The table of records, before the first slab; null before set-up.
    records: *mut SlabRecord,
    /// Number of slabs that the chosen addresses have space for.
    capacity: usize,
    /// Number of slabs that are committed; these are always the lowest.
    committed: usize,
    /// Bytes of records that are committed.
    record_bytes: usize,
    /// By tier, the number of the first slab plus 1; 0 for an empty list.
    heads: [u32; 2],
    /// Number of slabs in [`Tier::Warm`].
    warm: u32,
}

/// The first fields of [`Slabs`], as another process reads them.
#[derive(Clone, Copy, Default, Debug)]
#[repr(C)]
pub(crate) struct ShownSlabs {
    pub start: usize,
    pub stride: usize,
    pub records: usize,
    pub capacity: usize,
    pub committed: usize,
}

impl ShownSlabs {
    /// Decodes the bytes that were read from another process with pages of `page` bytes. `None` if
    /// there are no slabs, or no process has slabs like these.
    pub fn from_bytes(bytes: &[u8; size_of::<Self>()], page: usize) -> Option<Self> {
        // SAFETY: the array is as long as the structure, for which any bytes are valid.
        let shown = unsafe { bytes.as_ptr().cast::<Self>().read_unaligned() };
        let is_possible = shown.records != 0
            && shown.stride == stride(page)
            && shown.committed <= shown.capacity
            && shown.capacity <= THREAD_SLABS_MAX;
        is_possible.then_some(shown)
    }

    /// Bytes of the records of committed slabs, in whole pages.
    pub fn records_bytes(&self, page: usize) -> usize {
        if self.records == 0 { 0 } else { records_bytes(self.committed.max(1), page) }
    }
}

/// Bytes from one slab to the next.
fn stride(page: usize) -> usize {
    used_bytes().next_multiple_of(page)
}

fn records_bytes(slabs: usize, page: usize) -> usize {
    (slabs * size_of::<SlabRecord>()).next_multiple_of(page)
}

/// Some of the slabs, under the lock of all. While the value lives, no thread takes a slab or gives
/// one up.
pub(crate) struct LockedSlabs<'a> {
    slabs: Guard<'a, Slabs>,
    numbers: Range<usize>,
}

impl LockedSlabs<'_> {
    /// The slabs that threads have: the slab, its digests, and the words of its owner.
    pub fn owned(&self) -> impl Iterator<Item = (Slab, &Digests, *const ThreadWords)> {
        let each = self.numbers.clone().map(|number| {
            let record = self.slabs.record(number);
            (self.slabs.slab(number), &record.digests, record.owner)
        });
        each.filter(|(_, _, owner)| !owner.is_null())
    }
}

// SAFETY: only the holder of the lock reaches the table and the lists through the pointers.
unsafe impl Send for Slabs {}

impl ThreadSlabs {
    const_fn! {
        /// No slabs yet.
        pub fn new() -> Self {
            Self { slabs: Lock::new(Slabs::NONE), taken: AtomicUsize::new(0) }
        }
    }

    /// Chooses addresses for slabs, unless they are chosen already. Fails with a reason.
    pub fn set_up(&self, os: &impl Os) -> Result<(), &'static str> {
        let mut slabs = self.slabs.lock();
        let page = os.page_size();
        if slabs.start.is_null() {
            let stride = stride(page);
            let capacity =
                (os.address_space() / THREAD_SLABS_ADDRESS_DIVISOR / stride).min(THREAD_SLABS_MAX);
            let records = records_bytes(capacity, page);
            let bytes = records + capacity * stride;
            // Commits the first page, of records.
            let chosen = if capacity > 0 { choose(os, bytes, page) } else { None };
            slabs.records = chosen.ok_or("too little memory")?.as_ptr().cast();
            slabs.start = slabs.records.cast::<u8>().wrapping_add(records);
            (slabs.stride, slabs.capacity, slabs.record_bytes) = (stride, capacity, page);
        }
        Ok(())
    }

    /// The address at which another process reads [`ShownSlabs`].
    pub fn shown_at(&self) -> usize {
        (&raw const *self.slabs.lock()).addr()
    }

    /// The addresses and numbers of slabs, as another process reads them.
    pub fn shown(&self) -> ShownSlabs {
        let slabs = self.slabs.lock();
        ShownSlabs {
            start: slabs.start.addr(),
            stride: slabs.stride,
            records: slabs.records.addr(),
            capacity: slabs.capacity,
            committed: slabs.committed,
        }
    }

    /// Number of threads that have a slab.
    pub fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// Takes a slab for the thread that has these words. `None` if there are no more addresses, or
    /// no more memory.
    pub fn take(&self, os: &impl Os, owner: *const ThreadWords) -> Option<Slab> {
        let mut slabs = self.slabs.lock();
        let free = slabs.pop(Tier::Warm).or_else(|| slabs.pop(Tier::Cold));
        let number = free.or_else(|| slabs.commit_next(os))?;
        self.taken.fetch_add(1, Ordering::Relaxed);
        slabs.record_mut(number).owner = owner;
        Some(slabs.slab(number))
    }

    /// Forgets the owner of a slab, so that drainers leave the slab and the owner's words alone.
    /// From then on only the caller works on the slab. Followed by [`ThreadSlabs::give`].
    pub fn disown(&self, slab: Slab) {
        let mut slabs = self.slabs.lock();
        let number = slabs.number(slab);
        slabs.record_mut(number).owner = ptr::null();
    }

    /// All slabs, in batches of [`SLABS_PER_BATCH`].
    pub fn batches(&self) -> impl Iterator<Item = LockedSlabs<'_>> {
        (0..).step_by(SLABS_PER_BATCH).map_while(|start| {
            let slabs = self.slabs.lock();
            let numbers = start..slabs.committed.min(start + SLABS_PER_BATCH);
            (!numbers.is_empty()).then_some(LockedSlabs { slabs, numbers })
        })
    }

    /// Returns a slab, which is empty, for the next thread that needs one.
    ///
    /// # Safety
    /// The slab was taken by [`ThreadSlabs::take`], and no thread uses it any more.
    pub unsafe fn give(&self, os: &impl Os, slab: Slab) {
        let mut slabs = self.slabs.lock();
        self.taken.fetch_sub(1, Ordering::Relaxed);
        let tier = if slabs.warm < WARM_SLABS_MAX { Tier::Warm } else { Tier::Cold };
        // SAFETY: the slab was taken, so it is in no list; the caller guarantees that it is unused.
        unsafe { slabs.put(os, tier, slab) }
    }

    /// Takes a resident slab that no thread has, to empty it. Followed by
    /// [`ThreadSlabs::put_away`].
    pub fn take_idle(&self) -> Option<Slab> {
        let mut slabs = self.slabs.lock();
        slabs.pop(Tier::Warm).map(|number| slabs.slab(number))
    }

    /// Returns a slab, which is empty, and its memory to the kernel.
    ///
    /// # Safety
    /// The slab was taken by [`ThreadSlabs::take_idle`], and no thread uses it any more.
    pub unsafe fn put_away(&self, os: &impl Os, slab: Slab) {
        // SAFETY: the slab was taken, so it is in no list; the caller guarantees that it is unused.
        unsafe { self.slabs.lock().put(os, Tier::Cold, slab) }
    }

    /// In the child of a fork, whose only thread has slab `own`, if any: moves the slabs of all
    /// other threads to [`Tier::Warm`], whose next users get their blocks. Their stacks are
    /// consistent, as their owners commit by storing a header.
    pub fn orphan_all_but(&self, own: Option<Slab>) {
        let mut slabs = self.slabs.lock();
        for number in 0..slabs.committed {
            if slabs.link(number) == OWNED && Some(slabs.slab(number)) != own {
                slabs.push(Tier::Warm, number);
            }
        }
        self.taken.store(own.is_some() as usize, Ordering::Relaxed);
    }

    /// Runs `work` on every committed slab, free or not: for statistics.
    pub fn for_each(&self, mut work: impl FnMut(Slab)) {
        let slabs = self.slabs.lock();
        (0..slabs.committed).for_each(|number| work(slabs.slab(number)));
    }

    /// Panics unless each slab is a thread's or in one list: for tests.
    pub fn check(&self) {
        let slabs = self.slabs.lock();
        let linked = (0..slabs.committed).filter(|&number| slabs.link(number) != OWNED).count();
        assert_eq!(slabs.committed - linked, self.taken(), "slabs of threads");
        let mut listed = 0;
        for tier in [Tier::Warm, Tier::Cold] {
            let (before, mut next) = (listed, slabs.heads[tier as usize]);
            while let Some(number) = next.checked_sub(1) {
                assert!(listed < linked && (number as usize) < slabs.committed, "slab {number}");
                let SlabRecord { owner, link, .. } = slabs.record(number as usize);
                assert!(owner.is_null(), "slab {number} is free, and a thread's");
                (listed, next) = (listed + 1, *link);
            }
            assert!(!matches!(tier, Tier::Warm) || listed - before == slabs.warm as usize);
        }
        assert_eq!(listed, linked, "free slabs");
    }

    /// Locks without a guard: for fork.
    pub fn hold(&self) {
        self.slabs.hold();
    }

    /// Unlocks after [`ThreadSlabs::hold`].
    ///
    /// # Safety
    /// As for [`Lock::force_unlock`].
    pub unsafe fn force_unlock(&self) {
        // SAFETY: the caller guarantees what the lock requires.
        unsafe { self.slabs.force_unlock() }
    }
}

impl Slabs {
    const NONE: Self = Self {
        start: ptr::null_mut(),
        stride: 0,
        records: ptr::null_mut(),
        capacity: 0,
        committed: 0,
        record_bytes: 0,
        heads: [0; 2],
        warm: 0,
    };

    /// The slab of this number, which is committed, or about to be.
    fn slab(&self, number: usize) -> Slab {
        // SAFETY: the callers' numbers are below the capacity, so the address is a chosen one.
        unsafe { Slab::new(self.start.add(number * self.stride).cast()) }
    }

    fn number(&self, slab: Slab) -> usize {
        (slab.address().addr() - self.start.addr()) / self.stride
    }

    fn record(&self, number: usize) -> &SlabRecord {
        // SAFETY: the callers' numbers are those of slabs whose records are committed. A record is
        // zero at first, which is valid.
        unsafe { &*self.records.add(number) }
    }

    fn record_mut(&mut self, number: usize) -> &mut SlabRecord {
        // SAFETY: as in `record`; the exclusive reference to the table allows no other.
        unsafe { &mut *self.records.add(number) }
    }

    fn link(&self, number: usize) -> u32 {
        self.record(number).link
    }

    fn set_link(&mut self, number: usize, link: u32) {
        self.record_mut(number).link = link;
    }

    fn commit_next(&mut self, os: &impl Os) -> Option<usize> {
        let (number, page) = (self.committed, os.page_size());
        let records = records_bytes(number + 1, page);
        if number < self.capacity && records > self.record_bytes {
            // SAFETY: these addresses were chosen, and no earlier commit of them succeeded.
            unsafe {
                let more = self.records.cast::<u8>().add(self.record_bytes);
                os.commit(more, records - self.record_bytes).ok()?;
            }
            self.record_bytes = records;
        }
        // SAFETY: these addresses were chosen, and no earlier commit of them succeeded.
        if number == self.capacity
            || unsafe { os.commit(self.slab(number).address(), self.stride) }.is_err()
        {
            return None;
        }
        self.committed += 1;
        self.set_link(number, OWNED);
        Some(number)
    }

    fn push(&mut self, tier: Tier, number: usize) {
        self.record_mut(number).owner = ptr::null();
        self.set_link(number, self.heads[tier as usize]);
        self.heads[tier as usize] = number as u32 + 1;
        self.warm += matches!(tier, Tier::Warm) as u32;
    }

    fn pop(&mut self, tier: Tier) -> Option<usize> {
        let number = self.heads[tier as usize].checked_sub(1)? as usize;
        self.heads[tier as usize] = self.link(number);
        self.set_link(number, OWNED);
        self.warm -= matches!(tier, Tier::Warm) as u32;
        Some(number)
    }

    /// Adds a slab to a list, and purges it first if the list is [`Tier::Cold`].
    ///
    /// # Safety
    /// The slab is in no list and empty, and no thread uses it.
    unsafe fn put(&mut self, os: &impl Os, tier: Tier, slab: Slab) {
        let bytes = self.stride;
        // SAFETY: the caller guarantees that no thread uses the slab and that it holds no blocks.
        // If the purge fails, zeros make the slab valid again.
        if matches!(tier, Tier::Cold) && !unsafe { os.purge(slab.address(), bytes) } {
            unsafe { slab.address().write_bytes(0, bytes) }
        }
        self.push(tier, self.number(slab));
    }
}
