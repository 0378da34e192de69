//! The caches of threads: one slab each, committed as threads come and handed on as they go.
//!
//! Which slabs are free is written beside them, not in them, so that the memory of one that
//! nobody needs can go back to the kernel as a whole. A free slab may hold blocks: the next
//! thread takes them over. And where the words of the thread are that has a slab, for whoever wants to empty it: `drain.rs`.

use core::ops::Range;
use core::ptr;

use crate::frontend::slab::{Digests, Slab, used_bytes};
use crate::frontend::tuning::{
    SLABS_PER_BATCH, THREAD_SLABS_ADDRESS_SHARE, THREAD_SLABS_MAX, WARM_SLABS_MAX,
};
use crate::platform::os::{Os, ThreadWords, choose};
use crate::platform::sync::{AtomicUsize, Guard, Lock, Ordering, const_fn};

/// The link of a slab that a thread has; others are the number of the next slab plus 1.
const TAKEN: u32 = u32::MAX;

/// What is kept of a slab, beside it.
#[repr(C)]
struct Record {
    link: u32,
    /// What [`has_changed`] goes by.
    ///
    /// [`has_changed`]: crate::frontend::slab::has_changed
    seen: Digests,
    /// The words of the thread that has it; null where nobody has, or is to be asked.
    owner: *const ThreadWords,
}

/// Lists of free slabs, in the order in which they are taken.
#[derive(Clone, Copy)]
enum Tier {
    /// Left behind by threads that a fork did not copy, blocks and all.
    Orphaned,
    /// Resident, and empty but for what a signal handler may have freed at the last moment.
    Warm,
    /// Back with the kernel, so all zero.
    Cold,
}

/// All slabs of threads.
pub(crate) struct ThreadSlabs {
    slabs: Lock<Slabs>,
    /// How many threads have one.
    taken: AtomicUsize,
}

// In this order: `beacon.rs` reads the first five in other processes.
#[repr(C)]
struct Slabs {
    /// The first slab; null before set-up.
    start: *mut u8,
    /// Bytes from one to the next: fewer than in a [`Slab`], of which not all is ever used.
    stride: usize,
    /// For each slab its record, before the first slab; null before set-up.
    records: *mut Record,
    /// How many there is room for.
    room: usize,
    /// How many are committed; always the lowest.
    committed: usize,
    /// How many bytes of records are committed.
    record_bytes: usize,
    /// By shelf, the number of the first slab plus 1; 0 for none.
    heads: [u32; 3],
    warm: u32,
}

/// The first words of the record of the slabs, as another process reads them.
#[derive(Clone, Copy, Default, Debug)]
#[repr(C)]
pub(crate) struct Shown {
    pub start: usize,
    pub stride: usize,
    pub records: usize,
    pub room: usize,
    pub committed: usize,
}

impl Shown {
    /// As read from another process.
    pub fn from_bytes(bytes: &[u8; size_of::<Self>()]) -> Self {
        // SAFETY: as long, and any bytes are valid.
        unsafe { bytes.as_ptr().cast::<Self>().read_unaligned() }
    }

    /// Bytes that the records of committed slabs take, in whole pages.
    pub fn records_bytes(&self, page: usize) -> usize {
        if self.records == 0 { 0 } else { records_bytes(self.committed.max(1), page) }
    }
}

fn records_bytes(slabs: usize, page: usize) -> usize {
    (slabs * size_of::<Record>()).next_multiple_of(page)
}

/// Some slabs. While the value lives, no thread gets one of them, or gives it up.
pub(crate) struct Batch<'a> {
    slabs: Guard<'a, Slabs>,
    numbers: Range<usize>,
}

impl Batch<'_> {
    /// Those of these slabs that threads have: the slab, what its stacks were, and the thread's words.
    pub fn owned(&self) -> impl Iterator<Item = (*mut Slab, &Digests, *const ThreadWords)> {
        let each = self.numbers.clone().map(|number| {
            let record = self.slabs.record(number);
            (self.slabs.slab(number), &record.seen, record.owner)
        });
        each.filter(|(_, _, owner)| !owner.is_null())
    }
}

// SAFETY: the memory belongs to these slabs; whoever holds the lock decides about it.
unsafe impl Send for Slabs {}

impl ThreadSlabs {
    const_fn! {
        /// No slabs yet.
        pub fn new() -> Self {
            Self { slabs: Lock::new(Slabs::NONE), taken: AtomicUsize::new(0) }
        }
    }

