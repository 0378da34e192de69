//! The table of the heap profile: sampled blocks by address, and distinct stacks with their counts.
//!
//! It lies outside the region, in memory that grows with it and is bounded. The counts are raw
//! ones, of sampled blocks; who reads them weights them (`walk.rs`). So each stack has
//! them once for each bucket of sizes (`sampling.rs`).
//!
//! Another process may read stacks and counts meanwhile. Both stay where they are until the next
//! session, whose number is another one.

use core::{ptr, slice};

use crate::backend::arena::{Arena, Buckets, Chained, Ref, hash, hash_of_address};
use crate::backend::chunks::Chunks;
use crate::platform::os::Os;
use crate::platform::random::Random;
use crate::platform::sync::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use crate::telemetry::profile::gate::{Gate, Session};
use crate::telemetry::profile::sampling::{bucket_of, distance};
use crate::telemetry::remote_setting::RemoteSetting;
use crate::telemetry::tuning::{
    PROFILE_BLOCKS_MAX, PROFILE_SIZES_BYTES_MAX, PROFILE_STACKS_BYTES_MAX,
};

/// What other processes read, and what they write.
#[repr(C)]
pub(crate) struct ShownProfile {
    pub gate: Gate,
    /// Written by other processes: the mean number of bytes between samples that is wanted, 0 for
    /// no profile. Then the number of the request, which is never 0.
    pub wanted_mean_bytes: AtomicU64,
    pub wanted: AtomicU32,
    /// The number of the last request that the engine has followed.
    pub followed: AtomicU32,
    /// Written by other processes: an option to change, in place of a profile.
    pub setting: RemoteSetting,
    /// Why that option was not changed: a `SetError`, or 0.
    pub setting_error: AtomicU32,
    /// The number of the session, raised before its table is emptied and once more afterwards: odd
    /// in between.
    pub version: AtomicU32,
    pub is_on: AtomicU32,
    /// The mean of the session, or of the last one.
    pub mean_bytes: AtomicU64,
    /// CLOCK_MONOTONIC.
    pub started_ms: AtomicU64,
    /// Sampled blocks whose stack was not kept, because there were too many.
    pub dropped_stacks: AtomicU64,
    /// Blocks that were to be sampled and were not, because memory was short.
    pub dropped_samples: AtomicU64,
    /// Blocks sampled in the session.
    pub sampled_blocks: AtomicU64,
    /// The stack that was added last: a [`Ref`].
    pub newest: AtomicU32,
}

impl ShownProfile {
    pub const fn new() -> Self {
        Self {
            gate: Gate::new(),
            wanted_mean_bytes: AtomicU64::new(0),
            wanted: AtomicU32::new(0),
            followed: AtomicU32::new(0),
            setting: RemoteSetting::new(),
            setting_error: AtomicU32::new(0),
            version: AtomicU32::new(0),
            is_on: AtomicU32::new(0),
            mean_bytes: AtomicU64::new(0),
            started_ms: AtomicU64::new(0),
            dropped_stacks: AtomicU64::new(0),
            dropped_samples: AtomicU64::new(0),
            sampled_blocks: AtomicU64::new(0),
            newest: AtomicU32::new(0),
        }
    }
}

/// The head of a stack. The addresses of its calls follow, the innermost first.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct CallStack {
    /// The stack that was added before this one.
    pub previous: Ref,
    /// Calls in the stack.
    pub depth: u32,
    /// The first of its [`Site`]s.
    pub sites: Ref,
    chain: Ref,
    hash: u32,
    _unused: u32,
}

/// The counts of a stack for sizes of one bucket.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Site {
    pub next: Ref,
    pub bucket: u32,
    pub live: Raw,
    pub allocated: Raw,
}

/// Sampled blocks, and their requested bytes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
#[repr(C)]
pub(crate) struct Raw {
    pub objects: u64,
    pub bytes: u64,
}

/// A sampled block that the program holds.
#[derive(Clone, Copy)]
struct SampleRecord {
    chain: Ref,
    site: Ref,
    address: usize,
    bytes: u64,
    /// The session of the site.
    session: u32,
    /// The heap of the program that the block belongs to: the unit of its record, 0 for none.
    heap: u32,
    /// Links of the heap's list of records.
    next: Ref,
    previous: Ref,
}

/// A block that was taken out of the table.
#[derive(Clone, Copy)]
pub(crate) struct Taken {
    address: usize,
    bytes: u64,
    site: Ref,
    session: u32,
    pub heap: u32,
}

