//! What check mode says: one line as everywhere, then who allocated the block and who freed it, and at exit which
//! blocks are still held.

use crate::engine::Engine;
use crate::platform::os::Os;
use crate::safety::check_table::Record;

/// What a program did wrong with a block that is known.
#[derive(Clone, Copy)]
pub(super) enum Fault {
    /// Freed, or resized, when it was freed already.
    Freed,
    /// Freed with this size.
    Size(usize),
    /// Written behind its end, at this offset from its start; what was found there.
    Overflow(usize, u8),
    /// Written after it was freed, at this offset.
    Written(usize, u8),
}

impl<O: Os> Engine<O> {
    /// Says what was wrong with a block, and what is known of it, and ends the process.
    #[cold]
    #[inline(never)]
    pub(super) fn report(
        &self,
        fault: Fault,
        block: *mut u8,
        record: Option<Record>,
        operation: &str,
    ) -> ! {
        let (address, size) = (block.addr(), record.map_or(0, |record| record.size));
        match fault {
            Fault::Freed => self.say_fault("double free", block, operation),
            Fault::Size(given) => self.say_wrong_size(block, given, size, operation),
            Fault::Overflow(at, found) => self.say(format_args!(
                "overflow: {address:#x} has {size} bytes, and byte {at} was written ({found:#04x}); seen by {operation}"
            )),
            Fault::Written(at, found) => self.say(format_args!(
                "write after free: {address:#x} had {size} bytes, and byte {at} was written ({found:#04x}); seen by {operation}"
            )),
        }
        self.print_own_calls();
        if let Some(record) = record {
            self.describe(&record);
        }
        self.os.abort()
    }
}
