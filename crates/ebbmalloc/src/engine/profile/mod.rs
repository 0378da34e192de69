//! The heap profile (`ebb profile`, `EBB_PROFILE`): counts the bytes that threads allocate, and
//! records the blocks that are due, with their stacks.
//!
//! Each thread counts down the bytes that it allocates, from an exponentially distributed number.
//! The block that crosses zero is sampled. So it is what was allocated that decides, and not where
//! a cache misses: of a loop that keeps one block and frees another, a miss always meets the same.
//!
//! A sampled small block comes from a heap of the profile's own (`engine/profiled_blocks.rs`). So
//! plain `free` finds no class at its address, and its hot path knows nothing of profiles. Large
//! blocks, and those of heaps, stay where they are. Their frees take slow paths anyway, and ask a
//! filter.
//!
//! While the profile is on, the hot path of allocations is closed (`Engine::hot_area`), and that of
//! frees that trust their size stays closed until the last block in the profile's heap is freed.
//!
//! A block that is resized in place counts as freed and allocated anew.

// Lowest first: each uses only modules above it in this list.
pub(crate) mod switch;
pub(crate) mod walk;
pub(crate) mod file;
pub(crate) mod when;

use crate::backend::region::UnitIndex;
use crate::engine::Engine;
use crate::options::PROFILING;
use crate::platform::os::Os;
use crate::platform::sync::Ordering;
use crate::telemetry::profile::gate::REQUEST;
use crate::telemetry::profile::table::{New, ProfileTable, Taken};
use crate::telemetry::tuning::PROFILE_CALLS_MAX;
use core::sync::atomic::compiler_fence;

impl<O: Os> Engine<O> {
    /// Counts an allocation of the calling thread, which has seen this gate. True if the block is
    /// to be sampled.
    #[inline(always)]
    pub(crate) fn is_sample_due(&self, gate: u32, size: usize) -> bool {
        !self.is_counted(gate, size) && self.is_sample_due_slow(gate, size)
    }

    /// Counts an allocation of the calling thread. False, and nothing is counted, if the block is
    /// to be sampled, or the thread does not count in the session of this gate yet.
    #[inline(always)]
    pub(crate) fn is_counted(&self, gate: u32, size: usize) -> bool {
        let words = self.os.thread_words();
        words.profile_gate.load(Ordering::Relaxed) == gate as u16 && self.count_down(size)
    }

    /// Counts an allocation. False, and nothing is counted, if the block is to be sampled.
    #[inline(always)]
    fn count_down(&self, size: usize) -> bool {
        let left = &self.os.thread_words().profile_left;
        // A block of no bytes counts as one.
        let less = left.load(Ordering::Relaxed) as i64 - size.max(1) as i64;
        if less >= 0 {
            left.store(less as i32, Ordering::Relaxed);
        }
        less >= 0
    }

    /// Follows a request of another process, and begins to count in a session that is new to the
    /// thread.
    #[cold]
    #[inline(never)]
    pub(crate) fn is_sample_due_slow(&self, seen: u32, size: usize) -> bool {
        let mut gate = seen;
        if gate == REQUEST {
            self.follow_request();
            self.write_profile_if_asked();
            gate = self.profile.gate();
        }
        if gate <= REQUEST {
            return false;
        }
        let words = self.os.thread_words();
        // Otherwise a request was followed that changes nothing, or the block is due.
        if words.profile_gate.load(Ordering::Relaxed) != gate as u16 {
            let left = self.profile.table.lock().distance(&self.profile.shown);
            words.profile_gate.store(gate as u16, Ordering::Relaxed);
            words.profile_left.store(left, Ordering::Relaxed);
        }
        !self.count_down(size)
    }