    /// Chooses addresses for slabs, unless that is done; or why not.
    pub fn set_up(&self, os: &impl Os) -> Result<(), &'static str> {
        let mut slabs = self.slabs.lock();
        let page = os.page_size();
        if slabs.start.is_null() {
            let stride = used_bytes().next_multiple_of(page);
            let room =
                (os.address_space() / THREAD_SLABS_ADDRESS_SHARE / stride).min(THREAD_SLABS_MAX);
            let records = records_bytes(room, page);
            let chosen = if room > 0 { choose(os, records + room * stride, page) } else { None };
            slabs.records = chosen.ok_or("too little memory")?.as_ptr().cast();
            slabs.start = slabs.records.cast::<u8>().wrapping_add(records);
            (slabs.stride, slabs.room, slabs.record_bytes) = (stride, room, page);
        }
        Ok(())
    }

    /// The address of the record, for a reader in another process: [`Shown`].
    pub fn shown_at(&self) -> usize {
        (&raw const *self.slabs.lock()).addr()
    }

    /// Where the slabs lie.
    pub fn shown(&self) -> Shown {
        let slabs = self.slabs.lock();
        Shown {
            start: slabs.start.addr(),
            stride: slabs.stride,
            records: slabs.records.addr(),
            room: slabs.room,
            committed: slabs.committed,
        }
    }

    /// How many threads have a cache.
    pub fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// A slab for the calling thread alone, which has these words; `None` if there is no more room or memory.
    pub fn take(&self, os: &impl Os, owner: *const ThreadWords) -> Option<*mut Slab> {
        let mut slabs = self.slabs.lock();
        let shelves = [Tier::Orphaned, Tier::Warm, Tier::Cold];
        let free = shelves.into_iter().find_map(|shelf| slabs.pop(shelf));
        let number = free.or_else(|| slabs.commit_next(os))?;
        self.taken.fetch_add(1, Ordering::Relaxed);
        slabs.record_mut(number).owner = owner;
        Some(slabs.slab(number))
    }

    /// Sees to it that the thread that has this slab is not asked about it any more, nor its words looked at: now only who took the slab
    /// works on it. Followed by [`ThreadSlabs::give`].
    pub fn disown(&self, slab: *mut Slab) {
        let mut slabs = self.slabs.lock();
        let number = slabs.number(slab);
        slabs.record_mut(number).owner = ptr::null();
    }

    /// All slabs, some at a time.
    pub fn batches(&self) -> impl Iterator<Item = Batch<'_>> {
        (0..).step_by(SLABS_PER_BATCH).map_while(|start| {
            let slabs = self.slabs.lock();
            let numbers = start..slabs.committed.min(start + SLABS_PER_BATCH);
            (!numbers.is_empty()).then_some(Batch { slabs, numbers })
        })
    }

    /// Gives a slab to whichever thread comes next. It is empty.
    ///
    /// # Safety
    /// The slab was taken, and nobody uses it any more.
    pub unsafe fn give(&self, os: &impl Os, slab: *mut Slab) {
        let mut slabs = self.slabs.lock();
        self.taken.fetch_sub(1, Ordering::Relaxed);
        let shelf = if slabs.warm < WARM_SLABS_MAX { Tier::Warm } else { Tier::Cold };
        // SAFETY: the caller's.
        unsafe { slabs.put(os, shelf, slab) }
    }

    /// Takes a slab that nobody has but whose memory is resident, for a moment: to empty it.
    /// Followed by [`ThreadSlabs::put_away`].
    pub fn take_idle(&self) -> Option<*mut Slab> {
        let mut slabs = self.slabs.lock();
        let number = slabs.pop(Tier::Orphaned).or_else(|| slabs.pop(Tier::Warm))?;
        Some(slabs.slab(number))
    }

    /// Puts a slab back whose memory is not to be kept. It is empty.
    ///
    /// # Safety
    /// As for [`ThreadSlabs::give`], but that it was taken by [`ThreadSlabs::take_idle`].
    pub unsafe fn put_away(&self, os: &impl Os, slab: *mut Slab) {
        // SAFETY: the caller's.
        unsafe { self.slabs.lock().put(os, Tier::Cold, slab) }
    }

    /// In the child of a fork, whose only thread has slab `own` (null: none): all others are
    /// nobody's now. What they hold is whole, as their owners commit by storing a header.
    pub fn orphan_all_but(&self, own: *mut Slab) {
        let mut slabs = self.slabs.lock();
        for number in 0..slabs.committed {
            if slabs.link(number) == TAKEN && slabs.slab(number) != own {
                slabs.push(Tier::Orphaned, number);
            }
        }
        self.taken.store(!own.is_null() as usize, Ordering::Relaxed);
    }

    /// Runs `work` on every slab that there is, whoever has it: for statistics.
    pub fn for_each(&self, mut work: impl FnMut(*mut Slab)) {
        let slabs = self.slabs.lock();
        (0..slabs.committed).for_each(|number| work(slabs.slab(number)));
    }

    /// Panics unless each slab is a thread's or on one shelf: for tests.
    pub fn check(&self) {
        let slabs = self.slabs.lock();
        let linked = (0..slabs.committed).filter(|&number| slabs.link(number) != TAKEN).count();
        assert_eq!(slabs.committed - linked, self.taken(), "slabs of threads");
        let mut shelved = 0;
        for shelf in [Tier::Orphaned, Tier::Warm, Tier::Cold] {
            let (before, mut next) = (shelved, slabs.heads[shelf as usize]);
            while let Some(number) = next.checked_sub(1) {
                assert!(shelved < linked && (number as usize) < slabs.committed, "slab {number}");
                let Record { owner, link, .. } = slabs.record(number as usize);
                assert!(owner.is_null(), "slab {number} is free, and a thread's");
                (shelved, next) = (shelved + 1, *link);
            }
            assert!(!matches!(shelf, Tier::Warm) || shelved - before == slabs.warm as usize);
        }
        assert_eq!(shelved, linked, "free slabs");
    }

    /// Keeps everybody else out, beyond any guard: for fork.
    pub fn hold(&self) {
        self.slabs.hold();
    }

    /// Lets everybody in again.
    ///
    /// # Safety
    /// As for [`Lock::force_unlock`].
    pub unsafe fn force_unlock(&self) {
        // SAFETY: the caller's.
        unsafe { self.slabs.force_unlock() }
    }
}

