//! Reports a mistake that check mode found: one line, then the stacks that allocated and freed the
//! block. Then it ends the process.

use crate::engine::Engine;
use crate::platform::os::Os;
use crate::safety::check_table::BlockRecord;

/// A mistake of the program with a block.
#[derive(Clone, Copy)]
pub(super) enum Fault {
    /// A free or resize of a block that was freed before.
    Freed,
    /// A sized free with this size, which is not the block's.
    Size(usize),
    /// A write past the block's end: the offset from its start, and the byte found there.
    Overflow(usize, u8),
    /// A write after the block was freed: the offset from its start, and the byte found there.
    Written(usize, u8),
}

impl<O: Os> Engine<O> {
    /// Prints the mistake and the block's record, if it has one, and ends the process.
    #[cold]
    #[inline(never)]
    pub(super) fn report(
        &self,
        fault: Fault,
        block: *mut u8,
        record: Option<BlockRecord>,
        operation: &str,
    ) -> ! {
        let (address, size) = (block.addr(), record.map_or(0, |record| record.size));
        match fault {
            Fault::Freed => self.say_fault("double free", block, operation),
            Fault::Size(given) => self.say_wrong_size(block, given, size, operation),
            Fault::Overflow(at, found) => self.say(format_args!(
                "overflow: {address:#x} has {size} bytes, and byte {at} was written \
                 ({found:#04x}); seen by {operation}"
            )),
            Fault::Written(at, found) => self.say(format_args!(
                "write after free: {address:#x} had {size} bytes, and byte {at} was written \
                 ({found:#04x}); seen by {operation}"
            )),
        }
        self.print_own_calls();
        if let Some(record) = record {
            self.describe(&record);
        }
        self.os.abort()
    }
}