/// A block to put into the table.
#[derive(Clone, Copy)]
pub(crate) struct New<'a> {
    pub address: usize,
    pub bytes: usize,
    pub calls: &'a [usize],
    /// The heap of the program that the block belongs to: the unit of its record, and its word for
    /// its list of records.
    pub heap: Option<(u32, &'a AtomicUsize)>,
}

impl Chained for CallStack {
    fn hash(&self) -> u32 {
        self.hash
    }

    fn chain(&mut self) -> &mut Ref {
        &mut self.chain
    }
}

impl Chained for SampleRecord {
    fn hash(&self) -> u32 {
        hash_of_address(self.address)
    }

    fn chain(&mut self) -> &mut Ref {
        &mut self.chain
    }
}

/// All state of the heap profile that needs a lock.
pub(crate) struct ProfileTable {
    pub session: Session,
    pub random: Random,
    stacks_memory: Arena,
    stacks: Buckets,
    records_memory: Arena,
    records: Buckets,
    /// Records that are not in use, by their chains.
    unused: Ref,
    held: usize,
    mean_bytes: u64,
    /// What the sampled blocks of this session stand for that the program holds, in bytes. A
    /// quick estimate: a sample stands for the mean, or for its own size if that is more.
    pub live_bytes: u64,
    /// The stack without calls, for blocks whose stack is not known or was not kept.
    without_calls: Ref,
}

// SAFETY: the table's memory is its own.
unsafe impl Send for ProfileTable {}

impl ProfileTable {
    pub const fn new() -> Self {
        Self {
            session: Session::new(),
            random: Random::new(0),
            stacks_memory: Arena::new(),
            stacks: Buckets::new(),
            records_memory: Arena::new(),
            records: Buckets::new(),
            unused: Ref::NONE,
            held: 0,
            mean_bytes: 0,
            live_bytes: 0,
            without_calls: Ref::NONE,
        }
    }

    /// The memory of stacks and counts.
    pub fn chunks(&self) -> &Chunks {
        self.stacks_memory.chunks()
    }

    /// All memory of the table.
    pub fn all_chunks(&self) -> [&Chunks; 4] {
        let (stacks, records) = (&self.stacks, &self.records);
        [self.chunks(), stacks.chunks(), self.records_memory.chunks(), records.chunks()]
    }

    /// Empties the table for a new session. Blocks of earlier ones stay known, but count no more.
    /// Returns false if memory is short; then the table is as it was, or empty.
    #[inline(never)]
    pub fn begin(&mut self, os: &impl Os, shown: &ShownProfile, mean_bytes: u64) -> bool {
        if !self.stacks.set_up(os) || !self.records.set_up(os) {
            return false;
        }
        self.random = Random::new(os.random());
        let version = shown.version.load(Ordering::Relaxed) & !1;
        shown.version.store(version + 1, Ordering::SeqCst);
        shown.newest.store(0, Ordering::SeqCst);
        self.stacks_memory.clear();
        self.stacks.clear();
        self.without_calls = Ref::NONE;
        (self.mean_bytes, self.live_bytes) = (mean_bytes, 0);
        for count in [&shown.dropped_stacks, &shown.dropped_samples, &shown.sampled_blocks] {
            count.store(0, Ordering::Relaxed);
        }
        shown.mean_bytes.store(mean_bytes, Ordering::Relaxed);
        shown.started_ms.store(os.now_ms(), Ordering::Relaxed);
        // Made now, so that there is one when memory is short.
        self.without_calls = self.add_stack(os, shown, &[], 0).unwrap_or(Ref::NONE);
        shown.version.store(version + 2, Ordering::SeqCst);
        !self.without_calls.is_none()
    }

    /// Draws the number of bytes before the next sampled byte.
    pub fn distance(&mut self, shown: &ShownProfile) -> i32 {
        distance(&mut self.random, shown.mean_bytes.load(Ordering::Relaxed))
    }

    /// Records a sampled block. Returns false if memory is short; then it is counted as dropped.
    #[inline(never)]
    pub fn insert(&mut self, os: &impl Os, shown: &ShownProfile, new: New) -> bool {
        let stack = self.intern(os, shown, new.calls);
        let bytes = new.bytes.max(1) as u64;
        let inserted = self.site(os, stack, bucket_of(bytes)).is_some_and(|site| {
            let session = self.session.number();
            let heap = new.heap.map_or(0, |(unit, _)| unit);
            let taken = Taken { address: new.address, bytes, site, session, heap };
            let inserted = self.put_back(os, taken, new.heap.map(|(_, list)| list));
            if inserted {
                // SAFETY: a site of this session, and the caller holds the table's lock.
                unsafe { self.at_site(site).allocated.add(bytes) };
            }
            inserted
        });
        let count = if inserted { &shown.sampled_blocks } else { &shown.dropped_samples };
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        inserted
    }