impl Slabs {
    const NONE: Self = Self {
        start: ptr::null_mut(),
        stride: 0,
        records: ptr::null_mut(),
        room: 0,
        committed: 0,
        record_bytes: 0,
        heads: [0; 3],
        warm: 0,
    };

    fn slab(&self, number: usize) -> *mut Slab {
        // SAFETY: there is room for so many.
        unsafe { self.start.add(number * self.stride).cast() }
    }

    fn number(&self, slab: *mut Slab) -> usize {
        (slab.addr() - self.start.addr()) / self.stride
    }

    fn record(&self, number: usize) -> &Record {
        // SAFETY: there is one for each slab, of zeros at first, which are valid.
        unsafe { &*self.records.add(number) }
    }

    fn record_mut(&mut self, number: usize) -> &mut Record {
        // SAFETY: as above.
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
        if number < self.room && records > self.record_bytes {
            // SAFETY: chosen, and not committed before, unless that failed.
            unsafe {
                let more = self.records.cast::<u8>().add(self.record_bytes);
                os.commit(more, records - self.record_bytes).ok()?;
            }
            self.record_bytes = records;
        }
        // SAFETY: as above.
        if number == self.room
            || unsafe { os.commit(self.slab(number).cast(), self.stride) }.is_err()
        {
            return None;
        }
        self.committed += 1;
        self.set_link(number, TAKEN);
        Some(number)
    }

    fn push(&mut self, shelf: Tier, number: usize) {
        self.record_mut(number).owner = ptr::null();
        self.set_link(number, self.heads[shelf as usize]);
        self.heads[shelf as usize] = number as u32 + 1;
        self.warm += matches!(shelf, Tier::Warm) as u32;
    }

    fn pop(&mut self, shelf: Tier) -> Option<usize> {
        let number = self.heads[shelf as usize].checked_sub(1)? as usize;
        self.heads[shelf as usize] = self.link(number);
        self.set_link(number, TAKEN);
        self.warm -= matches!(shelf, Tier::Warm) as u32;
        Some(number)
    }

    /// # Safety
    /// The slab is on no shelf, empty, and nobody uses it.
    unsafe fn put(&mut self, os: &impl Os, shelf: Tier, slab: *mut Slab) {
        let bytes = self.stride;
        // SAFETY: the caller's; after a purge that failed, zeros make the slab valid again.
        if matches!(shelf, Tier::Cold) && !unsafe { os.purge(slab.cast(), bytes) } {
            unsafe { ptr::write_bytes(slab.cast::<u8>(), 0, bytes) }
        }
        self.push(shelf, self.number(slab));
    }
}
