//! Returns free blocks to the spans of their class, and aborts the program if one cannot be
//! returned.

use crate::central::{BadBlock, ClassSpans};
use crate::engine::Engine;
use crate::platform::os::Os;
use crate::platform::sync::{Guard, Ordering};
use crate::size_class::SizeClass;

impl<O: Os> Engine<O> {
    /// Returns blocks to the spans of their class.
    pub(crate) fn release(&self, class: SizeClass, blocks: &[*mut u8]) {
        self.release_to(self.centrals[class.index()].spans().lock(), class, blocks);
    }

    /// Returns blocks to these spans, and unlocks them.
    pub(crate) fn release_to(
        &self,
        mut spans: Guard<'_, ClassSpans>,
        class: SizeClass,
        blocks: &[*mut u8],
    ) {
        let released = spans.release(&self.region, &self.os, &self.pages, class, blocks);
        drop(spans);
        if !self.scavenger.exists() {
            self.freed_bytes.fetch_add(blocks.len() * class.size(), Ordering::Relaxed);
        }
        self.abort_on_bad_block(released, "free");
    }

    /// Aborts the program if a block could not be released.
    pub(crate) fn abort_on_bad_block(&self, released: Result<(), BadBlock>, operation: &str) {
        match released {
            Ok(()) => {}
            Err(BadBlock::Twice(block)) => self.fault("double free", block, operation),
            Err(BadBlock::Foreign(block)) => self.fault("invalid free", block, operation),
        }
    }
}