    /// Records a block that [`ProfileTable::take`] took, again. `list`: its heap's list of records.
    #[inline(never)]
    pub fn put_back(&mut self, os: &impl Os, taken: Taken, list: Option<&AtomicUsize>) -> bool {
        let Some(new) = self.take_unused(os) else { return false };
        let Taken { address, bytes, site, session, heap } = taken;
        let first = list.map_or(Ref::NONE, first_of);
        let head = self.records.head(hash_of_address(address));
        // SAFETY: the record is unused, and the caller holds the table's lock. Chains and lists
        // consist of records.
        unsafe {
            let chain = *head;
            let (next, previous) = (first, Ref::NONE);
            let record =
                SampleRecord { chain, site, address, bytes, session, heap, next, previous };
            self.at_record(new).write(record);
            *head = new;
            if !first.is_none() {
                (*self.at_record(first)).previous = new;
            }
            if self.is_current(session) {
                self.at_site(site).live.add(bytes);
                self.live_bytes += bytes.max(self.mean_bytes);
            }
        }
        if let Some(list) = list {
            list.store(new.to_bits() as usize, Ordering::Relaxed);
        }
        self.held += 1;
        self.records.count_in::<SampleRecord>(&self.records_memory, os);
        true
    }

    /// Takes the block at this address out of the table, if it is sampled. `list` returns the list
    /// of records of a heap, by the unit of the heap's record.
    #[inline(never)]
    pub fn take<'a>(
        &mut self,
        address: usize,
        list: impl Fn(u32) -> &'a AtomicUsize,
    ) -> Option<Taken> {
        if self.held == 0 {
            return None;
        }
        let mut link = self.records.head(hash_of_address(address));
        // SAFETY: chains and lists consist of records, and the caller holds the table's lock.
        unsafe {
            while !(*link).is_none() {
                let found = *link;
                let record = self.at_record(found);
                if (*record).address == address {
                    let SampleRecord { chain, site, bytes, session, heap, next, previous, .. } =
                        *record;
                    *link = chain;
                    if !next.is_none() {
                        (*self.at_record(next)).previous = previous;
                    }
                    if !previous.is_none() {
                        (*self.at_record(previous)).next = next;
                    } else if heap != 0 {
                        list(heap).store(next.to_bits() as usize, Ordering::Relaxed);
                    }
                    (*record).chain = self.unused;
                    self.unused = found;
                    self.held -= 1;
                    self.records.count_out();
                    if self.is_current(session) {
                        self.at_site(site).live.subtract(bytes);
                        self.live_bytes -= bytes.max(self.mean_bytes);
                    }
                    return Some(Taken { address, bytes, site, session, heap });
                }
                link = &raw mut (*record).chain;
            }
        }
        None
    }

    /// The address of the first sampled block of a heap, by the heap's list of records.
    pub fn first_of_heap(&self, list: &AtomicUsize) -> Option<usize> {
        let first = first_of(list);
        // SAFETY: lists consist of records, and the caller holds the table's lock.
        (!first.is_none()).then(|| unsafe { (*self.at_record(first)).address })
    }

    /// Whether counts of this session are in the table.
    fn is_current(&self, session: u32) -> bool {
        session == self.session.number()
    }

    fn at_record(&self, record: Ref) -> *mut SampleRecord {
        self.records_memory.at(record)
    }

    /// # Safety
    /// A site lies there, and no other reference to it is used meanwhile.
    #[allow(clippy::mut_from_ref)]
    unsafe fn at_site(&self, site: Ref) -> &mut Site {
        // SAFETY: the caller guarantees it.
        unsafe { &mut *self.stacks_memory.at(site) }
    }

    /// A record that is not in use.
    fn take_unused(&mut self, os: &impl Os) -> Option<Ref> {
        if !self.unused.is_none() {
            let unused = self.unused;
            // SAFETY: the list consists of records, and the caller holds the table's lock.
            self.unused = unsafe { (*self.at_record(unused)).chain };
            return Some(unused);
        }
        let may_take = self.held < PROFILE_BLOCKS_MAX;
        if may_take { self.records_memory.take(os, size_of::<SampleRecord>()) } else { None }
    }

    /// The stack with these calls, which is added if it is new. If there are too many, or memory
    /// is short, the stack without calls.
    fn intern(&mut self, os: &impl Os, shown: &ShownProfile, calls: &[usize]) -> Ref {
        if calls.is_empty() {
            return self.without_calls;
        }
        let hash = hash(calls);
        // SAFETY: chains consist of stacks, and the caller holds the table's lock.
        unsafe {
            let mut next = *self.stacks.head(hash);
            while !next.is_none() {
                let stack = self.stacks_memory.at::<CallStack>(next);
                if (*stack).hash == hash && self.calls(next) == calls {
                    return next;
                }
                next = (*stack).chain;
            }
        }
        self.add_stack(os, shown, calls, hash).unwrap_or_else(|| {
            let dropped = &shown.dropped_stacks;
            dropped.store(dropped.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            self.without_calls
        })
    }

    /// Adds a stack. `None` if there are too many, or memory is short.
    #[inline(never)]
    fn add_stack(
        &mut self,
        os: &impl Os,
        shown: &ShownProfile,
        calls: &[usize],
        hash: u32,
    ) -> Option<Ref> {
        let bytes = size_of::<CallStack>() + size_of_val(calls);
        if self.stacks_memory.taken_bytes() + bytes > PROFILE_STACKS_BYTES_MAX {
            return None;
        }
        let new = self.stacks_memory.take(os, bytes)?;
        let head = self.stacks.head(hash);
        let previous = Ref::from_bits(shown.newest.load(Ordering::Relaxed));
        // SAFETY: the memory is new, and has room for the head and all calls. The caller holds the
        // table's lock.
        unsafe {
            let (depth, sites, chain) = (calls.len() as u32, Ref::NONE, *head);
            let at = self.stacks_memory.at::<CallStack>(new);
            at.write(CallStack { previous, depth, sites, chain, hash, _unused: 0 });
            ptr::copy_nonoverlapping(calls.as_ptr(), at.add(1).cast(), calls.len());
            if depth > 0 {
                *head = new;
            }
        }
        if !calls.is_empty() {
            self.stacks.count_in::<CallStack>(&self.stacks_memory, os);
        }
        // Other processes read the stack only now that it is whole.
        shown.newest.store(new.to_bits(), Ordering::Release);
        Some(new)
    }

    /// The counts of a stack for sizes of this bucket. `None` if memory is short.
    fn site(&mut self, os: &impl Os, stack: Ref, bucket: u32) -> Option<Ref> {
        let at = self.stacks_memory.at::<CallStack>(stack);
        // SAFETY: a stack lies there, its list consists of sites, and the caller holds the lock.
        unsafe {
            let mut next = (*at).sites;
            while !next.is_none() {
                let site = &*self.at_site(next);
                if site.bucket == bucket {
                    return Some(next);
                }
                next = site.next;
            }
            let max = PROFILE_STACKS_BYTES_MAX + PROFILE_SIZES_BYTES_MAX;
            if self.stacks_memory.taken_bytes() + size_of::<Site>() > max {
                return None;
            }
            let new = self.stacks_memory.take(os, size_of::<Site>())?;
            let (live, allocated) = (Raw::default(), Raw::default());
            let site = Site { next: (*at).sites, bucket, live, allocated };
            self.stacks_memory.at::<Site>(new).write(site);
            (*at).sites = new;
            Some(new)
        }
    }

    /// The calls of a stack.
    fn calls(&self, stack: Ref) -> &[usize] {
        let head = self.stacks_memory.at::<CallStack>(stack);
        // SAFETY: a stack lies there, and `depth` addresses follow its head.
        unsafe { slice::from_raw_parts(head.add(1).cast(), (*head).depth as usize) }
    }

    /// Copies the head of a stack, and its calls as far as they fit. The caller knows that a stack
    /// lies there.
    pub fn copy_stack(&self, stack: Ref, calls: &mut [u64]) -> CallStack {
        for (to, from) in calls.iter_mut().zip(self.calls(stack)) {
            *to = *from as u64;
        }
        // SAFETY: the caller knows that a stack lies there, and holds the table's lock.
        unsafe { *self.stacks_memory.at(stack) }
    }

    /// Copies the counts that a stack refers to.
    pub fn copy_site(&self, site: Ref) -> Site {
        // SAFETY: a stack refers to it, and the caller holds the table's lock.
        unsafe { *self.stacks_memory.at(site) }
    }
}

/// The first record of a heap's list.
fn first_of(list: &AtomicUsize) -> Ref {
    Ref::from_bits(list.load(Ordering::Relaxed) as u32)
}

impl Raw {
    fn add(&mut self, bytes: u64) {
        self.objects += 1;
        self.bytes += bytes;
    }

    fn subtract(&mut self, bytes: u64) {
        self.objects = self.objects.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}
