//! The state of the heap profile of an engine, and the filter that spares most frees its lock.

use core::ptr;

use crate::backend::arena::hash_of_address;
use crate::options::PROFILING;
use crate::platform::os::{Os, choose};
use crate::platform::sync::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU64, AtomicUsize, Lock, Ordering,
};
use crate::telemetry::profile::table::{ProfileTable, ShownProfile};

/// Counts of the filter: a byte each, so that they fill whole OS pages of any size.
pub(crate) const FILTER_BYTES: usize = 1 << FILTER_LOG;
const FILTER_LOG: u32 = 16;

/// The state of the heap profile.
pub(crate) struct Profile {
    pub shown: ShownProfile,
    /// Its holder takes no other lock.
    pub table: Lock<ProfileTable>,
    /// Held while the profile is switched on or off.
    pub switch: Lock<()>,
    /// The unit of the record of the heap that sampled small blocks come from; 0 for none yet.
    heap: AtomicUsize,
    /// By the hash of the address: number of sampled blocks that lie in no heap of the profile's.
    /// Null before the first profile.
    filter: AtomicPtr<AtomicU8>,
    /// Whether the program has begun. Before that, stacks may not be readable.
    pub has_begun: AtomicBool,
    /// Whether a signal asked for a file.
    pub is_file_wanted: AtomicBool,
    /// Files written because of a signal.
    pub files: AtomicUsize,
    /// Whether the last file could not be written: a full disk is told once, not at each peak.
    pub has_failed: AtomicBool,
    /// Bytes that the program held when the last file was written, for peaks. For limits, 1 once
    /// one was written.
    pub written_bytes: AtomicU64,
    /// Whether a thread writes a file of a peak or limit.
    pub is_writing: AtomicBool,
    /// When the kernel was asked last how much of the memory limit is taken.
    pub asked_ms: AtomicU64,
}

impl Profile {
    pub const fn new() -> Self {
        Self {
            shown: ShownProfile::new(),
            table: Lock::new(ProfileTable::new()),
            switch: Lock::new(()),
            heap: AtomicUsize::new(0),
            filter: AtomicPtr::new(ptr::null_mut()),
            has_begun: AtomicBool::new(false),
            is_file_wanted: AtomicBool::new(false),
            has_failed: AtomicBool::new(false),
            files: AtomicUsize::new(0),
            written_bytes: AtomicU64::new(0),
            is_writing: AtomicBool::new(false),
            asked_ms: AtomicU64::new(0),
        }
    }

    /// The gate: not 0 if an allocation has to count its bytes.
    #[inline(always)]
    pub fn gate(&self) -> u32 {
        if PROFILING { self.shown.gate.load() } else { 0 }
    }

    /// Whether a free that trusts its size must look at the address first.
    #[inline(always)]
    pub fn is_watching(&self) -> bool {
        PROFILING && self.shown.gate.is_watching()
    }

    /// Whether this is the unit of the record of the profile's heap.
    #[inline]
    pub fn is_heap(&self, unit: u32) -> bool {
        unit != 0 && self.heap() == unit
    }

    /// The unit of the record of the profile's heap, 0 if there is none.
    pub fn heap(&self) -> u32 {
        if PROFILING { self.heap.load(Ordering::Relaxed) as u32 } else { 0 }
    }

    /// Sets the heap. The caller holds the lock of the switch.
    pub fn set_heap(&self, unit: u32) {
        self.heap.store(unit as usize, Ordering::Relaxed);
    }

    /// Makes the filter, unless there is one. False if memory is short. The caller holds the lock
    /// of the switch.
    pub fn set_up_filter(&self, os: &impl Os) -> bool {
        if self.filter.load(Ordering::Relaxed).is_null() {
            let Some(start) = choose(os, FILTER_BYTES, FILTER_BYTES) else { return false };
            self.filter.store(start.as_ptr().cast(), Ordering::Release);
        }
        true
    }

    fn filter(&self, address: usize) -> Option<&AtomicU8> {
        let filter = self.filter.load(Ordering::Acquire);
        let nth = hash_of_address(address) >> (u32::BITS - FILTER_LOG);
        // SAFETY: the filter has a byte for each such number, and stays.
        (!filter.is_null()).then(|| unsafe { &*filter.add(nth as usize) })
    }

    /// Whether the block at this address may be sampled, though not in the profile's heap. The
    /// thread has the block, so it sees the count that was stored before it got it.
    #[inline]
    pub fn may_have(&self, address: usize) -> bool {
        PROFILING && self.filter(address).is_some_and(|count| count.load(Ordering::Relaxed) != 0)
    }

    /// Counts a sampled block at this address. The caller holds the lock of the table.
    pub fn count_in(&self, address: usize) {
        if let Some(count) = self.filter(address) {
            // A count that has reached its maximum stays there.
            count.store(count.load(Ordering::Relaxed).saturating_add(1), Ordering::Relaxed);
        }
    }

    /// Undoes [`Profile::count_in`]. The caller holds the lock of the table.
    pub fn count_out(&self, address: usize) {
        if let Some(count) = self.filter(address) {
            let before = count.load(Ordering::Relaxed);
            if before != u8::MAX {
                count.store(before.saturating_sub(1), Ordering::Relaxed);
            }
        }
    }

    /// The word that has the address of the filter.
    pub fn filter_word(&self) -> *const AtomicPtr<AtomicU8> {
        &raw const self.filter
    }

    /// Address and length of the filter, for the ledger.
    pub fn filter_range(&self) -> (usize, usize) {
        let start = self.filter.load(Ordering::Relaxed);
        (start.addr(), if start.is_null() { 0 } else { FILTER_BYTES })
    }
}
