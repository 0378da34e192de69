//! Implements sampled guard pages (`EBB_SAMPLE`): puts a block now and then in a page of its own,
//! next to inaccessible pages. Blocks are sampled where a cache misses, so the hot paths know
//! nothing of it.
//!
//! Sampled blocks lie outside the region, so plain `free` takes its slow path for them. A free that
//! trusts its size does not look at the address, so sampling closes its hot path
//! (`Engine::hot_sized_area`). The lock of the slots comes last in the order of locks. While it is
//! held, the only system calls are those that map and unmap slots.

mod report;

use core::ptr;

use crate::engine::Engine;
use crate::engine::tuning::WATCHED_SAMPLES;
use crate::options::{CAREFUL, SampleChoice};
use crate::platform::message::Line;
use crate::platform::os::Os;
use crate::safety::guarded_slots::{SlotFault, SlotRecord, Trace};
use crate::size_class::SizeClass;

impl<O: Os> Engine<O> {
    /// Sets sampling up. It begins at once in an engine without process-wide hooks, in tests: no
    /// start of a program follows.
    pub(crate) fn set_up_samples(&self, choice: SampleChoice) {
        let (true, SampleChoice::OneOf(mean)) = (CAREFUL, choice) else {
            return;
        };
        if !self.samples.set_up(&self.os, mean.get()) {
            Line::print(
                &self.os,
                format_args!("EBB_SAMPLE is ignored: cannot map its slots; raise `ulimit -v`"),
            );
        } else if self.os.hooks().is_none() {
            self.begin_sampling();
        }
    }

    /// Allows blocks to be sampled: the program begins, and its unwinder works.
    pub fn begin_sampling(&self) {
        self.samples.begin();
    }

    /// Allocates a sampled block if one is due, else returns null. Called before a refill of
    /// `blocks` blocks, which it replaces.
    pub(crate) fn sample(&self, size: usize, class: SizeClass, blocks: usize) -> *mut u8 {
        // The hot path may have chosen the class for its alignment, so a sampled block needs it
        // too.
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
            let is_full = slots.is_full();
            // This refill is postponed to the next miss, so its blocks are not counted again. With
            // a mean of 1, that miss is sampled too.
            let counted = if is_full || mean.get() == 1 { 0 } else { blocks };
            self.samples.wait(&mut slots, mean.get(), counted);
            if is_full {
                return ptr::null_mut();
            }
        }
        self.alloc_sampled(size, align, class)
    }

    #[cold]
    #[inline(never)]
    fn alloc_sampled(&self, size: usize, align: usize, class: SizeClass) -> *mut u8 {
        // The unwinder may take locks of the loader, so it runs before the slots are locked.
        let by = Trace::take(&self.os);
        let (block, sampled) = {
            let mut slots = self.samples.slots.lock();
            (slots.alloc(&self.os, (size, align), class.size(), &by), slots.sampled)
        };
        if let (1..=WATCHED_SAMPLES, Some(hooks)) = (sampled, self.os.hooks()) {
            self.os.watch_faults(hooks.at_fault);
        }
        block
    }

    /// Frees a sampled block. A `given` size is compared with the block's. A fault stops the
    /// program.
    #[cold]
    #[inline(never)]
    pub(crate) fn free_sampled(&self, block: *mut u8, given: Option<usize>, operation: &str) {
        let by = Trace::take(&self.os);
        let freed = self.samples.slots.lock().free(&self.os, block, given, &by);
        let bytes = freed.unwrap_or_else(|fault| self.abort_on_fault(fault, block, operation));
        self.count_free(bytes);
    }

    /// The requested size of a sampled block, which is its usable size. A fault stops the program.
    #[cold]
    #[inline(never)]
    pub(crate) fn size_sampled(&self, block: *mut u8, operation: &str) -> usize {
        let size = self.samples.slots.lock().size(block);
        size.unwrap_or_else(|fault| self.abort_on_fault(fault, block, operation))
    }

    fn abort_on_fault(
        &self,
        (fault, record): (SlotFault, Option<SlotRecord>),
        block: *mut u8,
        operation: &str,
    ) -> ! {
        self.report_misuse(fault, block, record, operation)
    }
}