    /// Reads the calling thread's stack, and runs `work` with it and the table. Then begins to
    /// count towards the next sample.
    #[inline(always)]
    pub(crate) fn with_sample<R>(&self, work: impl FnOnce(&mut ProfileTable, &[usize]) -> R) -> R {
        let words = self.os.thread_words();
        // The unwinder may allocate. Those blocks are not sampled.
        words.profile_left.store(i32::MAX, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        let mut calls = [0; PROFILE_CALLS_MAX];
        let depth = self.os.profile_calls(&mut calls);
        let mut table = self.profile.table.lock();
        let result = work(&mut table, &calls[..depth]);
        let (left, live_bytes) = (table.distance(&self.profile.shown), table.live_bytes);
        drop(table);
        words.profile_left.store(left, Ordering::Relaxed);
        self.write_profile_if_due(live_bytes);
        result
    }

    /// Begins to count towards the next sample, since there was no memory for this one.
    #[cold]
    pub(crate) fn skip_sample(&self) {
        let (words, shown) = (self.os.thread_words(), &self.profile.shown);
        let mut table = self.profile.table.lock();
        words.profile_left.store(table.distance(shown), Ordering::Relaxed);
        shown.dropped_samples.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a block that was just allocated, which may be null. Samples it where it is, if it is
    /// due. `heap` is the unit of the record of its heap, 0 for none.
    #[inline]
    pub(crate) fn profile_alloc(&self, block: *mut u8, size: usize, heap: UnitIndex) {
        let gate = self.profile.gate();
        if gate != 0 && !block.is_null() {
            self.profile_alloc_slow(gate, block, size, heap);
        }
    }

    #[inline(never)]
    fn profile_alloc_slow(&self, gate: u32, block: *mut u8, size: usize, heap: UnitIndex) {
        if !self.is_sample_due(gate, size) {
            return;
        }
        let list = (heap != 0).then(|| (heap, self.record_of(heap).profiled()));
        self.with_sample(|table, calls| {
            if !table.session.is_on() {
                return;
            }
            let new = New { address: block.addr(), bytes: size, calls, heap: list };
            if table.insert(&self.os, &self.profile.shown, new) {
                self.profile.count_in(block.addr());
            }
        });
    }

    /// Takes a block that does not lie in the profile's heap out of the profile, if it is there:
    /// because the program frees or resizes it.
    #[inline]
    pub(crate) fn profile_free(&self, block: *mut u8) -> Option<Taken> {
        if self.profile.may_have(block.addr()) { self.profile_free_slow(block) } else { None }
    }

    #[cold]
    #[inline(never)]
    fn profile_free_slow(&self, block: *mut u8) -> Option<Taken> {
        let mut table = self.profile.table.lock();
        let taken = table.take(block.addr(), |heap| self.record_of(heap).profiled());
        if taken.is_some() {
            self.profile.count_out(block.addr());
        }
        taken
    }

    /// Completes a resize: `new` is the block, null if it stayed as it was. `taken` is what
    /// [`Engine::profile_free`] took for it.
    #[inline]
    pub(crate) fn profile_resized(
        &self,
        taken: Option<Taken>,
        block: *mut u8,
        new: *mut u8,
        size: usize,
        heap: UnitIndex,
    ) {
        match taken {
            Some(taken) if new.is_null() => self.profile_put_back(taken, block),
            _ => self.profile_alloc(new, size, heap),
        }
    }

    #[cold]
    #[inline(never)]
    fn profile_put_back(&self, taken: Taken, block: *mut u8) {
        let mut table = self.profile.table.lock();
        let list = (taken.heap != 0).then(|| self.record_of(taken.heap).profiled());
        if table.put_back(&self.os, taken, list) {
            self.profile.count_in(block.addr());
        }
    }

    /// Takes all blocks of a heap out of the profile, since the program deletes it.
    pub(crate) fn profile_delete(&self, heap: UnitIndex) {
        if !PROFILING {
            return;
        }
        let list = self.record_of(heap).profiled();
        while list.load(Ordering::Relaxed) != 0 {
            let mut table = self.profile.table.lock();
            let Some(address) = table.first_of_heap(list) else { break };
            table.take(address, |_| list);
            self.profile.count_out(address);
        }
    }
}
