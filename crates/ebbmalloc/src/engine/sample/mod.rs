//! Sampled guard pages (`EBB_SAMPLE`): now and then a block is given a page of its own, where accesses that are wrong are
//! refused. Which ones is decided where a cache misses, so the hot paths know nothing of it.
//!
//! The blocks lie outside of the region, so plain `free` comes to its slow path by itself. A free that trusts its size does
//! not look at addresses: where there is sampling, its hot path is closed (`Engine::hot_sized_offsets`).
//! The lock of the slots is taken last of all, and held for no call but those that protect and purge.

mod report;

use core::ptr;

use crate::engine::Engine;
use crate::platform::message::Line;
use crate::platform::options::{CAREFUL, SampleChoice};
use crate::platform::os::Os;
use crate::safety::guarded_slots::{Fault, Record, Trace};
use crate::size_class::SizeClass;

impl<O: Os> Engine<O> {
    /// What set-up does for it. An engine without a process around it has nothing to wait for.
    pub(crate) fn set_up_samples(&self, choice: SampleChoice) {
        let (true, SampleChoice::OneOf(mean)) = (CAREFUL, choice) else {
            return;
        };
        if !self.samples.set_up(&self.os, mean.get()) {
            Line::print(&self.os, format_args!("EBB_SAMPLE is ignored: no memory for it"));
        } else if self.os.hooks().is_none() {
            self.begin_sampling();
        }
    }

    /// The program begins, and its unwinder works: from here on blocks may be sampled.
    pub fn begin_sampling(&self) {
        self.samples.begin();
    }

    /// Asked in place of a refill that would bring so many blocks: a sampled one if that is due; else null.
    pub(crate) fn sample(&self, size: usize, class: SizeClass, blocks: usize) -> *mut u8 {
        // As where the hot path takes one of this class: aligned where its size is, and perhaps that has to be.
        let align = 1 << class.size().trailing_zeros();
        let page = self.os.page_size();
        if !self.samples.is_due(blocks) || size > page || align > page {
            return ptr::null_mut();
        }
        let SampleChoice::OneOf(mean) = self.setup().options.sample else {
            return ptr::null_mut();
        };
        {
            let mut slots = self.samples.slots.lock();
            let full = slots.is_full();
            // The refill comes at the next miss; with a mean of 1, that is sampled too.
            let counted = if full || mean.get() == 1 { 0 } else { blocks };
            self.samples.wait(&mut slots, mean.get(), counted);
            if full {
                return ptr::null_mut();
            }
        }
        self.alloc_sampled(size, align, class)
    }

    #[cold]
    #[inline(never)]
    fn alloc_sampled(&self, size: usize, align: usize, class: SizeClass) -> *mut u8 {
        // The unwinder may take locks of the loader: never under ours.
        let by = Trace::take(&self.os);
        self.samples.slots.lock().alloc(&self.os, (size, align), class.size(), &by)
    }

    /// Frees a sampled block, if with a size, then with this one. One that is none stops the program.
    #[cold]
    #[inline(never)]
    pub(crate) fn free_sampled(&self, block: *mut u8, given: Option<usize>, operation: &str) {
        let by = Trace::take(&self.os);
        let freed = self.samples.slots.lock().free(&self.os, block, given, &by);
        let bytes = freed.unwrap_or_else(|wrong| self.stop_at(wrong, block, operation));
        if self.counting() {
            self.count_free(bytes);
        }
    }

    /// Bytes of a sampled block that were asked for: more may not be used. One that is none stops the program.
    #[cold]
    #[inline(never)]
    pub(crate) fn size_sampled(&self, block: *mut u8, operation: &str) -> usize {
        let size = self.samples.slots.lock().size(block);
        size.unwrap_or_else(|wrong| self.stop_at(wrong, block, operation))
    }

    fn stop_at(&self, wrong: (Fault, Option<Record>), block: *mut u8, operation: &str) -> ! {
        let (fault, record) = wrong;
        self.report_misuse(fault, block, record, operation)
    }
}
